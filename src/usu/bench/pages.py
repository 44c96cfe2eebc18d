"""A report as HTML and as Markdown: the same blocks, drawn in two ways."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TypeAlias


@dataclass(frozen=True)
class Heading:
    """A heading of level 2 or 3."""

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph, or one of a list; ``**words**`` are bold."""

    text: str
    item: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table; ``folded``: shown when it is asked for."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False


@dataclass(frozen=True)
class Frontier:
    """A drawing of what each rival costs and how good it is."""

    name: str
    caption: str
    metric: str
    better: str
    #: Name, evaluations, value.
    points: tuple[tuple[str, float, float], ...]

    def best(self) -> list[tuple[str, float, float]]:
        """Those that nothing cheaper beats, the cheapest first.

        >>> Frontier("f", "", "m", "higher", (("a", 0, 1.0), ("b", 60, 0.5), ("c", 60, 2.0))).best()
        [('a', 0, 1.0), ('c', 60, 2.0)]
        """
        sign = 1 if self.better == "higher" else -1
        found: list[tuple[str, float, float]] = []
        for point in sorted(self.points, key=lambda one: (one[1], -sign * one[2])):
            if not found or sign * point[2] > sign * found[-1][2]:
                found.append(point)
        return found

    def svg(self) -> str:
        """Evaluations on a logarithmic scale to the right, the metric upwards; names beside the points."""
        width, height, left, right, top, bottom = 860, 420, 70, 200, 20, 50
        values, best = [value for _, _, value in self.points], self.best()
        low, high, far = min(values), max(values), max(1.0, *(math.log2(1 + cost) for _, cost, _ in self.points))
        margin = 0.06 * (high - low) or 0.5

        def place(cost: float, value: float) -> tuple[float, float]:
            x = left + (width - left - right) * math.log2(1 + cost) / far
            share = (value - low + margin) / (high - low + 2 * margin)
            return x, height - bottom - (height - top - bottom) * share

        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(self.metric)} by evaluations" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
        ]
        for tick in (0, 1, 10, 30, 60, 100, 300, 600, 1000):
            if math.log2(1 + tick) > far + 1e-9:
                break
            x, _ = place(tick, low)
            parts.append(f'<path d="M{x:.1f} {top}V{height - bottom}" stroke="#e6e6e6"/>')
            parts.append(f'<text x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{tick}</text>')
        for step in range(5):
            value = low + (high - low) * step / 4
            _, y = place(0, value)
            parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>')
        line = " L".join("{:.1f} {:.1f}".format(*place(cost, value)) for _, cost, value in best)
        parts.append(f'<path d="M{line}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>')
        taken: list[tuple[float, float]] = []
        for name, cost, value in sorted(self.points, key=lambda one: place(one[1], one[2])[1]):
            x, y = place(cost, value)
            label = y  # below the one before, where both are in the same column
            for other_x, other in taken:
                if abs(other_x - x) < 120 and label - other < 13:
                    label = other + 13
            taken.append((x, label))
            colour = "#1f6feb" if (name, cost, value) in best else "#57606a"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
            parts.append(f'<text x="{x + 8:.1f}" y="{label + 4:.1f}" fill="{colour}">{escape(name)}</text>')
        parts.append(
            f'<text x="{(left + width - right) / 2}" y="{height - 10}" text-anchor="middle">model evaluations</text>'
        )
        told = f"{self.metric}, {self.better} is better"
        parts.append(f'<text x="{left}" y="{top - 6}">{escape(told)}</text></svg>')
        return "".join(parts)


Block: TypeAlias = Heading | Text | Sheet | Frontier

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#1f2328;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 1.2rem;font-variant-numeric:tabular-nums;font-size:.9em}
caption{text-align:left;font-weight:600;padding:.3rem 0}th,td{padding:.2rem .6rem;border-bottom:1px solid #d0d7de}
th{text-align:left;cursor:pointer;background:#f6f8fa}td.n{text-align:right}
.wide{overflow-x:auto}summary{cursor:pointer}svg{max-width:100%;height:auto}figcaption{color:#57606a}
"""
_SCRIPT = """
document.querySelectorAll('th').forEach(head=>{head.tabIndex=0;const go=()=>{const table=head.closest('table'),
at=[...head.parentNode.children].indexOf(head),up=head.dataset.up!=='1';head.dataset.up=up?'1':'0';
const value=row=>{const text=row.cells[at].textContent,n=parseFloat(text);return isNaN(n)?text:n};
const body=table.tBodies[0],rows=[...body.rows].sort((a,b)=>{const x=value(a),y=value(b),
order=typeof x===typeof y?(x<y?-1:x>y?1:0):typeof x==='number'?-1:1;return up?order:-order});body.append(...rows)};
head.addEventListener('click',go);head.addEventListener('keydown',e=>{if(e.key==='Enter')go()})});
"""


def html(title: str, blocks: Sequence[Block]) -> str:
    """One file: style, figures and the script that sorts tables are in it."""
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1>"
    ]
    for listed, some in groupby(blocks, lambda block: isinstance(block, Text) and block.item):
        tagged = [_tagged(block) for block in some]
        parts += [f"<ul>{''.join(tagged)}</ul>"] if listed else tagged
    return "\n".join([*parts, f"<script>{_SCRIPT}</script></body></html>\n"])


def _tagged(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Text(text, item):
            told = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
            return f"<li>{told}</li>" if item else f"<p>{told}</p>"
        case Frontier(_, caption):
            return f"<figure>{block.svg()}<figcaption>{escape(caption)}</figcaption></figure>"
        case Sheet(caption, heads, rows, folded):
            head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
            body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
            table = f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
            table = f'<div class="wide"><table>{table}</table></div>'
            return f"<details><summary>{escape(caption)}</summary>{table}</details>" if folded else table


def _cell(text: str) -> str:
    """Numbers stand under each other."""
    number = re.match(r"[-+]?\d", text) is not None
    return f"<td{' class=n' * number}>{escape(text)}</td>"


def markdown(title: str, blocks: Sequence[Block], *, prefix: str = "") -> tuple[str, dict[str, str]]:
    """The text, and its figures by the names of their files."""
    lines, figures = [f"# {title}"], {}
    for block in blocks:
        match block:
            case Heading(level, text):
                lines += ["", f"{'#' * level} {text}"]
            case Text(text, item):
                listed = item and lines[-1].startswith("- ")
                lines += [f"- {text}"] if listed else ["", f"- {text}" if item else text]
            case Frontier(name, caption):
                file = f"{prefix}{re.sub(r'[^a-z0-9-]+', '-', name.lower()).strip('-')}.svg"
                figures[file] = block.svg()
                lines += ["", f"![{caption}]({file})"]
            case Sheet(caption, heads, rows, _):
                table = [_row(heads), "|---" * len(heads) + "|", *map(_row, rows)]
                lines += ["", f"**{caption}**", "", *table]
    return "\n".join(lines) + "\n", figures


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
