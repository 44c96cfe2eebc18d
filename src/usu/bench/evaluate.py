"""Pictures x upsamplers x metrics -> a tidy table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from usu import _checks as check
from usu.bench.contenders import Contender, Made, contenders
from usu.bench.journal import Journal
from usu.bench.sample import Openable, as_samples
from usu.bench.scene import Scene, scene_of
from usu.bench.table import Row, Table, rounded
from usu.errors import UsuError
from usu.forward import Model
from usu.forward.digest import described
from usu.metrics.catalogue import METRICS, Case, Metric, by_name
from usu.metrics.passes import Measured
from usu.results import versions
from usu.sources import SOURCES

T = TypeVar("T")

#: What is measured if nothing is said: the protocol's metrics that take few evaluations each.
DEFAULT_METRICS = (
    "half-deletion", "half-deletion:noise", "insertion-deletion", "infidelity", "infidelity-matched", "road",
    "mass-error", "moved-mass", "seam-energy", "largest-gain", "sparseness",
    "cell-auroc", "energy-in-mask", "area-iou", "pointing-game",
)  # fmt: skip


def evaluate(
    upsamplers: Sequence[Any] | str, pictures: Iterable[Any], model: Model,
    metrics: Sequence[str | Metric] | None = None, *, evaluations: int = 300, forward: Model | None = None,
    source: str = "gradcam", layer: str | None = None, seed: int = 0, out: str | Path | None = None,
    part: tuple[int, int] = (1, 1), progress: Callable[[str, int, int], None] | None = None,
) -> Table:  # fmt: skip
    """Measure upsamplers on pictures: one row per picture, upsampler and metric.

    Args:
        upsamplers: names, groups, `Upsampler` values or pairs of a name and `Settings`; see `usu.bench.contenders`.
        pictures: `Sample` values or images (C, H, W).
        model: an ``nn.Module``, for coarse maps and gradients.
        metrics: names (``"all"``: every one) or `Metric` values; None is `DEFAULT_METRICS`. Those against an outline
            are left out for pictures that have none.
        evaluations: what every upsampler may spend that asks the model; those given as `Settings` have their own, and
            their own seed.
        forward: the same model for all other passes, such as a faster ONNX export; None is ``model``.
        source: of the coarse maps; see `usu.explain`.
        layer: where it looks.
        seed: of everything random but the noise fill, which is always the same noise; the numbers do not depend on the
            order or on what else is measured.
        out: a folder where rows are kept as soon as they are known. What is there already is not computed again; rows
            of another model, picture, upsampler or metric of the same name are refused.
        part: (2, 3) is the second of three processes that share the pictures, and the folder.
        progress: called with the picture's name, the rows done and in all.

    Guarantees:
        The same table, bit for bit in its printed form, whether or not it was interrupted. A picture that fails is in
        ``failures`` with its reason, and costs the others nothing; so is an upsampler or a metric that fails on one.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, stride=2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    >>> table = evaluate(["nearest", "bilinear"], [torch.rand(1, 9, 9)], net, ["mass-error", "half-deletion"])
    >>> [(row.upsampler, row.metric, row.metric_evaluations) for row in table.rows]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('nearest', 'mass-error', 0), ('nearest', 'half-deletion', 2),
     ('bilinear', 'mass-error', 0), ('bilinear', 'half-deletion', 2)]
    """
    rivals, samples = contenders(upsamplers, evaluations=evaluations, seed=seed), as_samples(pictures)
    asked, (which, parts) = _asked(metrics), part
    check.choice("source", source, SOURCES)
    check.whole_number("part", which, least=1, most=parts)
    pairs = [(rival, metric) for rival in rivals for metric in asked]
    plan = {s.name: [pair for pair in pairs if s.has_truth or not pair[1].needs_truth] for s in samples}
    total = sum(map(len, plan.values()))

    def kept() -> dict[str, Any]:
        """What the rows of a folder depend on, beside the names of pictures, upsamplers and metrics."""
        return {
            "source": source, "layer": layer, "seed": seed, "usu-xai": versions()["usu-xai"],
            "model": described(model), "forward": described(forward),
            "upsamplers": {rival.name: described(rival) for rival in rivals},
            "metrics": {metric.name: described(metric) for metric in asked if not _ours(metric)},
            "pictures": {sample.name: sample.digest() for sample in samples},
        }  # fmt: skip

    def opened(sample: Openable) -> Scene:
        passes = model if forward is None else forward
        return scene_of(sample.open(), model, passes, source=source, layer=layer, seed=seed)

    failures = _Failures()
    with nullcontext(None) if out is None else Journal(out, kept(), part=(which, parts)) as journal:
        rows: dict[tuple[str, str, str], Row] = {} if journal is None else journal.rows
        done = sum(_key(sample, *pair) in rows for sample in samples for pair in plan[sample.name])

        def keep(row: Row) -> None:
            nonlocal done
            if journal is not None:
                journal.add(row)
            rows[row.key] = row
            done += 1
            if progress is not None:
                progress(row.picture, done, total)

        if progress is not None:
            progress("", done, total)
        for sample in samples[which - 1 :: parts]:
            todo = [pair for pair in plan[sample.name] if _key(sample, *pair) not in rows]
            scene = failures.attempt(sample.name, opened, sample) if todo else None
            if scene is None:
                continue
            for rival in dict.fromkeys(rival for rival, _ in todo):
                name = f"{sample.name}, {rival.name}"
                made = failures.attempt(name, rival, scene)
                case = None if made is None else failures.attempt(name, scene.case, made.pixel_map)
                if made is None or case is None:
                    continue
                for metric in (metric for other, metric in todo if other is rival):
                    row = failures.attempt(f"{name}, {metric.name}", _measured, scene, rival, made, case, metric)
                    if row is not None:
                        keep(row)
        if journal is not None:
            journal.look()  # whoever ends last has the rows of all
    wanted = [_key(sample, *pair) for sample in samples for pair in plan[sample.name]]
    others = {sample.name for number, sample in enumerate(samples) if number % parts != which - 1}
    missing = sum(key[0] in others and key not in rows for key in wanted)
    return Table(tuple(rows[key] for key in wanted if key in rows), failures, missing)


class _Failures(dict[str, str]):
    """What went wrong, by the name of what was tried; one sentence each."""

    def attempt(self, name: str, work: Callable[..., T], *given: Any) -> T | None:
        """What the work gives; a failure costs this and nothing else."""
        try:
            return work(*given)
        except Exception as error:
            text = " ".join(str(error).split())
            plain = isinstance(error, (UsuError, ValueError, TypeError, OSError, RuntimeError)) and text
            self[name] = text if plain else f"{type(error).__name__}: {text}"
            return None


def _measured(scene: Scene, rival: Contender, made: Made, case: Case, metric: Metric) -> Row:
    start, lent = time.perf_counter(), case.lent
    # an outline that was cropped away leaves nothing to measure against
    blank = metric.needs_truth and scene.truth is not None and not scene.truth.any()
    found = Measured(float("nan")) if blank else metric.measure(case)
    taken = time.perf_counter() - start + case.lent - lent
    return Row(
        scene.name, scene.target, rival.name, metric.name, rounded(found.value), made.evaluations, found.evaluations,
        made.seconds, taken,
    )  # fmt: skip


def _key(sample: Openable, rival: Contender, metric: Metric) -> tuple[str, str, str]:
    return sample.name, rival.name, metric.name


def _asked(metrics: Sequence[str | Metric] | None) -> list[Metric]:
    """Each once, whatever it was called by."""
    named = DEFAULT_METRICS if metrics is None else [metrics] if isinstance(metrics, (str, Metric)) else metrics
    found: dict[str, Metric] = {}
    # what is no list is refused as if it stood in one
    given = named if isinstance(named, Iterable) else [named]
    for one in (one for name in given for one in (METRICS if name == "all" else [name])):
        metric = by_name(one) if isinstance(one, str) else one
        if not isinstance(metric, Metric):
            raise TypeError(f"`metrics` must be names or usu.metrics.Metric values; got {type(one).__name__}.")
        if found.setdefault(metric.name, metric) != metric:
            raise ValueError(f"`metrics` must have different names; got two called {metric.name!r}.")
    if not found:
        raise ValueError("`metrics` must name at least one; got none. Leave it out for the usual ones.")
    return list(found.values())


def _ours(metric: Metric) -> bool:
    """One that its name says everything about."""
    try:
        return by_name(metric.name) == metric
    except ValueError:
        return False
