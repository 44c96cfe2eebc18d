"""A report as text, Markdown and LaTeX: the same rows and numbers, as many columns as the page has room for."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from usu.stats.resampling import Interval

if TYPE_CHECKING:
    from usu.stats.comparison import Comparison, Row

WIDTH = 120
_MARK = {"better": "+", "worse": "-", "undecided": ""}


def text(comparisons: Sequence[Comparison]) -> str:
    """For a terminal: the columns one reads first; the median gives way to long names."""
    blocks = ["\n".join(textwrap.wrap(_legend(comparisons[0]), WIDTH))]
    for comparison in comparisons:
        columns = ["n", "mean", "median", "shift", "win", "d_z", "Bonf.", "Holm"]
        heads, body = _cells(comparison, columns)
        room, wanted = _room(heads, body), max(len(line[1]) for line in body)
        if room < wanted:
            columns.remove("median")
            heads, body = _cells(comparison, columns)
            room = _room(heads, body)
        name_width = max(min(room, wanted), len(heads[1]))
        widths = _widths(heads, body)
        lines = [_cut(_title(comparison), WIDTH)]
        for mark, name, *rest in [heads, *body]:
            numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(rest, widths[2:], strict=True))
            lines.append(f"{mark:1} {_cut(name, name_width):<{name_width}}{numbers}".rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def markdown(comparisons: Sequence[Comparison]) -> str:
    """One table per metric with every column."""
    columns = ("n", "mean", "median", "shift", "mean gain", "win rate", "d_z", "d", "r", "p", "Bonf.", "Holm")
    blocks = [_plain_markdown(_legend(comparisons[0]))]
    for comparison in comparisons:
        heads, body = _cells(comparison, columns)
        lines = ["| " + " | ".join(map(_plain_markdown, line)) + " |" for line in [heads, *body]]
        lines.insert(1, "|:-:|:--|" + "--:|" * len(columns))
        blocks.append(f"**{_plain_markdown(_title(comparison))}**\n\n" + "\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def latex(comparisons: Sequence[Comparison]) -> str:
    r"""One ``table`` per metric; ``\usepackage{booktabs}`` in the preamble is all it needs."""
    columns = ("n", "mean", "median", "shift", "win", "d_z", "d", "r", "Bonf.", "Holm")
    blocks = ["\n".join("% " + line for line in textwrap.wrap(_legend(comparisons[0]), WIDTH - 2))]
    for comparison in comparisons:
        heads, body = _cells(comparison, columns)
        lines = [
            r"\begin{table}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{_plain_latex(_title(comparison))}. {_plain_latex(_tested(comparison))}}}",
            rf"\begin{{tabular}}{{@{{}}cl{'r' * len(columns)}@{{}}}}",
            r"\toprule",
            " & ".join(map(_heading, heads)) + r" \\",
            r"\midrule",
        ]
        for mark, name, *rest in body:
            lines.append(" & ".join([_math(mark), _plain_latex(name), *map(_math, rest)]) + r" \\")
        blocks.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]))
    return "\n".join(blocks) + "\n"


def _cells(comparison: Comparison, columns: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: mark, name, then the columns asked for. The reference's own row comes first."""
    level, step = _levels(comparison)[1], _steps(comparison)[1]
    known: dict[str, Callable[[Row], str]] = {
        "n": lambda row: str(row.n),
        "mean": lambda row: level(row.mean),
        "median": lambda row: level(row.median),
        "shift": lambda row: _between(row.shift, step),
        "mean gain": lambda row: _between(row.gain, step),
        "win": lambda row: f"{row.win_rate.estimate:.2f}",
        "win rate": lambda row: _between(row.win_rate, "{:.2f}".format),
        "d_z": lambda row: _between(row.paired_d, "{:+.2f}".format),
        "d": lambda row: f"{row.cohens_d:+.2f}",
        "r": lambda row: f"{row.rank_biserial:+.2f}",
        "p": lambda row: _chance(row.p),
        "Bonf.": lambda row: _chance(row.bonferroni),
        "Holm": lambda row: _chance(row.holm),
    }
    with_interval = ("shift", "mean gain", "win rate", "d_z")
    heads = [f"{c} [{_percent(comparison.confidence)}]" if c in with_interval else c for c in columns]
    own = {
        "n": str(comparison.reference_n),
        "mean": level(comparison.reference_mean),
        "median": level(comparison.reference_median),
    }
    body = [["", comparison.against, *(own.get(c, "") for c in columns)]]
    for row in comparison.ranked():
        cells = [known[c](row) if row.measured or c == "n" else "-" for c in columns]
        body.append([_MARK[row.verdict], row.upsampler, *cells])
    return ["", "upsampler", *heads], body


def _legend(comparison: Comparison) -> str:
    c, percent = comparison, _percent(comparison.confidence)
    return (
        f"Paired with {c.against}, picture by picture; positive = better. shift: Hodges-Lehmann, with the {percent} "
        "interval of the signed-rank test. win: share of pictures won, ties half. d_z: mean gain over its standard "
        f"deviation, with the BCa {percent} interval ({c.resamples:,} resamples, seed {c.seed}). {_tested(c)}"
    )


def _tested(comparison: Comparison) -> str:
    tests = "1 test" if comparison.family == 1 else f"{comparison.family:,} tests"
    return (
        f"Wilcoxon signed-rank (Pratt), two-sided; p after Bonferroni and after Holm over a family of {tests}; "
        f"+ better, - worse at {_percent(1 - comparison.confidence)} after Bonferroni."
    )


def _title(comparison: Comparison) -> str:
    c = comparison
    pictures = "1 picture" if c.pictures == 1 else f"{c.pictures:,} pictures"
    units = ((_levels(c)[0], "mean and median"), (_steps(c)[0], "shift"))
    notes = "".join(f"; {what} in units of {unit:.0e}" for unit, what in units if unit != 1)
    return f"{c.metric} ({c.better} is better), {pictures}{notes}"


def _levels(comparison: Comparison) -> tuple[float, Callable[[float], str]]:
    values = [comparison.reference_mean, comparison.reference_median]
    return _fixed([*values, *(v for row in comparison.rows for v in (row.mean, row.median))], digits=4, sign="")


def _steps(comparison: Comparison) -> tuple[float, Callable[[float], str]]:
    intervals = [interval for row in comparison.rows for interval in (row.shift, row.gain)]
    return _fixed([v for i in intervals for v in (i.estimate, i.low, i.high)], digits=3, sign="+")


def _fixed(values: Sequence[float], *, digits: int, sign: str) -> tuple[float, Callable[[float], str]]:
    """One notation for a column, so many digits of its largest number; and its unit, a power of ten if it needs one."""
    sizes = [abs(v) for v in values if np.isfinite(v)]
    largest = max(sizes, default=0.0)
    power = int(np.floor(np.log10(largest))) if largest > 0 else 0
    far = not -3 <= power <= 4
    places = digits - 1 - (0 if far else power)
    return (10.0**power if far else 1.0), lambda v: f"{v / 10.0**power if far else v:{sign}.{max(0, places)}f}"


def _between(interval: Interval, number: Callable[[float], str]) -> str:
    return f"{number(interval.estimate)} [{number(interval.low)}, {number(interval.high)}]"


def _chance(p: float) -> str:
    return f"{p:.1e}" if 0 < p < 0.001 else f"{p:.3f}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _widths(heads: list[str], body: list[list[str]]) -> list[int]:
    return [max(len(line[i]) for line in [heads, *body]) for i in range(len(heads))]


def _room(heads: list[str], body: list[list[str]]) -> int:
    """Columns left for the name beside a mark and the numbers."""
    numbers = _widths(heads, body)[2:]
    return WIDTH - 2 - sum(numbers) - 2 * len(numbers)


def _cut(name: str, width: int) -> str:
    """Shortened in the middle: names that differ often differ at the end."""
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def _plain_markdown(name: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]$~#])", r"\\\1", " ".join(name.split()))


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}"}
_SPECIAL |= {">": r"\textgreater{}", "|": r"\textbar{}"} | {c: "\\" + c for c in "&%$#_{}"}


def _plain_latex(name: str) -> str:
    return "".join(_SPECIAL.get(c, c) for c in " ".join(name.split()))


def _heading(head: str) -> str:
    """``n``, ``d_z``, ``d`` and ``r`` are symbols, the rest is words."""
    first, space, rest = head.partition(" ")
    return (f"${first}$" if first in ("n", "d_z", "d", "r") else _plain_latex(first)) + space + _plain_latex(rest)


def _math(cell: str) -> str:
    """Numbers as formulas, so that minus signs, powers of ten and infinities look right."""
    if not cell:
        return ""
    powers = re.sub(r"e-0*(\d+)", r"\\cdot10^{-\1}", cell)
    return f"${powers.replace('inf', chr(92) + 'infty').replace(' [', chr(92) + ' [')}$"
