"""A report as text, Markdown and LaTeX: the same rows and numbers, as many columns as the page has room for."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from usu.stats.resampling import Interval

if TYPE_CHECKING:
    from usu.stats.compare import Comparison, Difference

WIDTH = 120
_MARK = {"better": "+", "worse": "-", "undecided": ""}


def text(comparisons: Sequence[Comparison]) -> str:
    """For a terminal: the columns one reads first; the median gives way to long names."""
    blocks = [textwrap.fill(_legend(comparisons[0]), WIDTH)]
    for comparison in comparisons:
        columns = ["n", "mean", "median", "shift", "win", "d_z", "Bonf.", "Holm"]
        for shown in (columns, [c for c in columns if c != "median"]):
            heads, *body = _cells(comparison, shown)
            widths = [max(map(len, column)) for column in zip(heads, *body, strict=True)]
            room = WIDTH - 2 - sum(widths[2:]) - 2 * len(shown)
            if room >= widths[1]:
                break
        name_width = max(min(room, widths[1]), len(heads[1]))
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
        lines = ["| " + " | ".join(map(_plain_markdown, line)) + " |" for line in _cells(comparison, columns)]
        lines.insert(1, "|:-:|:--|" + "--:|" * len(columns))
        blocks.append("\n".join([f"**{_plain_markdown(_title(comparison))}**\n", *lines]))
    return "\n\n".join(blocks) + "\n"


def latex(comparisons: Sequence[Comparison]) -> str:
    """One ``table`` per metric."""
    columns = ("n", "mean", "median", "shift", "win", "d_z", "d", "r", "Bonf.", "Holm")
    blocks = [textwrap.fill(_legend(comparisons[0]), WIDTH, initial_indent="% ", subsequent_indent="% ")]
    for comparison in comparisons:
        heads, *body = _cells(comparison, columns)
        lines = [[_math(mark), _plain_latex(name), *map(_math, rest)] for mark, name, *rest in body]
        blocks += [
            "\\begin{table}\n\\centering\\footnotesize\\setlength{\\tabcolsep}{3pt}",
            rf"\caption{{{_plain_latex(_title(comparison))}. {_plain_latex(_tested(comparison))}}}",
            rf"\begin{{tabular}}{{@{{}}cl{'r' * len(columns)}@{{}}}}" + "\n\\toprule",
            " & ".join(map(_heading, heads)) + " \\\\\n\\midrule",
            *(" & ".join(line) + r" \\" for line in lines),
            "\\bottomrule\n\\end{tabular}\n\\end{table}",
        ]
    return "\n".join(blocks) + "\n"


def _cells(comparison: Comparison, columns: Sequence[str]) -> list[list[str]]:
    """Headings, then rows: mark, name, then the columns asked for. The reference's own row comes first."""
    c = comparison
    level, step = _levels(c)[1], _steps(c)[1]
    known: dict[str, Callable[[Difference], str]] = {
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
    heads = [f"{name} [{_percent(c.confidence)}]" if name in with_interval else name for name in columns]
    own = {"n": str(c.reference_n), "mean": level(c.reference_mean), "median": level(c.reference_median)}
    found = [["", "upsampler", *heads], ["", _one_line(c.against), *(own.get(name, "") for name in columns)]]
    for row in c.ranked():
        cells = [known[name](row) if row.measured or name == "n" else "-" for name in columns]
        found.append([_MARK[row.verdict], _one_line(row.upsampler), *cells])
    return found


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


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}"}
_SPECIAL |= {">": r"\textgreater{}", "|": r"\textbar{}"} | {c: "\\" + c for c in "&%$#_{}"}


def _plain_latex(name: str) -> str:
    return "".join(_SPECIAL.get(c, c) for c in name)


def _heading(head: str) -> str:
    """``n``, ``d_z``, ``d`` and ``r`` are symbols, the rest is words."""
    first, space, rest = head.partition(" ")
    return (f"${first}$" if first in ("n", "d_z", "d", "r") else _plain_latex(first)) + space + _plain_latex(rest)


def _math(cell: str) -> str:
    """Numbers as formulas, so that minus signs, powers of ten and infinities look right."""
    powers = re.sub(r"e-0*(\d+)", r"\\cdot10^{-\1}", cell)
    return cell and f"${powers.replace('inf', chr(92) + 'infty').replace(' [', chr(92) + ' [')}$"
