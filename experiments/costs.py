"""What scale, missing tokens and other libraries cost, for the pages that say it: from committed rows."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev

from experiments.pages import markdown, prose

Row = dict[str, str]
#: Kinds of benchmarks/scale.py: how a size is shown, and how many units of work it has.
KINDS: dict[str, tuple[str, Callable[[float], float]]] = {
    "interpolate": ("{:,.0f} x {:,.0f} pixels", lambda side: side * side * 3 / 4),
    "redistribute": ("{:,.0f} x {:,.0f} pixels", lambda side: side * side * 3 / 4),
    "redistribute, soft": ("{:,.0f} x {:,.0f} pixels", lambda side: side * side * 3 / 4),
    "explain a file and save": ("{:,.0f} x {:,.0f} pixels", lambda side: side * side * 3 / 4),
    "explain pixels and save": ("{:,.0f} x {:,.0f} pixels", lambda side: side * side * 3 / 4),
    "classes": ("{:,.0f} classes", float),
    "depth": ("depth {:.0f}", lambda depth: depth + 1),
    "segments": ("{:,.0f} segments", float),
    "batch": ("{:,.0f} pictures", float),
}
FILLS = ("missing", "blur", "mean")
#: The power up to which a cost counts as in proportion to its size.
LINEAR = 1.05
#: Pictures from which on methods are ranked.
ENOUGH = 6
#: The map of `Grad-CAM, bilinear`, made by another library.
TWINS = ("pytorch-grad-cam GradCAM",)
TITLES = (
    "insertion minus deletion, mean fill", "insertion minus deletion, noise fill", "half deletion, mean fill",
    "half deletion, noise fill",
)  # fmt: skip
FAITHFUL = ("insertion-deletion mean", "insertion-deletion noise", "half-deletion mean", "half-deletion noise")


def parts(results: Path) -> dict[str, str]:
    """Every block by its name, of the tables that are there."""
    made = {}
    for name, tables, block in (
        ("growth", ("scale",), _scale),
        ("missing tokens", ("token-drop", "token-drop-seconds"), _tokens),
        ("missing tokens seconds", ("token-drop-seconds",), _token_seconds),
        ("peers", ("peers-cost", "peers-pictures"), _peers),
        ("frontier", ("peers-cost", "peers-pictures"), _frontier),
        ("peers metrics", ("peers-metrics",), _metrics),
    ):
        read = [rows_of(results / f"{table}.csv") for table in tables]
        if all(read):
            made[name] = block(*read)
    return made


def rows_of(path: Path) -> list[Row]:
    """A committed table; empty where there is none."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """By which power of the size a value grows: over all sizes or from the last but one to the last, the larger.

    What a small question costs anyway hides growth over all sizes; one step alone may be a lucky one.
    """
    return max(math.log(values[-1] / values[k]) / math.log(sizes[-1] / sizes[k]) for k in (0, -2))


def _scale(rows: list[Row]) -> str:
    table, grown = [], {}
    for kind, (form, work) in KINDS.items():
        own = [row for row in rows if row["kind"] == kind]
        timed = [row for row in own if float(row["seconds"]) > 0]
        sizes = [work(float(row["size"])) for row in timed]
        seconds = [float(row["seconds"]) for row in timed]
        grown[kind] = exponent(sizes, seconds)
        least, most = (form.format(float(row["size"]), float(row["size"]) * 3 / 4) for row in (timed[0], timed[-1]))
        table.append(
            (
                kind, f"{least} to {most}", f"{seconds[0]:.3g} to {seconds[-1]:.3g}", f"{grown[kind]:.2f}",
                f"{_gigabytes(timed[0])} to {_gigabytes(timed[-1])}",
            )
        )  # fmt: skip
    worse = [f"{kind} ({value:.2f})" for kind, value in grown.items() if value > LINEAR]
    none = f"None grows by a power above {LINEAR}."
    verdict = f"These grow faster than their size: {'; '.join(worse)}." if worse else none
    heads = ("what", "from, to", "seconds", "power of the size", "peak, GB")
    return markdown(heads, table) + "\n\n" + prose(verdict)


def _gigabytes(row: Row) -> str:
    return f"{float(row['megabytes']) / 1024:.1f}"


def _tokens(rows: list[Row], timed: list[Row]) -> str:
    def found(column: str) -> str:
        return f"{mean(float(row[column]) for row in rows):.2f}"

    heads = ("scores with", "insertion minus deletion, mean fill ↑", "noise fill ↑", "stability ↑")
    columns = ("insertion-deletion mean", "insertion-deletion noise", "stability")
    table = markdown(heads, ((name, *(found(f"{name} {column}") for column in columns)) for name in FILLS))
    agree = {
        (pair, how): found(f"{pair}, {how}")
        for pair in ("missing and blur", "missing and mean", "blur and mean")
        for how in ("one by one", "in groups")
    }
    text = prose(
        f"It asks another question. On {len(rows)} pictures of CIFAR-10 with a ViT-S/14, effects of its patches in "
        f"groups have a rank correlation of {agree['missing and blur', 'in groups']} with those under a blur and "
        f"{agree['missing and mean', 'in groups']} with those under the mean, which have "
        f"{agree['blur and mean', 'in groups']} with each other; taken away one by one "
        f"{agree['missing and blur', 'one by one']}, {agree['missing and mean', 'one by one']} and "
        f"{agree['blur and mean', 'one by one']}. The maps they lead to, preset `soft`:"
    )

    def ahead(other: str, column: str) -> str:
        each = [float(row[f"missing {column}"]) - float(row[f"{other} {column}"]) for row in rows]
        return f"{mean(each):+.2f} ± {stdev(each) / len(each) ** 0.5:.2f}"

    told = [[ahead(other, column) for column in columns[:2]] for other in FILLS[1:]]
    below = prose(
        f"Missing tokens minus blur, with standard errors: {told[0][0]} and {told[0][1]}; minus mean: {told[1][0]} and "
        f"{told[1][1]}. A metric that hides with the mean favours scores that did."
    )
    return f"{_token_seconds(timed)}\n\n{text}\n\n{table}\n\n{below}"


def _token_seconds(timed: list[Row]) -> str:
    # as many pictures at once as the engine takes of this size on a CPU
    usual = [row for row in timed if int(row["pictures_at_once"]) == 4 * 224**2 // int(row["picture"]) ** 2]
    least, most = (pick(float(row["ratio"]) for row in usual) for pick in (min, max))
    worst = max(timed, key=lambda row: float(row["ratio"]))
    return prose(
        f"With half of the patches hidden, passes of {len(usual)} ViTs in the engine's own batches take {least:.2f} to "
        f"{most:.2f} of the time of whole pictures; the worst measured is {float(worst['ratio']):.2f}, of "
        f"{worst['model']} with {worst['patches']} patches in batches of {worst['pictures_at_once']}."
    )


def joined(costs: list[Row], pictures: list[Row]) -> list[tuple[str, dict[str, float | None]]]:
    """Each method with its cost and the means of its pictures."""
    made = []
    for cost in costs:
        own = [row for row in pictures if row["method"] == cost["method"].removesuffix(", engine auto")]
        values: dict[str, float | None] = {key: float(cost[key]) for key in cost if key != "method"}
        for column in (*FAITHFUL, "stability"):
            known = [float(row[column]) for row in own if row[column]]
            values[column] = mean(known) if known else None
            values[f"{column} error"] = stdev(known) / len(known) ** 0.5 if len(known) > 1 else None
        made.append((cost["method"], values))
    return made


def _peers(costs: list[Row], pictures: list[Row]) -> str:
    heads = (
        "method", "seconds ↓", "forward", "backward", "peak, MB ↓", "insertion minus deletion, mean ↑", "noise ↑",
        "half deletion, mean ↑", "noise ↑", "stability ↑",
    )  # fmt: skip
    table = []
    for name, found in joined(costs, pictures):
        cells = [f"{found[key]:,.0f}" for key in ("forward", "backward", "megabytes")]
        values = ["" if found[key] is None else f"{found[key]:.2f}" for key in (*FAITHFUL, "stability")]
        values[0] += "" if found[f"{FAITHFUL[0]} error"] is None else f" ± {found[f'{FAITHFUL[0]} error']:.2f}"
        table.append((name, f"{found['seconds']:.3g}", *cells, *values))
    return markdown(heads, table)


def frontier(rows: Sequence[tuple[str, dict[str, float | None]]], metric: str) -> list[str]:
    """Methods that no cheaper one is as good as, the cheapest first."""
    best, names = -math.inf, []
    for name, found in sorted(rows, key=lambda row: row[1]["seconds"] or 0.0):
        value = found[metric]
        if value is not None and value > best:
            best = value
            names.append(name)
    return names


def _frontier(costs: list[Row], pictures: list[Row]) -> str:
    rows = [row for row in joined(costs, pictures) if not row[0].endswith("engine auto")]
    count = len({row["picture"] for row in pictures})
    if count < ENOUGH:
        return prose(
            f"Only {count} pictures were measured for faithfulness and stability: enough for the costs, too few to say "
            "who is better. [Evidence](evidence.md) and [stability](stability.md) compare most of these on more."
        )
    lines: list[str] = []
    others: dict[str, list[str]] = {}
    for metric, title in zip(FAITHFUL, TITLES, strict=True):
        names = frontier([row for row in rows if row[0] not in TWINS], metric)
        lines.append(f"- {title}: {'; '.join(names)}.")
        for name in names:
            if not name.startswith("usu") and name != "Grad-CAM, bilinear":
                others.setdefault(name, []).append(title)
    foreign = [
        f"{name} ({'; '.join(where) if len(where) < len(TITLES) else 'in all'})" for name, where in others.items()
    ]
    verdict = f"On the frontier and not ours: {', '.join(foreign)}." if foreign else "All but the resized map are ours."
    first = f"Better in the mean of {count} pictures than everybody cheaper, from the cheapest on:"
    return f"{prose(first)}\n\n{prose(*lines)}\n\n{prose(verdict)}"


def _metrics(rows: list[Row]) -> str:
    heads = ("metric", "Quantus, s", "ours, s", "ratio", "same number")
    return markdown(heads, ([row["metric"], row["quantus"], row["ours"], row["ratio"], row["same"]] for row in rows))
