"""Training the four models: cross-entropy, and for RRL a price on input gradients in the background.

    loss = cross-entropy + strength · penalty,   penalty = Σ over background pixels of (d score_true / d x)²

"Right for the right reasons": the gradient is part of the loss, so its own gradient is needed (double backward). The
paper gives strength 0.1 and no unit. `NORMALISATIONS` are the readings; `sweep.py` compares them.
"""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from experiments.synthetic import checkpoints
from experiments.synthetic.coarse import CHUNK, input_gradients
from experiments.synthetic.networks import cnn, mlp
from experiments.synthetic.shapes import Pictures
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn import functional

#: The paper's.
STRENGTH = 0.1
EPOCHS = {"cnn": 6, "mlp": 40}
#: Eight pictures of a CNN fit the caches (half the time per picture of 32); an MLP's step costs its 13 million weights.
BATCH = {"cnn": 8, "mlp": 32}
#: sum: as printed, per picture, mean over the batch. mean: divided by the number of background pixels. share: divided
#: by the squared gradient of the whole picture: the share outside, whatever the scale of scores and the resolution.
NORMALISATIONS = ("sum", "mean", "share")
Normalisation: TypeAlias = Literal["sum", "mean", "share"]
Kind: TypeAlias = Literal["cnn", "mlp"]


@dataclass(frozen=True)
class Settings:
    """All that decides the weights, beside the pictures; ``warmup`` epochs bring the strength up from 0, linearly."""

    kind: Kind
    regularised: bool
    seed: int
    epochs: int
    strength: float
    normalisation: Normalisation
    warmup: float
    batch: int
    rate: float

    @property
    def name(self) -> str:
        """As in the paper's tables, in small letters."""
        return f"{'rrl' if self.regularised else 'vanilla'}-{self.kind}"


@dataclass(frozen=True, eq=False)
class Trained:
    """A model in evaluation mode, and how it came about: settings, versions, epochs, accuracies, attention share."""

    model: nn.Module
    record: dict[str, object]


def trained(
    kind: Kind,
    regularised: bool,
    data: Pictures,
    validation: Pictures,
    *,
    folder: Path,
    seed: int = 0,
    epochs: int | None = None,
    strength: float = STRENGTH,
    normalisation: Normalisation = "share",
    warmup: float = 1.0,
    batch: int | None = None,
    rate: float = 1e-3,
) -> Trained:
    """The model with these settings on these pictures: from ``folder`` if it is there, continued if it was begun.

    Every epoch draws its order from (seed, epoch) and is saved with Adam's moments, so an interrupted training ends
    with the same weights as an undisturbed one. Vanilla models ignore ``strength``, ``normalisation``, ``warmup``;
    ``epochs`` and ``batch`` None are `EPOCHS` and `BATCH` of the kind.
    """
    if normalisation not in NORMALISATIONS or kind not in ("cnn", "mlp"):
        raise ValueError(
            f"`kind` and `normalisation` must be cnn or mlp, and one of {', '.join(NORMALISATIONS)}; "
            f"got {kind!r} and {normalisation!r}. Check the spelling."
        )
    penalised = (strength, normalisation, warmup) if regularised else (0.0, "sum", 0.0)
    settings = Settings(kind, regularised, seed, epochs or EPOCHS[kind], *penalised, batch or BATCH[kind], rate)
    identity = {
        **asdict(settings),
        "pictures": data.name,
        "fingerprint": checkpoints.fingerprint(data.images, data.truths, data.labels),
    }
    place = folder / f"{settings.name}-{checkpoints.key(identity)}"
    model = cnn(seed=seed) if kind == "cnn" else mlp(data.images.shape[-1], seed=seed)
    record = checkpoints.finished(place, model)
    if record is None:
        rows = _train(model, settings, data, validation, place)
        record = {
            "name": settings.name,
            "settings": identity,
            # as many as for validation: it is there to be compared with it
            "train": evaluated(model, data.pick(slice(len(validation)))),
            "validation": evaluated(model, validation),
            "epochs": rows,
            "seconds": sum(float(row["seconds"]) for row in rows),
            "versions": {"python": platform.python_version(), **{of: version(of) for of in ("torch", "numpy")}},
            "threads": torch.get_num_threads(),
        }
        checkpoints.finish(place, model, record)
    return Trained(model.eval().requires_grad_(False), record)


def penalty(gradient: Tensor, background: Tensor, normalisation: Normalisation) -> Tensor:
    """The price of a batch of input gradients (N, S, S); ``background`` is True where they should be zero."""
    squared = gradient.square()
    outside = (squared * background).sum((1, 2))
    if normalisation == "mean":
        outside = outside / background.sum((1, 2)).clamp(min=1)
    elif normalisation == "share":
        outside = outside / squared.sum((1, 2)).clamp(min=torch.finfo(squared.dtype).tiny)
    return outside.mean()


def attention(model: nn.Module, pictures: Pictures) -> float:
    """The share of the squared input gradient of the true class inside the truth, mean over pictures.

    A picture on which the gradient is zero everywhere counts as 0: who looks at nothing does not look at the shape.
    """
    squared = input_gradients(model, pictures.images, pictures.labels).double().square()
    inside = (squared * pictures.truths).sum((1, 2))
    return float((inside / squared.sum((1, 2)).clamp(min=1e-300)).mean())


def accuracy(model: nn.Module, pictures: Pictures) -> float:
    """The share of pictures whose top class is theirs."""
    with torch.no_grad():
        top = torch.cat([model(batch).argmax(1) for batch in pictures.images.split(CHUNK)])
    return float((top == pictures.labels).double().mean())


def evaluated(model: nn.Module, pictures: Pictures) -> dict[str, float]:
    """Both, for a record."""
    return {"accuracy": accuracy(model, pictures), "attention": attention(model, pictures)}


def _train(
    model: nn.Module, settings: Settings, data: Pictures, validation: Pictures, place: Path
) -> list[dict[str, float]]:
    adam = torch.optim.Adam(model.parameters(), lr=settings.rate)
    rows = checkpoints.begun(place, model, adam)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        steps = -(-len(data) // settings.batch)
        task = progress.add_task(settings.name, total=settings.epochs * steps, completed=len(rows) * steps)
        for epoch in range(len(rows), settings.epochs):
            start, sums = time.perf_counter(), torch.zeros(2, dtype=torch.float64)
            order = torch.randperm(len(data), generator=torch.Generator().manual_seed(settings.seed * 10_000 + epoch))
            for step, index in enumerate(order.split(settings.batch)):
                done = epoch + step / steps
                strength = settings.strength * (min(1.0, done / settings.warmup) if settings.warmup else 1.0)
                sums += len(index) * torch.tensor(_step(model, adam, data.pick(index), settings, strength))
                progress.advance(task)
            seconds = time.perf_counter() - start
            loss, price = (sums / len(data)).tolist()
            row = {"epoch": epoch + 1, "cross_entropy": loss, "penalty": price, "seconds": seconds}
            rows.append(row | evaluated(model, validation))
            checkpoints.save(place, model, adam, rows)
    return rows


def _step(
    model: nn.Module, adam: torch.optim.Optimizer, batch: Pictures, settings: Settings, strength: float
) -> tuple[float, float]:
    """One step down; cross-entropy and penalty before it."""
    images = batch.images.clone().requires_grad_(settings.regularised)
    scores = model(images)
    loss = functional.cross_entropy(scores, batch.labels)
    price = loss.new_zeros(())
    if settings.regularised:
        own = scores.gather(1, batch.labels[:, None]).sum()
        (gradient,) = torch.autograd.grad(own, images, create_graph=True)
        price = penalty(gradient[:, 0], ~batch.truths, settings.normalisation)
    adam.zero_grad()
    (loss + strength * price).backward()
    adam.step()
    return float(loss.detach()), float(price.detach())
