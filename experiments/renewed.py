"""What was measured again in the place of what stood there, in a committed CSV.

python -m experiments.renewed FRESH.csv COMMITTED.csv KEYS   # such as picture,upsampler
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path


def renewed(path: Path, fresh: Path, keys: Sequence[str]) -> None:
    """Lines whose keys are in both take the columns that ``fresh`` has; lines that are new come last."""
    lines = {tuple(line[key] for key in keys): line for line in _lines(path)}
    for line in _lines(fresh):
        key = tuple(line[key] for key in keys)
        lines[key] = {**lines.get(key, {}), **line}
    heads = dict.fromkeys(head for line in lines.values() for head in line)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*heads], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines.values())


def _lines(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fresh", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("keys", type=lambda text: text.split(","))
    asked = parser.parse_args()
    renewed(asked.path, asked.fresh, asked.keys)


if __name__ == "__main__":
    main()
