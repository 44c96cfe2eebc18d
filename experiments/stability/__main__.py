"""The command; see the package."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

import torch
from experiments.pages import filled
from experiments.stability.cases import NETWORKS, files_of, network
from experiments.stability.sentences import sentences
from experiments.stability.steps import STEPS, measured
from experiments.stability.tables import tables


def measure(asked: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    folder = "pets" if asked.step == "outlines" else NETWORKS[asked.network][0]
    asked.run.mkdir(parents=True, exist_ok=True)
    path = asked.run / f"{asked.step}-{asked.network}.csv"
    rows = rows_of(path)
    done, loaded = {row["picture"] for row in rows}, network(asked.network, asked.data)
    for file in files_of(asked.data / folder)[: asked.pictures]:
        if file.stem in done:
            continue
        row = measured(asked.step, loaded, file)
        rows.append({"picture": file.stem, **{key: format(value, ".6g") for key, value in row.items()}})
        heads = list(dict.fromkeys(key for one in rows for key in one))
        text = io.StringIO()
        writer = csv.DictWriter(text, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(text.getvalue(), encoding="utf-8")
        print(asked.step, asked.network, file.stem, row.get("soft iou"), flush=True)


def rows_of(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{key: value for key, value in row.items() if value} for row in csv.DictReader(file)]


def page(asked: argparse.Namespace) -> None:
    """Every block that one of the pages has a place for."""
    made = blocks(asked.run)
    for path in asked.pages:
        text = path.read_text(encoding="utf-8")
        placed = {name: block for name, block in made.items() if f"<!-- measured: {name} -->" in text}
        path.write_text(filled(text, placed), encoding="utf-8")


def blocks(run: Path) -> dict[str, str]:
    """Tables and sentences by their names."""
    every = {path.stem: rows_of(path) for path in sorted(run.glob("*.csv"))}
    return {**tables(every), **sentences(every)}


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True, dest="step")
    for step in STEPS:
        one = commands.add_parser(step)
        one.add_argument("data", type=Path)
        one.add_argument("network", choices=NETWORKS)
        one.add_argument("run", type=Path)
        one.add_argument("--pictures", type=int, default=40)
        one.set_defaults(work=measure)
    two = commands.add_parser("page")
    two.add_argument("run", type=Path)
    two.add_argument("pages", type=Path, nargs="+")
    two.set_defaults(work=page)
    asked = parser.parse_args()
    asked.work(asked)


if __name__ == "__main__":
    main()
