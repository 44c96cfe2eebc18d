"""A plan: the grid as a TOML file, with what a person would otherwise type again and again."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from usu.bench.contenders import Guided, ScoresAlone, contenders
from usu.bench.datasets import KINDS, PictureFile, spread
from usu.bench.evaluate import asked_metrics, source_named
from usu.bench.units import Network, UnitGrid
from usu.models import load

#: What a plan, a dataset and a model may say.
_PLAN = {
    "title", "datasets", "models", "sources", "upsamplers", "metrics", "evaluations", "seed", "against",
}  # fmt: skip
_DATASET = {"kind", "path", "truth", "labels", "split", "target", "first", "every", "limit"}
_MODEL = {"load", "weights", "layer", "runtime", "datasets", "limit", "device"}


@dataclass(frozen=True, eq=False)
class Plan:
    """What a file asks for."""

    title: str
    grid: UnitGrid
    #: The upsampler that the report compares the others with.
    against: str = "bilinear"


def read_plan(path: str | Path) -> Plan:
    """The grid that a TOML file describes; ``${NAME}`` in it is an environment variable."""
    file = Path(path)
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        told = _filled(tomllib.loads(file.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"`plan` must be a TOML file; got {file} ({error}).") from None
    _known(told, _PLAN, str(file))
    for name in ("datasets", "models", "upsamplers"):
        if not told.get(name):
            raise ValueError(f"`plan` must have {name}; got {file}, which has none.")
    seed = told.get("seed", 0)
    grid = UnitGrid(
        {name: _dataset(name, one) for name, one in told["datasets"].items()},
        {name: _network(name, one, told["datasets"]) for name, one in told["models"].items()},
        {short(name): source_named(name) for name in told.get("sources", ["gradcam"])},
        tuple(contenders(told["upsamplers"], evaluations=told.get("evaluations", 300), seed=seed)),
        tuple(asked_metrics(told.get("metrics"))),
        seed,
    )
    return Plan(told.get("title", file.stem), grid, told.get("against", "bilinear"))


def short(source: str) -> str:
    """A source's name in tables: what comes after the package or the file.

    >>> short("pytorch_grad_cam:XGradCAM"), short("gradcam")
    ('XGradCAM', 'gradcam')
    """
    return source.rpartition(":")[2]


def narrowed(
    grid: UnitGrid, *, limit: int | None = None, part: tuple[int, int] = (1, 1), models: Sequence[str] = ()
) -> UnitGrid:
    """Fewer pictures a model, the n-th of so many parts of them, or some of the models."""
    for name in models:
        if name not in grid.networks:
            raise ValueError(f"`--only` must name models of the plan; got {name!r}. It has {', '.join(grid.networks)}.")
    networks = {
        name: replace(one, limit=min(limit or one.limit or 0, one.limit or limit or 0) or None)
        for name, one in grid.networks.items()
        if not models or name in models
    }
    return replace(grid, networks=networks, part=part)


def probe(grid: UnitGrid) -> dict[str, float]:
    """Model -> seconds a unit takes, at most: its first picture with the first source, times the sources."""
    first = replace(grid, sources=dict([*grid.sources.items()][:1]))
    found: dict[str, float] = {}
    for unit in first.units():
        if unit.model not in found:
            start = time.perf_counter()
            first.compute(unit)
            found[unit.model] = (time.perf_counter() - start) * len(grid.sources)
    return found


def evaluations_of(grid: UnitGrid) -> int:
    """Pictures passed through the models, at most: nothing shared but what sources share."""
    asking = [one.settings for one in grid.rivals if isinstance(one, (Guided, ScoresAlone))]
    scored = sum(one.limit or one.parts * 4 for one in asking if one.scoring != "none")
    # the variants of infidelity share their answers
    counts = {one.name.removesuffix("-matched").removesuffix("-raw"): one.evaluations for one in grid.metrics}
    once = sum(count for name, count in counts.items() if name.startswith("infidelity"))
    each = sum(counts.values()) - once
    return (scored + once + each * len(grid.rivals) * len(grid.sources)) * sum(1 for _ in grid.units())


def _dataset(name: str, told: Mapping[str, Any]) -> list[PictureFile]:
    _known(told, _DATASET, f"datasets.{name}")
    kind = told.get("kind", "folder")
    if kind not in KINDS or "path" not in told:
        raise ValueError(f"`datasets.{name}` must have a path and a kind of {', '.join(KINDS)}; got {kind!r}.")
    options = {key: told[key] for key in ("truth", "labels", "split") if key in told}
    try:
        found = KINDS[kind](told["path"], **options)
    except TypeError:
        raise ValueError(f"`datasets.{name}` must say what {kind} knows; got {', '.join(options)}.") from None
    found = spread(found[told.get("first", 0) :: told.get("every", 1)], told.get("limit"))
    return found if told.get("target") == "label" else [replace(one, target=None) for one in found]


def _network(name: str, told: Mapping[str, Any], datasets: Mapping[str, Any]) -> Network:
    _known(told, _MODEL, f"models.{name}")
    loaded = load(told.get("load", name), weights=told.get("weights"), device=told.get("device", "cpu"))
    own = tuple(told["datasets"]) if "datasets" in told else None
    for dataset in own or ():
        if dataset not in datasets:
            raise ValueError(f"`models.{name}.datasets` must name datasets of the plan; got {dataset!r}.")
    return Network(loaded.model, told.get("runtime"), told.get("layer", loaded.layer), loaded, own, told.get("limit"))


def _known(told: Mapping[str, Any], words: set[str], where: str) -> None:
    for word in told:
        if word not in words:
            known = ", ".join(sorted(words))
            raise ValueError(f"`plan` must say what is known; got {word!r} in {where}. Choose from {known}.")


def _filled(value: Any) -> Any:
    """``${NAME}`` as the environment has it."""
    if isinstance(value, dict):
        return {key: _filled(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one) for one in value]

    def found(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ValueError(f"`plan` must name environment variables that are set; got {match[1]}, which is not.")
        return os.environ[match[1]]

    return re.sub(r"\$\{(\w+)\}", found, value) if isinstance(value, str) else value
