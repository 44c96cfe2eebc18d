"""Datasets x models x sources x upsamplers x metrics -> a tidy table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from usu import _checks as check
from usu.bench.contenders import contenders
from usu.bench.datasets import as_samples
from usu.bench.engines import Engine, Local, Ray
from usu.bench.scene import Source
from usu.bench.store import Failure, Store
from usu.bench.table import Row, Table
from usu.bench.units import Network, Outcome, Unit, UnitGrid, metric_named
from usu.errors import UsuWarning
from usu.forward import Model
from usu.forward.engine import RUNTIMES, RuntimeName
from usu.forward.runtime import runtime
from usu.metrics.catalogue import METRICS, Metric
from usu.models import Loaded
from usu.sources import SOURCES

#: What is measured if nothing is said: the protocol's metrics that take few evaluations each.
DEFAULT_METRICS = (
    "half-deletion", "half-deletion:noise", "insertion-deletion", "infidelity", "infidelity-matched", "road",
    "mass-error", "moved-mass", "seam-energy", "largest-gain", "sparseness",
    "cell-auroc", "energy-in-mask", "area-iou", "pointing-game",
)  # fmt: skip
#: Called with the picture's name, the units done and in all.
Told = Callable[[str, int, int], None]


def evaluate(
    upsamplers: Sequence[Any] | str, pictures: Iterable[Any] | Mapping[str, Iterable[Any]],
    model: Model | Loaded | Network | Mapping[str, Model | Loaded | Network],
    metrics: Sequence[str | Metric] | None = None, *, evaluations: int = 300,
    forward: Model | RuntimeName | None = None, source: str | Source | Sequence[str] | Mapping[str, Any] = "gradcam",
    layer: str | None = None, seed: int = 0, out: str | Path | None = None, engine: Engine | str = "local",
    progress: Told | None = None,
) -> Table:  # fmt: skip
    """Measure upsamplers on pictures: one row per picture, upsampler and metric; of a grid: per model and source, too.

    Args:
        upsamplers: names, groups, `Upsampler` values or pairs of a name and `Settings`; see `usu.bench.contenders`.
        pictures: `Sample` values or images (C, H, W); or several datasets by their names.
        model: an ``nn.Module``, for coarse maps and gradients; what `usu.models.load` returns; a `usu.bench.Network`;
            or several by their names.
        metrics: names (``"all"``: every one) or `Metric` values; None is `DEFAULT_METRICS`. Those against an outline
            are left out for pictures that have none.
        evaluations: what every upsampler may spend that asks the model; those given as `Settings` have their own, and
            their own seed.
        forward: the same model for all other passes, such as a faster ONNX export, or ``"auto"``, ``"onnx"``; None is
            ``model``.
        source: of the coarse maps: see `usu.explain`, or a function (model, image, target, layer) -> `CoarseMap`; or
            several. Segment scores are computed once for all of them.
        layer: where it looks.
        seed: of everything random but the noise fill; the numbers do not depend on order or on what else is measured.
        out: a folder where rows are kept. What is there already is not computed again; rows of another model, picture,
            upsampler or metric of the same name are refused.
        engine: ``"local"``, ``"ray"``, or `usu.bench.Local` and `usu.bench.Ray` with their settings.
        progress: called with the picture's name, the units done and in all.

    Guarantees:
        The same table, bit for bit in its printed form, whether or not it was interrupted, by any engine and any number
        of workers. A picture that fails is in ``failures`` with its reason, and costs the others nothing; so is an
        upsampler or a metric that fails on one.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, stride=2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    >>> table = evaluate(["nearest", "bilinear"], [torch.rand(1, 9, 9)], net, ["mass-error", "half-deletion"])
    >>> [(row.upsampler, row.metric, row.metric_evaluations) for row in table.rows]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('nearest', 'mass-error', 0), ('nearest', 'half-deletion', 2),
     ('bilinear', 'mass-error', 0), ('bilinear', 'half-deletion', 2)]
    """
    many = pictures if isinstance(pictures, Mapping) else {"": pictures}
    models = model if isinstance(model, Mapping) else {"": model}
    grid = UnitGrid(
        {name: as_samples(one) for name, one in many.items()},
        {name: network_of(one, forward, layer) for name, one in models.items()},
        sources_of(source),
        tuple(contenders(upsamplers, evaluations=evaluations, seed=seed)),
        tuple(asked_metrics(metrics)),
        seed,
    )
    if not isinstance(engine, (Local, Ray)):
        check.choice("engine", engine, ("local", "ray"))
        engine = Local() if engine == "local" else Ray()
    rows: dict[tuple[str, ...], Row] = {}
    failures: list[Failure] = []
    with nullcontext() if out is None else Store(out, write=True) as store:
        for text in () if store is None else store.damage:
            warnings.warn(f"{text} It is computed anew.", UsuWarning, stacklevel=2)
        for _, outcome in run(grid, store, engine, progress):
            failures += outcome.failures
            rows |= {} if store is not None else {row.key: row for row in outcome.rows}
        if store is not None:
            rows = {row.key: row for group in store.groups() for row in store.rows(group)}
    wanted = [(u.dataset, u.model, u.sample.name, *key) for u in grid.units() for key in u.todo]
    return Table(tuple(rows[key] for key in wanted if key in rows), {one.name: one.sentence for one in failures})


def run(
    grid: UnitGrid, store: Store | None, engine: Engine, progress: Told | None = None
) -> Iterator[tuple[Unit, Outcome]]:
    """Compute what the store does not have yet; each outcome is in the store, and forgotten, before the next one."""
    grid = replace(grid, networks={name: _settled(network, grid) for name, network in grid.networks.items()})
    total = done = 0
    for unit in grid.units():  # all that is there must be ours before anything is computed
        total += 1
        done += not grid.left(store, unit).todo
    if store is not None:
        known = store.ingredients()
        counts = {name: str(max(count, int(known.get(name, 0)))) for name, count in grid.planned().items()}
        store.register({name: one for name, one in grid.ingredients().items() if one is not None} | counts)
    if progress is not None:
        progress("", done, total)
    todo = (left for left in (grid.left(store, unit) for unit in grid.units()) if left.todo)
    for unit, outcome in engine.run(grid, todo):
        if store is not None:
            identity = grid.identities(unit)
            kept = [(row, identity(row.key[3:])[0] or "unknown") for row in outcome.rows]
            store.keep(kept, outcome.failures)
        done += 1
        if progress is not None:
            progress(unit.sample.name, done, total)
        yield unit, outcome


def network_of(model: Any, forward: Any = None, layer: str | None = None) -> Network:
    """A model, or what was loaded, as one of the grid."""
    if isinstance(forward, str):
        check.choice("forward", forward, RUNTIMES)
    if isinstance(model, Network):
        return model
    if isinstance(model, Loaded):
        return Network(model.model, forward, layer or model.layer, model)
    return Network(model, forward, layer)


def sources_of(source: Any) -> dict[str, str | Source]:
    """By their names; one alone has none."""
    if isinstance(source, Mapping):
        return dict(source)
    if callable(source):
        return {"": source}
    if isinstance(source, str):
        return {"": source_named(source)}
    return {name: source_named(name) for name in source}


def source_named(name: str) -> str | Source:
    """One of ours by its name, ``pytorch_grad_cam:XGradCAM``, or a user's ``file.py:function``."""
    way, colon, own = name.rpartition(":")
    if way == "pytorch_grad_cam":
        from usu.integrations.pytorch_grad_cam import source

        return source(own)
    if colon and way.endswith(".py"):
        from usu.models.files import function_of

        return function_of(name)
    check.choice("source", name, SOURCES)
    return name


def _settled(network: Network, grid: UnitGrid) -> Network:
    """``auto`` is decided once, on the first picture that can be opened, so that every worker has the same."""
    if network.forward != "auto":
        return network
    for sample in (sample for samples in grid.datasets.values() for sample in samples[:5]):
        with suppress(OSError, ValueError):
            image = torch.as_tensor(sample.open(network.loaded).image)
            onnx = runtime(network.model, image, "auto").name == "onnx" and isinstance(network.model, nn.Module)
            return replace(network, forward="onnx" if onnx else None)
    return replace(network, forward=None)


def asked_metrics(metrics: Sequence[str | Metric] | None) -> list[Metric]:
    """Each once, whatever it was called by."""
    named = DEFAULT_METRICS if metrics is None else metrics
    if isinstance(named, str) or not isinstance(named, Iterable):
        named = [named]  # what is no list is refused as if it stood in one
    found: dict[str, Metric] = {}
    for one in (one for name in named for one in (METRICS if name == "all" else [name])):
        metric = metric_named(one) if isinstance(one, str) else one
        if not isinstance(metric, Metric):
            raise TypeError(f"`metrics` must be names or usu.metrics.Metric values; got {type(one).__name__}.")
        if found.setdefault(metric.name, metric) != metric:
            raise ValueError(f"`metrics` must have different names; got two called {metric.name!r}.")
    if not found:
        raise ValueError("`metrics` must name at least one; got none. Leave it out for the usual ones.")
    return list(found.values())
