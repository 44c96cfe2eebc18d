"""What a plan would take on all pictures of large data sets: counted from the plan, and from a measured store."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import torch
from experiments.pages import prose
from torch import nn

from usu.bench import Sample, contenders
from usu.bench.evaluate import asked_metrics, network_of
from usu.bench.plan import evaluations_of
from usu.bench.units import UnitGrid

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The whole of it; and passes a second of a GPU, which are an example.
PICTURES, NETWORKS, PASSES = 50_000, 9, 2_000


def one_unit(plan: Path) -> UnitGrid:
    """The plan with one small picture and one small network."""
    asked = tomllib.loads(plan.read_text(encoding="utf-8"))
    network = network_of(nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), layer="0")
    samples, sources = [Sample("one", torch.zeros(3, 8, 8))], {name: name for name in asked["sources"]}
    rivals = tuple(contenders(asked["upsamplers"], evaluations=asked["evaluations"]))
    return UnitGrid({"": samples}, {"": network}, sources, rivals, tuple(asked_metrics(asked["metrics"])))


def whole(plan: Path, store: Path) -> str:
    with store.open(encoding="utf-8", newline="") as file:
        measured = {row["what"]: float(row["value"]) for row in csv.DictReader(file)}
    grid = one_unit(plan)
    units, each = PICTURES * NETWORKS, evaluations_of(grid)
    rows = units * sum(len(unit.todo) for unit in grid.units())
    passes = units * each
    tried, opened = measured["rows"], measured["seconds until a run of so many rows goes on"]
    return prose(
        f"{PICTURES:,} pictures, {NETWORKS} networks and data sets, {len(grid.sources)} sources, as in the "
        "cross-method plan. Counted, not run:",
        "",
        f"- **Units**: {units:,} (a picture under a model), {rows / 1e6:.0f} million rows, at most {each:,} "
        f"evaluations each (what `usu evaluate --dry-run` counts), {passes:.1e} in all.",
        f"- **Bytes**: {measured['bytes a row']:.0f} a row in a store of {tried:,.0f} rows, so "
        f"{rows * measured['bytes a row'] / 1e9:.0f} GB; weights travel once to each worker, pictures once.",
        f"- **Hours of a GPU**: {passes / 3600 / PASSES:.0f} at {PASSES:,} passes a second, which is an example and "
        "not a measurement. Segments, redistribution and curves run on the CPU beside it.",
        "- **Where it breaks first**: opening the store. Every row is verified when a run goes on: "
        f"{tried:,.0f} rows took {opened:.1f} seconds, so all would take {rows / tried * opened / 3600:.1f} hours. "
        "A store for each network and data set is the way around it. Writing is not the limit: "
        f"{measured['units written a second']:.0f} units a second were committed, one by one. Next is the report, "
        "which holds the rows of all groups in memory.",
    )
