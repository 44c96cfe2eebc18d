"""Pictures x upsamplers x metrics -> a tidy table."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from usu.bench.contenders import Contender, Guided, Plain, ScoresAlone, contenders
from usu.bench.journal import Journal
from usu.bench.sample import Openable, as_samples
from usu.bench.scene import Scene, scene_of
from usu.bench.table import Row, Table, rounded
from usu.errors import UsuError
from usu.forward import Model
from usu.metrics.declared import METRICS, Metric, by_name
from usu.metrics.measured import Measured
from usu.results import versions

#: What is measured if nothing is said: the protocol's metrics that take few evaluations each.
DEFAULT_METRICS = (
    "half-deletion", "half-deletion:noise", "insertion-deletion", "infidelity", "infidelity-matched", "road",
    "mass-error", "moved-mass", "seam-energy", "largest-gain", "sparseness",
    "cell-auroc", "energy-in-mask", "area-iou", "pointing-game",
)  # fmt: skip


def evaluate(
    upsamplers: Sequence[Any] | str,
    pictures: Iterable[Any],
    model: Model,
    metrics: Sequence[str | Metric] | None = None,
    *,
    evaluations: int = 300,
    forward: Model | None = None,
    source: str = "gradcam",
    layer: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    part: tuple[int, int] = (1, 1),
    request: dict[str, Any] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Table:
    """Measure upsamplers on pictures: one row per picture, upsampler and metric.

    Args:
        upsamplers: names, groups (``"plain"``, ``"presets"``, ``"controls"``, ``"all"``), `Upsampler` values or pairs
            of a name and `Settings`; see `usu.bench.contenders`.
        pictures: `Sample` values or images (C, H, W).
        model: an ``nn.Module``, for coarse maps and gradients.
        metrics: names or `Metric` values; None is `DEFAULT_METRICS`. Those against an outline are left out for pictures
            that have none.
        evaluations: what every upsampler may spend that asks the model; those given as `Settings` have their own.
        forward: the same model for all other passes, such as a faster ONNX export; None is ``model``.
        source: of the coarse maps; see `usu.explain`.
        layer: where it looks.
        seed: of everything random; the numbers do not depend on the order or on what else is measured.
        out: a folder where rows are kept as soon as they are known. What is there already is not computed again.
        part: (2, 3) is the second of three processes that share the pictures, and the folder.
        request: what else the rows depend on, remembered in the folder; other values are refused there.
        progress: called with the picture's name, the rows done and in all.

    Guarantees:
        The same table, bit for bit in its printed form, whether or not it was interrupted. A picture that fails is in
        ``failures`` with its reason, and costs the others nothing.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, stride=2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    >>> table = evaluate(["nearest", "bilinear"], [torch.rand(1, 9, 9)], net, ["mass-error", "half-deletion"])
    >>> [(row.upsampler, row.metric, row.metric_evaluations) for row in table.rows]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('nearest', 'mass-error', 0), ('nearest', 'half-deletion', 2),
     ('bilinear', 'mass-error', 0), ('bilinear', 'half-deletion', 2)]
    """
    rivals, samples = contenders(upsamplers, evaluations=evaluations), as_samples(pictures)
    asked = [one if isinstance(one, Metric) else by_name(one) for one in _listed(metrics)]
    plan = {sample.name: _wanted(sample, rivals, asked) for sample in samples}
    total = sum(map(len, plan.values()))

    def kept() -> dict[str, Any]:
        """What the rows of a folder depend on, beside the names of pictures, upsamplers and metrics."""
        return {
            "source": source, "layer": layer, "seed": seed, "usu-xai": versions()["usu-xai"],
            "upsamplers": {rival.name: _described(rival) for rival in rivals},
            "pictures": {sample.name: sample.digest() for sample in samples}, **(request or {}),
        }  # fmt: skip

    failures: dict[str, str] = {}
    with nullcontext(None) if out is None else Journal(out, kept(), part=_checked_part(part)) as journal:
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
        for number, sample in enumerate(samples):
            if number % part[1] != part[0] - 1:
                continue
            todo = [(rival, metric) for rival, metric in plan[sample.name] if _key(sample, rival, metric) not in rows]
            if not todo:
                continue
            try:
                scene = scene_of(
                    sample.open(), model, model if forward is None else forward, source=source, layer=layer, seed=seed
                )
                _measure(scene, todo, keep)
            except (UsuError, ValueError, TypeError, OSError, RuntimeError, MemoryError, ArithmeticError) as error:
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    raise  # the next row would not fit either
                failures[sample.name] = " ".join(str(error).split()) or type(error).__name__
        if journal is not None:
            journal.look()  # whoever ends last has the rows of all
    wanted = [_key(sample, rival, metric) for sample in samples for rival, metric in plan[sample.name]]
    there = tuple(rows[key] for key in wanted if key in rows)
    lost = sum(len(plan[name]) for name in failures) - sum(row.picture in failures for row in there)
    return Table(there, failures, missing=total - len(there) - lost)


def _measure(scene: Scene, todo: list[tuple[Contender, Metric]], keep: Callable[[Row], None]) -> None:
    """Every map once, every metric of it, row by row."""
    for rival in dict.fromkeys(rival for rival, _ in todo):
        made = rival(scene)
        case = scene.case(made.pixel_map)
        for metric in (metric for other, metric in todo if other is rival):
            start, lent = time.perf_counter(), case.lent
            # an outline that was cropped away leaves nothing to measure against
            blank = metric.needs_truth and scene.truth is not None and not scene.truth.any()
            found = Measured(float("nan")) if blank else metric.measure(case)
            taken = time.perf_counter() - start + case.lent - lent
            row = Row(
                scene.name, scene.target, rival.name, metric.name, found.value, made.evaluations, found.evaluations,
                made.seconds, taken,
            )  # fmt: skip
            keep(replace(row, value=rounded(found.value)))


def _wanted(sample: Openable, rivals: list[Contender], metrics: list[Metric]) -> list[tuple[Contender, Metric]]:
    fitting = [metric for metric in metrics if sample.has_truth or not metric.needs_truth]
    return [(rival, metric) for rival in rivals for metric in fitting]


def _described(rival: Contender) -> dict[str, Any]:
    """What a contender's rows depend on, as plain values; the same in every process."""
    if isinstance(rival, (Guided, ScoresAlone)):
        told = {"coarse": rival.coarse, "scores": rival.scores} if isinstance(rival, Guided) else {}
        return {"kind": type(rival).__name__, **told, **rival.settings.described()}
    found: dict[str, Any] = _plain(rival.upsampler if isinstance(rival, Plain) else rival)
    return found


def _plain(value: Any) -> Any:
    """A value and all its fields as JSON can hold them; what is no value is known by its kind."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    own = fields(value) if is_dataclass(value) else ()
    return {"kind": type(value).__name__, **{field.name: _plain(getattr(value, field.name)) for field in own}}


def _key(sample: Openable, rival: Contender, metric: Metric) -> tuple[str, str, str]:
    return sample.name, rival.name, metric.name


def _listed(metrics: Sequence[str | Metric] | None) -> Sequence[str | Metric]:
    if metrics is None:
        return DEFAULT_METRICS
    if isinstance(metrics, str):
        return [metric.name for metric in METRICS] if metrics == "all" else [metrics]
    if not metrics:
        raise ValueError("`metrics` must name at least one; got none. Leave it out for the usual ones.")
    return metrics


def _checked_part(part: tuple[int, int]) -> tuple[int, int]:
    first, many = part
    if not 1 <= first <= many:
        raise ValueError(f"`part` must be (which, of how many), counted from 1; got {part}. (1, 1) is everything.")
    return first, many
