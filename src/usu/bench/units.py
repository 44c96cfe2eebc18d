"""What is computed: a grid of datasets x models x sources x upsamplers x metrics, one unit per picture and model."""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from platform import python_version_tuple
from typing import Any

import numpy as np
import torch

from usu import _checks as check
from usu.bench.contenders import Contender, Made, reseeded
from usu.bench.datasets import Openable, Sample, spread
from usu.bench.scene import Scene, Source, mapped, scene_of, with_map
from usu.bench.store import Failure, Store
from usu.bench.table import Row
from usu.errors import UsuError
from usu.forward import Model
from usu.forward.digest import described, digest, is_known
from usu.forward.engine import RuntimeName
from usu.forward.onnx import OnnxModel
from usu.forward.runtime import runtime
from usu.metrics.catalogue import Case, Metric, by_name
from usu.metrics.curves import irof, monotonicity_correlation, pixel_flipping
from usu.metrics.maps import Measured
from usu.models import Loaded
from usu.pipeline.certainty import mean_iou
from usu.score.groups import few_threads
from usu.types import NDArray

#: Packages whose numbers are in the rows.
_PACKAGES = ("usu-xai", "torch", "numpy", "scipy", "scikit-image", "pillow", "onnxruntime", "grad-cam")


@dataclass(frozen=True, eq=False)
class Network:
    """A model of the grid.

    Args:
        model: an ``nn.Module``, for coarse maps and gradients; or a callable where maps come from elsewhere.
        forward: the same for all other passes, or a runtime's name (see `usu.forward.runtime`); None is ``model``.
        layer: where sources look.
        loaded: how picture files are prepared.
        datasets: names of those it is asked about; None is all.
        limit: of pictures per dataset, spread evenly.
    """

    model: Model
    forward: Model | RuntimeName | None = None
    layer: str | None = None
    loaded: Loaded | None = None
    datasets: tuple[str, ...] | None = None
    limit: int | None = None

    def passes(self, sample: Sample) -> Model:
        """Who is asked for scores and by metrics; an ONNX session in one thread, as everything in a unit."""
        found: Model
        if isinstance(self.forward, str):
            found = runtime(self.model, torch.as_tensor(sample.image), self.forward).model
        else:
            found = self.model if self.forward is None else self.forward
        return replace(found, workers=1) if isinstance(found, OnnxModel) else found


@dataclass(frozen=True, eq=False)
class Unit:
    """A picture under a model, and what is still to be done there: (source, upsampler, metric)."""

    dataset: str
    model: str
    sample: Openable
    todo: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Outcome:
    """What a unit gave."""

    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]


@dataclass(frozen=True, eq=False)
class UnitGrid:
    """The whole question; everything but the pictures travels to every worker once."""

    datasets: Mapping[str, Sequence[Openable]]
    networks: Mapping[str, Network]
    sources: Mapping[str, str | Source]
    rivals: tuple[Contender, ...]
    metrics: tuple[Metric, ...]
    seed: int = 0
    #: (2, 3): every third picture, from the second on.
    part: tuple[int, int] = (1, 1)
    _digests: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.whole_number("seed", self.seed, most=2**63 - 1)
        for name, many in self.datasets.items() if len(self.sources) > 1 else ():
            if any(isinstance(one, Sample) and one.coarse is not None for one in many):
                got = f"{len(self.sources)}: {name}"
                raise ValueError(f"`source` must be one where samples bring their own maps; got {got}.")

    def units(self) -> Iterator[Unit]:
        """All of them: model by model, so that a worker keeps what it has loaded."""
        rivals = [rival.name for rival in self.rivals]
        for dataset, model, samples in self._pairs():
            for sample in samples[self.part[0] - 1 :: self.part[1]]:
                metrics = [metric.name for metric in self.metrics if sample.truth is not None or not metric.needs_truth]
                yield Unit(dataset, model, sample, tuple(product(self.sources, rivals, metrics)))

    def planned(self) -> dict[str, int]:
        """Pictures of each dataset and model, of all parts: they come into one store."""
        return {f"planned.{dataset}.{model}": len(samples) for dataset, model, samples in self._pairs()}

    def _pairs(self) -> Iterator[tuple[str, str, Sequence[Openable]]]:
        for model, network in self.networks.items():
            for dataset, samples in self.datasets.items():
                if network.datasets is None or dataset in network.datasets:
                    yield dataset, model, spread(samples, network.limit)

    def ingredients(self) -> dict[str, str | None]:
        """Name -> digest of what rows depend on beside their picture; None for what cannot be known by its content."""
        if not self._digests:
            given: dict[str, Any] = {"seed": self.seed, "versions": _versions()}
            given |= {f"dataset.{name}": name for name in self.datasets}
            for name, network in self.networks.items():
                given |= {f"model.{name}": [network.model, network.layer], f"forward.{name}": network.forward}
            given |= {f"source.{name}": source for name, source in self.sources.items()}
            given |= {f"upsampler.{rival.name}": rival for rival in self.rivals}
            given |= {f"metric.{metric.name}": _told(metric) for metric in self.metrics}
            for name, one in given.items():
                found = described(one)
                self._digests[name] = digest(json.dumps(found, sort_keys=True).encode()) if is_known(found) else None
        return self._digests

    def identities(self, unit: Unit) -> Callable[[tuple[str, str, str]], tuple[str | None, dict[str, str | None]]]:
        """For (source, upsampler, metric) of a unit: the digest of all a row depends on, and of each ingredient."""
        every = self.ingredients()
        picture = unit.sample.digest(self.networks[unit.model].loaded)
        names = ("seed", "versions", f"model.{unit.model}", f"forward.{unit.model}")
        common = {f"picture.{unit.sample.name}": picture, **{name: every[name] for name in names}}

        def of(key: tuple[str, str, str]) -> tuple[str | None, dict[str, str | None]]:
            own = [f"{kind}.{name}" for kind, name in zip(("source", "upsampler", "metric"), key, strict=True)]
            found = common | {name: every[name] for name in own}
            whole = None if None in found.values() else digest(json.dumps(found, sort_keys=True).encode())
            return whole, found

        return of

    def left(self, store: Store | None, unit: Unit) -> Unit:
        """What the store does not have yet; what it has must be an answer to the same question."""
        known = {} if store is None else store.known(unit.dataset, unit.model, unit.sample.name)
        done = [key for key in unit.todo if key in known]
        if not done or store is None:
            return unit
        identity = self.identities(unit)
        for key in done:
            expected, parts = identity(key)
            if expected != known[key]:
                raise ValueError(_refusal(store, parts))
        return replace(unit, todo=tuple(key for key in unit.todo if key not in known))

    def compute(self, unit: Unit) -> Outcome:
        """All rows of a unit that can be had, in one thread; what fails costs only itself."""
        with few_threads():
            return _Work(self, unit).done()


class _Work:
    """A unit on its way."""

    def __init__(self, grid: UnitGrid, unit: Unit) -> None:
        self.grid, self.unit = grid, unit
        self.rows: list[Row] = []
        self.failures: list[Failure] = []

    def done(self) -> Outcome:
        scene: Scene | None = None
        for source in dict.fromkeys(source for source, _, _ in self.unit.todo):
            with self._attempt("" if scene is None else source):
                scene = self._scene(source, scene)
                self._measure(scene, source)
            if scene is None:
                break
        return Outcome(tuple(self.rows), tuple(self.failures))

    def _scene(self, source: str, before: Scene | None) -> Scene:
        """The picture, opened once, with the source's map."""
        network, own = self.grid.networks[self.unit.model], self.grid.sources[source]
        if before is not None:
            return with_map(before, mapped(own, network.model, before.image, before.target, network.layer))
        sample = self.unit.sample.open(network.loaded)
        passes = network.passes(sample)
        return scene_of(sample, network.model, passes, source=own, layer=network.layer, seed=self.grid.seed)

    def _measure(self, scene: Scene, source: str) -> None:
        todo = set(self.unit.todo)
        for rival in self.grid.rivals:
            asked = [metric for metric in self.grid.metrics if (source, rival.name, metric.name) in todo]
            if not asked:
                continue
            with self._attempt(source, rival.name):
                made = rival(scene)
                case = scene.case(made.pixel_map)
                for metric in asked:
                    with self._attempt(source, rival.name, metric.name):
                        start, lent = time.perf_counter(), case.lent
                        found = _measured(scene, rival, made, case, metric)
                        taken = time.perf_counter() - start + case.lent - lent
                        value = float(f"{found.value:.9g}")  # the last bit of a sum cannot make two tables differ
                        self.rows.append(Row(
                            scene.name, scene.target, rival.name, metric.name, value, made.evaluations,
                            found.evaluations, made.seconds, taken, self.unit.dataset, self.unit.model, source,
                        ))  # fmt: skip

    @contextmanager
    def _attempt(self, source: str = "", upsampler: str = "", metric: str = "") -> Iterator[None]:
        """A failure costs this and nothing else."""
        try:
            yield
        except Exception as error:
            text = " ".join(str(error).split())
            plain = isinstance(error, (UsuError, ValueError, TypeError, OSError, RuntimeError)) and text
            sentence = text if plain else f"{type(error).__name__}: {text}"
            unit = (self.unit.dataset, self.unit.model, self.unit.sample.name)
            self.failures.append(Failure(*unit, source, upsampler, metric, sentence, traceback.format_exc()))


#: Pixels that count as highest; on pictures of so few pixels they are too few to compare.
_TOP, _SMALL = 0.05, 32 * 32


def _correlation(one: NDArray, other: NDArray) -> float:
    flat = one.ravel(), other.ravel()
    return float(np.corrcoef(*flat)[0, 1]) if np.ptp(flat[0]) > 0 and np.ptp(flat[1]) > 0 else float("nan")


def _top_iou(one: NDArray, other: NDArray) -> float:
    if one.size <= _SMALL:
        return float("nan")
    return mean_iou(torch.stack([torch.from_numpy(one), torch.from_numpy(other)]).double(), share=_TOP)


def _of_two_seeds(case: Case) -> Measured:
    raise TypeError("`case` must hold two maps for a metric that compares seeds; got one.")


#: Of the map and the same with the next seed; NaN for upsamplers that draw nothing.
SEED_METRICS: dict[str, Callable[[NDArray, NDArray], float]] = {"seed-iou": _top_iou, "seed-correlation": _correlation}
#: Metrics of many steps with a number of them, and what they take: a grid of so many rows and columns, so many groups.
_STEPPED: dict[str, Callable[[int], tuple[partial[Measured], int]]] = {
    "irof": lambda steps: (partial(irof, segments=(steps, steps)), steps**2 + 1),
    "pixel-flipping": lambda steps: (partial(pixel_flipping, steps=steps), steps),
    "monotonicity": lambda steps: (partial(monotonicity_correlation, steps=steps), steps + 1),
}


def _stepped(case: Case, metric: partial[Measured]) -> Measured:
    return metric(case.pixel_map, case.image, case.model, case.target, generator=case.dice(metric.func.__name__))


def metric_named(name: str) -> Metric:
    """One of `usu.metrics`, or of those that compare two seeds; ``irof@7`` is IROF on a grid of 7 x 7.

    >>> [metric_named(name).evaluations for name in ("irof@7", "pixel-flipping@8", "monotonicity@8")]
    [50, 8, 9]
    """
    if name in SEED_METRICS:
        return Metric(name, "higher", -1 if name == "seed-correlation" else 0, 1, True, 0, _of_two_seeds)
    plain, at, steps = name.partition("@")
    if not at:
        return by_name(name)
    if plain not in _STEPPED or not steps.isdecimal() or int(steps) < 2:
        raise ValueError(f"`metrics` must have steps as in irof@7, one of {', '.join(_STEPPED)}; got {name!r}.")
    metric, evaluations = _STEPPED[plain](int(steps))
    return replace(by_name(plain), name=name, evaluations=evaluations, measure=partial(_stepped, metric=metric))


def _measured(scene: Scene, rival: Contender, made: Made, case: Case, metric: Metric) -> Measured:
    if metric.name in SEED_METRICS:
        other = reseeded(rival)
        if other is None:
            return Measured(math.nan)
        again = case.of_map.once("other seed", lambda: other(scene))
        return Measured(SEED_METRICS[metric.name](made.pixel_map, again.pixel_map), again.evaluations)
    if metric.needs_truth and scene.truth is not None and not scene.truth.any():
        return Measured(math.nan)  # an outline that was cropped away leaves nothing to measure against
    return metric.measure(case)


def _told(metric: Metric) -> Any:
    """A name says everything about one of ours."""
    with suppress(ValueError):
        if metric_named(metric.name) == metric:
            return metric.name
    return metric


def _versions() -> dict[str, str]:
    found = {"python": ".".join(python_version_tuple()[:2])}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _refusal(store: Store, parts: Mapping[str, str | None]) -> str:
    """Which ingredient of a row is another one now; the picture, where all that the store knows is the same."""
    before = store.ingredients()
    unseen = [name for name, value in parts.items() if value is None]
    changed = [name for name, value in parts.items() if before.get(name, value) != value]
    kind, _, own = (unseen or changed or list(parts))[0].partition(".")
    what = f"{kind} {own!r}" if own else kind
    if unseen:
        return (
            f"`out` must hold rows that can be recognised; got {store.folder}, and nobody can see what its {what} is "
            "made of. Give its class a fingerprint() that says so."
        )
    return f"`out` must hold rows made with the same settings; got {store.folder}, made with another {what}."
