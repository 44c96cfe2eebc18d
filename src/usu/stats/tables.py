"""A report as text and Markdown: the same rows and numbers, as many columns as the page has room for."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from usu.stats.resampling import Interval

if TYPE_CHECKING:
    from usu.stats.compare import Comparison

WIDTH = 120
_MARK = {"better": "+", "worse": "-", "undecided": ""}


def text(comparisons: Sequence[Comparison]) -> str:
    """For a terminal: the columns one reads first; the median gives way to long names."""
    blocks = [textwrap.fill(legend(comparisons[0]), WIDTH)]
    for comparison in comparisons:
        columns = ["n", "mean", "median", "shift", "win", "d_z", "Bonf.", "Holm"]
        for shown in (columns, [c for c in columns if c != "median"]):
            heads, *body = cells(comparison, shown)
            widths = [max(map(len, column)) for column in zip(heads, *body, strict=True)]
            room = WIDTH - 2 - sum(widths[2:]) - 2 * len(shown)
            if room >= widths[1]:
                break
        name_width = max(min(room, widths[1]), len(heads[1]))
        lines = [_cut(title(comparison), WIDTH)]
        for mark, name, *rest in [heads, *body]:
            numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(rest, widths[2:], strict=True))
            lines.append(f"{mark:1} {_cut(name, name_width):<{name_width}}{numbers}".rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def markdown(comparisons: Sequence[Comparison]) -> str:
    """One table per metric with every column."""
    columns = ("n", "mean", "median", "shift", "mean gain", "win rate", "d_z", "d", "r", "p", "Bonf.", "Holm")
    blocks = [_plain_markdown(legend(comparisons[0]))]
    for comparison in comparisons:
        lines = ["| " + " | ".join(map(_plain_markdown, line)) + " |" for line in cells(comparison, columns)]
        lines.insert(1, "|:-:|:--|" + "--:|" * len(columns))
        blocks.append("\n".join([f"**{_plain_markdown(title(comparison))}**\n", *lines]))
    return "\n\n".join(blocks) + "\n"


def cells(comparison: Comparison, columns: Sequence[str]) -> list[list[str]]:
    """Headings, then rows: mark, name, then the columns asked for. The reference's own row comes first."""
    c = comparison
    level, step = _levels(c)[1], _steps(c)[1]
    with_interval = ("shift", "mean gain", "win rate", "d_z")
    heads = [f"{name} [{_percent(c.confidence)}]" if name in with_interval else name for name in columns]
    own = {"n": str(c.reference_n), "mean": level(c.reference_mean), "median": level(c.reference_median)}
    found = [["", "upsampler", *heads], ["", _one_line(c.against), *(own.get(name, "") for name in columns)]]
    for row in c.ranked():
        known = {
            "n": str(row.n),
            "mean": level(row.mean),
            "median": level(row.median),
            "shift": _between(row.shift, step),
            "mean gain": _between(row.gain, step),
            "win": f"{row.win_rate.estimate:.2f}",
            "win rate": _between(row.win_rate, "{:.2f}".format),
            "d_z": _between(row.paired_d, "{:+.2f}".format),
            "d": f"{row.cohens_d:+.2f}",
            "r": f"{row.rank_biserial:+.2f}",
            "p": _chance(row.p),
            "Bonf.": _chance(row.bonferroni),
            "Holm": _chance(row.holm),
        }
        cells = [known[name] if row.measured or name == "n" else "-" for name in columns]
        found.append([_MARK[row.verdict], _one_line(row.upsampler), *cells])
    return found


def legend(comparison: Comparison) -> str:
    """What the columns mean."""
    c, percent = comparison, _percent(comparison.confidence)
    tests = "1 test" if c.family == 1 else f"{c.family:,} tests"
    return (
        f"Paired with {c.against}, picture by picture; positive = better. shift: Hodges-Lehmann, with the {percent} "
        "interval of the signed-rank test. win: share of pictures won, ties half. d_z: mean gain over its standard "
        f"deviation, with the BCa {percent} interval ({c.resamples:,} resamples, seed {c.seed}). Wilcoxon signed-rank "
        f"(Pratt), two-sided; p after Bonferroni and after Holm over a family of {tests}; + better, - worse at "
        f"{_percent(1 - c.confidence)} after Bonferroni."
    )


def title(comparison: Comparison) -> str:
    """The metric, its pictures and the units of its numbers."""
    c = comparison
    pictures = "1 picture" if c.pictures == 1 else f"{c.pictures:,} pictures"
    units = ((_levels(c)[0], "mean and median"), (_steps(c)[0], "shift"))
    notes = "".join(f"; {what} in units of {unit:.0e}" for unit, what in units if unit != 1)
    return _one_line(f"{c.metric} ({c.better} is better), {pictures}{notes}")


def _levels(comparison: Comparison) -> tuple[float, Callable[[float], str]]:
    values = [comparison.reference_mean, comparison.reference_median]
    return _fixed([*values, *(v for row in comparison.rows for v in (row.mean, row.median))], digits=4, sign="")


def _steps(comparison: Comparison) -> tuple[float, Callable[[float], str]]:
    intervals = [interval for row in comparison.rows for interval in (row.shift, row.gain)]
    return _fixed([v for i in intervals for v in (i.estimate, i.low, i.high)], digits=3, sign="+")


def _fixed(values: Sequence[float], *, digits: int, sign: str) -> tuple[float, Callable[[float], str]]:
    """One notation for a column, so many digits of its largest number; and its unit, a power of ten if it needs one."""
    largest = max((abs(v) for v in values if np.isfinite(v)), default=0.0)
    power = int(np.floor(np.log10(largest))) if largest > 0 else 0
    far = not -3 <= power <= 4
    unit, places = (10.0**power, digits - 1) if far else (1.0, max(0, digits - 1 - power))
    return unit, lambda v: f"{v / unit:{sign}.{places}f}"


def _between(interval: Interval, number: Callable[[float], str]) -> str:
    return f"{number(interval.estimate)} [{number(interval.low)}, {number(interval.high)}]"


def _chance(p: float) -> str:
    return f"{p:.1e}" if 0 < p < 0.001 else f"{p:.3f}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _one_line(name: str) -> str:
    return " ".join(name.split())


def _cut(name: str, width: int) -> str:
    """Shortened in the middle: names that differ often differ at the end."""
    end = (width - 1) // 2
    return name if len(name) <= width else f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def _plain_markdown(name: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]$~#])", r"\\\1", name)
