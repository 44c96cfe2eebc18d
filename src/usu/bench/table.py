"""The tidy table: one row per picture, upsampler and metric."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from usu.errors import MissingExtraError
from usu.metrics.catalogue import FILLS
from usu.results.folder import written
from usu.stats import Comparison
from usu.stats.tables import cells, legend, title
from usu.types import NDArray


@dataclass(frozen=True)
class Row:
    """One number, where it comes from and what it cost."""

    picture: str
    target: int
    upsampler: str
    metric: str
    #: NaN where the metric does not apply, such as an outline no cell straddles.
    value: float
    #: Pictures passed through the model to make the map, and to measure it; each as if nothing had been shared.
    evaluations: int
    metric_evaluations: int
    seconds: float = math.nan
    metric_seconds: float = math.nan
    #: Of a grid; empty where there was one of them, and it had no name.
    dataset: str = ""
    model: str = ""
    source: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, str, str]:
        """What makes it unique."""
        return self.dataset, self.model, self.picture, self.source, self.upsampler, self.metric


#: Clocks differ from run to run; everything else is the same each time and is compared byte for byte.
TIMES = ("seconds", "metric_seconds")
GRID = ("dataset", "model", "source")
COLUMNS = tuple(field.name for field in fields(Row) if field.name not in (*TIMES, *GRID))


@dataclass(frozen=True, eq=False)
class Table:
    """Rows in a fixed order, and what failed with the reason why."""

    rows: tuple[Row, ...]
    #: Picture -> one sentence; or ``picture, upsampler`` and ``picture, upsampler, metric`` where the rest went well.
    failures: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def upsamplers(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(row.upsampler for row in self.rows))

    @property
    def metrics(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(row.metric for row in self.rows))

    def values(self, metric: str) -> dict[str, NDArray]:
        """One metric: upsampler -> numbers over the same pictures (of a grid: and models and sources), or NaN.

        >>> rows = [Row(p, 0, u, "iou", v, 0, 0) for p, u, v in (("a", "x", 1.0), ("a", "y", 2.0), ("b", "y", 3.0))]
        >>> Table(tuple(rows), {}).values("iou")
        {'x': array([ 1., nan]), 'y': array([2., 3.])}
        """
        rows = [row for row in self.rows if row.metric == metric]
        if not rows:
            raise ValueError(f"`metric` must be in the table; got {metric!r}. It holds {', '.join(self.metrics)}.")
        place = {name: number for number, name in enumerate(dict.fromkeys(row.key[:4] for row in rows))}
        found = {name: np.full(len(place), np.nan) for name in self.upsamplers}
        for row in rows:
            found[row.upsampler][place[row.key[:4]]] = row.value
        return found

    def fill_matrices(self) -> str:
        """As CSV: means over the pictures by the fill of the scorer (rows) and of the evaluator.

        Of every upsampler and metric that the table has with every fill, as in ``cell:blur``; nothing if it has none.
        """
        whole = []
        for names in (self.upsamplers, self.metrics):
            plain = dict.fromkeys(name.rpartition(":")[0] for name in names)
            whole.append([name for name in plain if all(f"{name}:{fill}" in names for fill in FILLS)])
        lines = [f"upsampler,metric,scored with,{','.join(f'judged with {fill}' for fill in FILLS)}"]
        for upsampler, metric in product(*whole):
            judged = [self.values(f"{metric}:{fill}") for fill in FILLS]
            for fill in FILLS:
                means = (np.nanmean(values[f"{upsampler}:{fill}"]) for values in judged)
                lines.append(f"{upsampler},{metric},{fill},{','.join(format(mean, '.9g') for mean in means)}")
        return "\n".join([*lines, ""]) if len(lines) > 1 else ""

    def csv(self, columns: Sequence[str] = COLUMNS) -> str:
        """Comma-separated values with a header; numbers with nine digits, empty where there is none."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        columns = (*self._grid, *columns)
        writer.writerow(columns)
        writer.writerows([cell_text(getattr(row, column)) for column in columns] for row in self.rows)
        return text.getvalue()

    @property
    def _grid(self) -> tuple[str, ...]:
        """The columns of a grid that say something."""
        return tuple(name for name in GRID if any(getattr(row, name) for row in self.rows))

    def to_pandas(self) -> Any:
        """As a pandas DataFrame, times and all (needs the extra ``bench``)."""
        return _pandas().DataFrame(map(vars, self.rows), columns=[*self._grid, *COLUMNS, *TIMES])

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``table.csv``, ``seconds.csv`` and ``table.parquet`` (needs the extra ``bench``), each as a whole.

        The first is the same however often a run was interrupted; times are in the others.
        """
        if find_spec("pyarrow") is None:
            raise MissingExtraError("pyarrow", "bench", "A table in Parquet")
        home = Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        return [
            written(home / "table.csv", self.csv().encode()),
            written(home / "seconds.csv", self.csv(("picture", "upsampler", "metric", *TIMES)).encode()),
            written(home / "table.parquet", self.to_pandas().to_parquet(engine="pyarrow", index=False)),
        ]


def read_table(path: str | Path) -> Table:
    """A table from its ``table.csv``; times stay behind, in ``seconds.csv``."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        named = tuple(reader.fieldnames or ())
        if tuple(name for name in named if name not in GRID) != COLUMNS:
            wanted = ", ".join(COLUMNS)
            raise ValueError(f"`path` must be a table with the columns {wanted}; got {', '.join(named)} in {path}.")
        rows = []
        for record in reader:
            texts: dict[str, Any] = {name: text.removeprefix("'") for name, text in record.items()}
            whole = {name: int(texts[name]) for name in ("target", "evaluations", "metric_evaluations")}
            rows.append(Row(**{**texts, **whole, "value": float(texts["value"] or "nan")}))
        return Table(tuple(rows), {})


def latex(comparisons: Sequence[Comparison]) -> str:
    """A report as LaTeX, one ``tabular`` per metric, the best first (needs the extra ``bench``, and booktabs)."""
    columns = ("n", "mean", "median", "shift", "win", "d_z", "d", "r", "Bonf.", "Holm")
    blocks = [textwrap.fill(legend(comparisons[0]), 120, initial_indent="% ", subsequent_indent="% ")]
    for comparison in comparisons:
        heads, *body = cells(comparison, columns)
        frame = _pandas().DataFrame(body, columns=heads)
        text = frame.to_latex(index=False, escape=True, column_format="cl" + "r" * len(columns))
        blocks.append(f"\n% {title(comparison)}\n{text.rstrip()}")
    return "\n".join(blocks) + "\n"


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "bench", "A table as a DataFrame") from None
    return pandas


def cell_text(value: object) -> object:
    """As it stands in a CSV: nothing for NaN; an apostrophe before a name that a spreadsheet would take for a formula.

    >>> cell_text("=1+1"), cell_text("cat"), cell_text(0.5)
    ("'=1+1", 'cat', '0.5')
    """
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r", "'")) else value
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else format(value, ".9g")
