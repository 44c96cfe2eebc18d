"""The only place that calls a model for scores.

An `Engine` is a model and a question: which target, through which link. It asks about any number of variants of one
picture, a chunk at a time, counts them, and leaves the model as it was, also when something raises in the middle.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.errors import UsuError, first_line
from usu.forward import calls
from usu.forward.calls import Link, Target, checked_link, checked_target, read, top_class, undisturbed
from usu.types import Array

#: A batch (N, C, H, W) in; a tensor, tuple, dictionary or ModelOutput out.
Model: TypeAlias = Callable[[Tensor], Any]
#: Called with the pictures done so far and in all. True ends scores that have a posterior early.
Progress: TypeAlias = Callable[[int, int], "bool | None"]
#: What can run a model for scores; see `usu.forward.runtime`.
RuntimeName: TypeAlias = Literal["torch", "onnx", "compile", "auto"]
RUNTIMES: tuple[RuntimeName, ...] = ("torch", "onnx", "compile", "auto")

#: Pictures of 3 x 224 x 224 in a default chunk, and the most of the smallest pictures. Larger chunks take longer on a
#: CPU, because their activations are allocated anew each time (``python -m benchmarks batches``).
_CPU_PICTURES, _GPU_PICTURES, _NUMBERS = 4, 64, 3 * 224 * 224
_CPU_LIMIT, _GPU_LIMIT = 64, 256
#: Activations alive at once in a common network, as multiples of its input; only a first guess, halved when wrong.
_ACTIVATIONS = 64
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "failed to allocate memory")


@dataclass(eq=False)
class Meter:
    """Counts the pictures passed through a model: the one place where evaluations are counted.

    >>> meter = Meter(limit=3)
    >>> meter.count(2)
    >>> meter.left
    1
    """

    limit: int | None = None
    spent: int = 0

    def __post_init__(self) -> None:
        #: Evaluations that may still be made; None if there is no limit.
        self.left = None if self.limit is None else max(0, self.limit - self.spent)

    def plan(self, pictures: int) -> None:
        """So many are about to be passed: no more than are left."""
        if self.left is not None and pictures > self.left:
            raise UsuError(f"{self.spent + pictures} evaluations were planned where {self.limit} are allowed.")

    def count(self, pictures: int) -> None:
        """So many were passed."""
        self.spent += pictures
        if self.limit is not None:
            self.left = max(0, self.limit - self.spent)


@dataclass(frozen=True)
class Engine:
    """A model and the question asked of it. Made by `engine`, which checks the settings."""

    model: Model
    target: tuple[int, ...] | Callable[[Any], Tensor] | None
    link: Link = "logit"
    device: torch.device | None = None
    dtype: torch.dtype | None = None
    #: None: on, unless the model turns out to need rows of pixels one after the other.
    channels_last: bool | None = False
    chunk: int | None = None
    #: Shared by all engines made of this one with `dataclasses.replace`.
    meter: Meter = field(default_factory=Meter, compare=False)

    def run_by(self, model: Model) -> Engine:
        """The same question, asked of another form of the model; the meter counts on."""
        if model is self.model:
            return self
        return replace(engine(model, self.target, link=self.link, chunk=self.chunk), meter=self.meter)

    def aim(self, picture: Array) -> Reference:
        """One pass on the picture itself: fixes the target where it was None, and gives the value to compare with."""
        image = self.place(picture)
        self.meter.plan(1)
        with undisturbed(self.model), torch.no_grad():
            found = self._reference(*self._call(image[None]))
        return found._replace(values=_finite(found.values))

    def evaluate(
        self, picture: Array, count: int, build: Callable[[slice], Tensor], *, progress: Progress | None = None
    ) -> Tensor:
        """Values (count, T) in float64 on the CPU, of ``count`` variants of ``picture``: one evaluation per row.

        ``build(slice)`` makes the batch (n, C, H, W) of a chunk. When memory runs out the chunk is halved and only the
        lost pictures are repeated.
        """
        if self.target is None:
            raise ValueError("`target` must be known before variants are compared; got None. Use engine.aim(picture).")
        image, session = torch.as_tensor(picture), None
        if not isinstance(self.model, nn.Module):
            from usu.forward.onnx import OnnxModel

            session = self.model if isinstance(self.model, OnnxModel) else None
        chunk = self.chunk or _default_chunk(image, self.device)
        values: list[Tensor] = []
        done, runner = 0, self
        self.meter.plan(count)

        def took(output: Any, size: int) -> None:
            nonlocal done
            values.append(read(output, self.target or (), self.link, size))
            self.meter.count(size)
            done += size
            if progress is not None:
                progress(done, count)

        with undisturbed(self.model), torch.no_grad(), ExitStack() as threads:
            if session is not None:  # torch's threads stay awake for a while, and ONNX Runtime's would wait for them
                threads.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(1)
            if session is not None and session.workers > 1:  # several chunks on their way at once
                chunk = session.piece(chunk)
                spans = [slice(start, min(start + chunk, count)) for start in range(0, count, chunk)]
                try:
                    outputs = session.outputs(build(rows).contiguous() for rows in spans)
                    for rows, output in zip(spans, outputs, strict=True):
                        took(output, rows.stop - rows.start)
                except (RuntimeError, MemoryError) as error:
                    if _ran_out(error) is None:
                        raise
            while done < count:  # one after the other: all of them, or what did not fit
                rows = slice(done, min(done + chunk, count))
                size = rows.stop - rows.start
                found = runner._try(build, rows)
                if not isinstance(found, str):
                    runner = replace(runner, channels_last=found[1])
                    took(found[0], size)
                elif size > 1:
                    chunk = size // 2
                else:
                    raise MemoryError(
                        f"`image` must fit in memory on its own; got {check.shape(image)}, and the model ran out "
                        f"of memory ({found}). Use a smaller picture or another device."
                    )
        return _finite(torch.cat(values)) if values else torch.empty(0, 0, dtype=torch.float64)

    def slope(self, picture: Array) -> tuple[Reference, Tensor]:
        """As `aim`, and the values' derivatives (T, C, H, W) by the picture: one backward pass per target."""
        self.meter.plan(1)
        with undisturbed(self.model), torch.inference_mode(False), torch.enable_grad():
            leaf = self.place(picture).detach().clone().requires_grad_()
            # a copy goes in, because a first layer that works in place may not touch a leaf
            found = self._reference(*self._call(leaf[None].clone()))
            values = found.values
            if not values.requires_grad:
                raise ValueError(
                    "`model` must be differentiable from input to output; got one whose output has no gradient. "
                    "Pass an nn.Module, or use scores that only need forward passes."
                )
            # of the input alone: the parameters' .grad stays as it is
            slopes = [torch.autograd.grad(v, leaf, retain_graph=i + 1 < len(values))[0] for i, v in enumerate(values)]
        return found._replace(values=_finite(values.detach())), torch.stack(slopes)

    def _reference(self, output: Any, channels_last: bool | None) -> Reference:
        """What one pass of the picture itself says."""
        self.meter.count(1)
        target = self.target if self.target is not None else (top_class(output),)
        aimed = replace(self, target=target, channels_last=channels_last)
        return Reference(aimed, read(output, target, self.link, 1)[0])

    def place(self, picture: Array) -> Tensor:
        """The picture (C, H, W), signal (C, L) or volume (C, D, H, W), checked, on the model's device."""
        dims = calls.convolution_dims(self.model)
        image = check.as_tensor("image", picture)
        if image.ndim not in (2, 3, 4) or image.ndim - 2 == dims:
            raise ValueError(
                "`image` must be one picture C x H x W, signal C x L or volume C x D x H x W; got "
                f"{check.shape(image)}."
            )
        check.finite("image", image)
        return image if self.device is None else image.to(self.device)

    def _try(self, build: Callable[[slice], Tensor], rows: slice) -> tuple[Any, bool | None] | str:
        """The chunk's output, or the reason why it did not fit. Returning drops the failed batch before a retry."""
        try:
            return self._call(build(rows))
        except (RuntimeError, MemoryError) as error:
            reason = _ran_out(error)
            if reason is None:
                raise
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return reason

    def _call(self, batch: Tensor) -> tuple[Any, bool | None]:
        """The raw output, and the memory format that worked."""
        batch = batch.to(device=self.device, dtype=self.dtype)
        if self.channels_last is False or batch.ndim != 4:
            return self.model(batch.contiguous()), False
        try:
            return self.model(batch.contiguous(memory_format=torch.channels_last)), self.channels_last
        except RuntimeError as error:
            # .view(N, -1) after a convolution is common and needs the other order; the numbers are the same
            if self.channels_last or "view size is not compatible" not in str(error):
                raise
        return self.model(batch.contiguous()), False


class Reference(NamedTuple):
    """The engine with its target fixed, and the unperturbed picture's values (T,)."""

    engine: Engine
    values: Tensor


def engine(
    model: Model,
    target: Target = None,
    *,
    link: Link = "logit",
    device: torch.device | str | None = None,
    channels_last: bool | None = None,
    chunk: int | None = None,
    limit: int | None = None,
) -> Engine:
    """A model ready to be asked about pictures.

    Args:
        model: an ``nn.Module``, any callable batch -> output, or `from_onnx(...)`.
        target: class index, several of them (all read from the same passes), a callable on the raw output giving (N,)
            or (N, T), or None for the model's top class.
        link: ``"logit"``, ``"log_probability"``, ``"probability"``, ``"log_odds"`` or a callable on the logits.
        device: where batches go; None is where the module's parameters are, or where the picture is.
        channels_last: memory order of the batches; None chooses it for convolutions on a CPU.
        chunk: pictures per batch; None sizes it to picture and memory.
        limit: the most pictures it may be shown in all; its ``meter`` counts them.

    >>> brightness = engine(lambda batch: batch.mean((1, 2, 3))[:, None], target=0)
    >>> brightness.evaluate(torch.zeros(1, 2, 2), 3, lambda rows: torch.ones(rows.stop - rows.start, 1, 2, 2)).flatten()
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    if not callable(model):
        raise TypeError(
            f"`model` must be an nn.Module or a callable on batches; got {type(model).__name__}. For an .onnx file use "
            "usu.forward.from_onnx(...)."
        )
    if chunk is not None:
        check.whole_number("chunk", chunk, least=1)
    weights = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    home = weights[0].device if weights else None
    wanted = None if device is None else torch.device(device)
    if home and wanted and (home.type != wanted.type or wanted.index not in (None, home.index)):
        raise ValueError(f"`device` must be where the model is ({home}), which is never moved for you; got {wanted}.")
    dtype = next((w.dtype for w in weights if w.is_floating_point()), None)
    if channels_last is None and not (home and home.type == "cpu" and any(w.ndim == 4 for w in weights)):
        channels_last = False
    meter, goal = Meter(limit), checked_target(target)
    return Engine(model, goal, checked_link(link, goal), home or wanted, dtype, channels_last, chunk, meter)


def _default_chunk(image: Tensor, device: torch.device | None) -> int:
    most, limit = _CPU_PICTURES, _CPU_LIMIT
    if device is not None and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        most, limit = min(_GPU_PICTURES, int(free / 2 / (4 * _ACTIVATIONS * _NUMBERS))), _GPU_LIMIT
    return max(1, min(limit, most * _NUMBERS // image.numel()))


def _ran_out(error: Exception) -> str | None:
    """The first line of the reason if memory ran out; None if it was something else."""
    full = isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError))
    return first_line(error) if full or any(words in str(error).lower() for words in _OUT_OF_MEMORY) else None


def _finite(values: Tensor) -> Tensor:
    if not bool(values.isfinite().all()):
        raise ValueError(
            "`model` must return finite values for the target; got NaN or infinity. Check the picture's scaling."
        )
    return values.cpu()
