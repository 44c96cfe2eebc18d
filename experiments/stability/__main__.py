"""The command; see the package."""

from __future__ import annotations

import argparse
import csv
import io
from dataclasses import replace
from pathlib import Path

import torch
from experiments.pages import filled
from experiments.stability.cases import NETWORKS, case_of, files_of, network, pixels_of
from experiments.stability.chosen import STEPS as EVEN
from experiments.stability.sentences import sentences
from experiments.stability.steps import STEPS as ODD
from experiments.stability.tables import tables

#: All of them; and those with pictures of their own.
STEPS, ALONE = ODD | EVEN, ("outlines", *EVEN)


def measure(asked: argparse.Namespace) -> None:
    """Picture by picture, all steps of one before the next: the model is asked for what they share once."""
    torch.set_num_threads(1)
    folder = "pets" if asked.steps == ["outlines"] else NETWORKS[asked.network][0]
    asked.run.mkdir(parents=True, exist_ok=True)
    paths = {step: asked.run / f"{step}-{asked.network}.csv" for step in asked.steps}
    rows, loaded = {step: rows_of(path) for step, path in paths.items()}, network(asked.network, asked.data)
    for file in files_of(asked.data / folder, even=asked.steps[0] in EVEN)[: asked.pictures]:
        missing = [step for step in paths if file.stem not in {row["picture"] for row in rows[step]}]
        answers = None if asked.answers is None else asked.answers / asked.network / f"{folder}-{file.stem}.pt"
        case = case_of(loaded, pixels_of(file), answers=answers) if missing else None
        for step in missing:
            row = {} if case is None else STEPS[step](replace(case, only=frozenset(asked.presets)), file)
            rows[step].append({"picture": file.stem, **{key: format(value, ".6g") for key, value in row.items()}})
            paths[step].write_text(text_of(rows[step]), encoding="utf-8")
            print(step, asked.network, file.stem, flush=True)
            if case is not None:
                case.model.keep()


def text_of(rows: list[dict[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for one in rows for key in one)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


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
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("steps", type=steps_of, help=f"with commas between: {', '.join(STEPS)}")
    one.add_argument("data", type=Path)
    one.add_argument("network", choices=NETWORKS)
    one.add_argument("run", type=Path)
    one.add_argument("--pictures", type=int, default=40)
    one.add_argument("--answers", type=Path, help="a folder that keeps the model's answers, for runs after this one")
    one.add_argument("--presets", type=lambda text: text.split(","), default=(), help="only these, commas between")
    one.set_defaults(work=measure)
    two = commands.add_parser("page")
    two.add_argument("run", type=Path)
    two.add_argument("pages", type=Path, nargs="+")
    two.set_defaults(work=page)
    asked = parser.parse_args()
    asked.work(asked)


def steps_of(text: str) -> list[str]:
    steps = text.split(",")
    if not set(steps) <= set(STEPS) or (set(steps) & set(ALONE) and len(steps) > 1):
        raise argparse.ArgumentTypeError(f"steps of the list, {' and '.join(ALONE)} (with pictures of their own) alone")
    return steps


if __name__ == "__main__":
    main()
