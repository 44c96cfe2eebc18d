"""Records as Markdown, and the page of the study: its measured parts are written from CSV files, never by hand.

Run: python -m experiments.synthetic.page RESULTS PAGE   (RESULTS is the folder that the study wrote)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.pages import MARKS, filled, markdown
from experiments.synthetic.methods import INTERPOLATIONS
from experiments.synthetic.tables import METRICS, PAPER_FULL, read_csv

#: Parts of the page that are a CSV file as it is.
AS_THEY_ARE = ("desiderata", "models", "additive", "identical", "sweep", "choice", "patterns", "infidelity")
#: Shown where the paper has no numbers.
SHOWN = (
    "nearest", "bilinear", "guided", "joint-bilateral", "usu", "iwmr", "printed-usu", "printed-iwmr", "cell", "soft",
    "oracle-shares-usu",
)  # fmt: skip
#: What the paper does not measure, and the metrics behind its propositions.
BEYOND = ("cell-auroc", "alpha-error", "beta-error", "mass-excess", "mass-deficit")


def shape_markdown(
    records: Iterable[Mapping[str, object]],
    *,
    paper: str | None = "paper",
    only: bool = False,
    metrics: Sequence[str] = METRICS,
) -> str:
    """Models and methods in rows, metric x (paper, grids) in columns; + and - as in `usu.comparison`.

    ``paper`` is the column of the paper's numbers, None without it; ``only``: no rows but those it has.
    """
    rows = [row for row in records if row["metric"] in metrics]
    grids = sorted({int(row["grid"]) for row in rows})
    columns = ("paper", *grids) if paper else (*grids,)
    heads = [f"{metric} {of if of == 'paper' else f'{of} x {of}'}" for metric in metrics for of in columns]
    lines = []
    cells: dict[tuple, dict[tuple, str]] = {}
    for row in rows:
        known = cells.setdefault((row["model"], row["source"], row["method"]), {})
        mark = MARKS.get(str(row.get("verdict")), "")
        known[row["metric"], int(row["grid"])] = _short(row["mean"]) + mark
        known[row["metric"], "paper"] = _short(row[paper]) if paper else ""
    for key, known in cells.items():
        if not only or any(known.get((metric, "paper")) for metric in metrics):
            numbers = [known.get((metric, of), "") for metric in metrics for of in columns]
            lines.append([*map(str, key), *numbers])
    return markdown(["model", "source", "method", *heads], lines)


def claims_markdown(records: Iterable[Mapping[str, str]]) -> str:
    """Every claim against the best of the interpolations; a claim holds against all of them or not at all."""
    heads = ("model", "grid", "metric", "method", "mean", "best interpolation", "its mean", "gain (95 %)")
    heads += ("Cohen's d", "paired d", "largest p, corrected", "better than")
    lines = []
    groups: dict[tuple, list[Mapping[str, str]]] = {}
    for row in records:
        groups.setdefault(tuple(row[of] for of in ("model", "grid", "metric", "method")), []).append(row)
    for key, rows in groups.items():
        best = max(rows, key=lambda row: float(row["rival_mean"]))
        gain = f"{float(best['gain']):+.3f} ({float(best['gain_low']):+.3f} to {float(best['gain_high']):+.3f})"
        won = sum(row["verdict"] == "better" for row in rows)
        worst = max(float(row["bonferroni"]) for row in rows)
        cells = (
            *key, _short(best["mean"]), best["rival"], _short(best["rival_mean"]), gain, _short(best["cohens_d"]),
            _short(best["paired_d"]), f"{worst:.1g}", f"{won} of {len(rows)}",
        )  # fmt: skip
        lines.append(cells)
    return markdown(heads, lines)


def rivals_markdown(records: Sequence[Mapping[str, str]]) -> str:
    """Gains of each method over each rival, metric x grid in columns; + and - where a test decides it, corrected."""
    grids = sorted({int(row["grid"]) for row in records})
    places = [(metric, grid) for metric in METRICS for grid in grids]
    heads = ("model", "method", "rival", *(f"{metric} {grid} x {grid}" for metric, grid in places))
    found: dict[tuple, dict[tuple, str]] = {}
    for row in records:
        own = found.setdefault(tuple(row[of] for of in ("model", "method", "rival")), {})
        own[row["metric"], int(row["grid"])] = f"{float(row['gain']):+.3f} {MARKS[row['verdict']]}".strip()
    return markdown(heads, ((*key, *(known[place] for place in places)) for key, known in found.items()))


def losses_markdown(records: Iterable[Mapping[str, str]]) -> str:
    """Where the IoU goes that is missing to 1: the operator, the segments or the scores, from the oracles."""
    known = {(row["model"], int(row["grid"]), row["method"]): float(row["mean"]) for row in records
             if row["metric"] == "iou" and row["source"] == "gradient"}  # fmt: skip
    heads = ("model", "grid", "method", "IoU", "lost by the operator", "by the segments", "by the scores")
    lines = []
    for model, grid, method in known:
        operator = known.get((model, grid, f"oracle-scores-{method.removeprefix('printed-')}"))
        steps = (1.0, operator, known.get((model, grid, f"oracle-shares-{method}")))
        if model in PAPER_FULL and None not in steps:
            found = known[model, grid, method]
            lost = [before - after for before, after in zip(steps, (*steps[1:], found), strict=True)]
            lines.append((model, f"{grid} x {grid}", method, f"{found:.3f}", *(f"{part:.3f}" for part in lost)))
    return markdown(heads, lines)


def plain_markdown(records: Sequence[Mapping[str, object]]) -> str:
    """Any records as they are."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    body = ([_short(record.get(name)) for name in columns] for record in records)
    return markdown((name.replace("_", " ") for name in columns), body)


def parts(results: Path) -> dict[str, str]:
    """Everything that is measured, by the name of its place."""
    shapes = read_csv(results / "shapes.csv")
    own = [row for row in shapes if row["model"] in PAPER_FULL and row["source"] == "gradient"]
    others = [row for row in shapes if row not in own and row["method"] in SHOWN]
    return {
        "main": shape_markdown(own, paper="paper_main", only=True), "full": shape_markdown(own, only=True),
        "claims": claims_markdown(read_csv(results / "claims.csv")),
        "losses": losses_markdown(shapes), "everybody": shape_markdown(own), "others": shape_markdown(others),
        "beyond": shape_markdown(
            [row for row in own if row["method"] in (*INTERPOLATIONS, *SHOWN)], paper=None, metrics=BEYOND
        ),
        "rivals": rivals_markdown(read_csv(results / "rivals.csv")),
        **{name: plain_markdown(read_csv(results / f"{name}.csv")) for name in AS_THEY_ARE},
    }  # fmt: skip


def main() -> None:
    results, page = map(Path, sys.argv[1:3])
    written = parts(results)
    page.write_text(filled(page.read_text(encoding="utf-8"), written), encoding="utf-8")
    print(f"{page}: {len(written)} parts written from {results}")


def _short(value: object) -> str:
    """Three digits; what is no number stays."""
    try:
        number = float(str(value))
    except ValueError:
        return "" if value is None else str(value)
    if number != number:
        return ""
    if number.is_integer() and abs(number) < 1e6:
        return str(int(number))
    return f"{number:.3f}" if 1e-3 <= abs(number) < 1e3 else f"{number:.3g}"


if __name__ == "__main__":
    main()
