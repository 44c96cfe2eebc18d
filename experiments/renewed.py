"""What was measured again in the place of what stood there, in a committed CSV.

python -m experiments.renewed FRESH.csv COMMITTED.csv KEYS   # such as picture,upsampler
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

from experiments.costs import rows_of


def renewed(path: Path, fresh: Path, keys: Sequence[str]) -> None:
    """Lines whose keys are in both take the columns that ``fresh`` has; lines that are new come last."""
    lines = {tuple(line[key] for key in keys): line for line in rows_of(path)}
    for line in rows_of(fresh):
        key = tuple(line[key] for key in keys)
        lines[key] = {**lines.get(key, {}), **line}
    heads = dict.fromkeys(head for line in lines.values() for head in line)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*heads], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fresh", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("keys", type=lambda text: text.split(","))
    asked = parser.parse_args()
    renewed(asked.path, asked.fresh, asked.keys)


if __name__ == "__main__":
    main()
