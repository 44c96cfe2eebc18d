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

#: Parts of the page that are some columns of a CSV file; None: all of them.
AS_THEY_ARE: dict[str, tuple[str, Sequence[str] | None]] = {
    "models": ("models", ("model", "test_accuracy", "test_attention", "epochs", "strength", "normalisation")),
    "sweep": ("sweep", ("model", "normalisation", "strength", "side", "accuracy", "attention")),
    "choice": ("choice", ("model", "scores", "fill", "segments", "usu_iou", "usu_concentration", "iwmr_iou",
                          "iwmr_concentration")),
    "patterns": ("patterns", None),
    "infidelity": ("infidelity", None),
    "desiderata": ("desiderata", ("network", "method", *(f"{d}_{of}" for d in ("D1", "D2", "D3", "D4")
                                                          for of in ("paper", "measured")))),
    "moved": ("desiderata", ("network", "method", "error_paper", "moved_mean", "moved_worst", "relative_D1_worst")),
    "additive": ("additive", ("grid", "upsampler", "excess_least", "excess_mean", "deficit_least", "deficit_mean",
                              "alpha_mean", "beta_mean")),
    "identical": ("identical", ("group", "kind", "grid", "pixels", "bilinear_gap", "usu_gap", "overlap")),
}  # fmt: skip
#: Shown of other models, maps and pictures; everybody is in the CSV file.
SHOWN = ("bilinear", "joint-bilateral", "usu", "iwmr", "printed-usu", "soft")
#: What the paper does not measure, and the metrics behind its propositions, at one grid.
BEYOND, BEYOND_GRID = ("cell-auroc", "alpha-error", "beta-error", "mass-excess", "mass-deficit"), 7


def shape_markdown(
    records: Iterable[Mapping[str, object]],
    *,
    paper: str | None = "paper",
    only: bool = False,
    metrics: Sequence[str] = METRICS,
) -> str:
    """Models and methods in rows, metrics in columns, the grids side by side; + and - as in `usu.comparison`.

    ``paper`` is the column of the paper's numbers, None without it; ``only``: no rows but those it has.
    """
    rows = [row for row in records if row["metric"] in metrics]
    grids = sorted({int(row["grid"]) for row in rows})
    heads = [head for metric in metrics
             for head in ((f"{metric}, paper",) if paper else ()) + (f"{metric} at {_joined(grids)}",)]  # fmt: skip
    cells: dict[tuple, dict[tuple, str]] = {}
    for row in rows:
        known = cells.setdefault((row["model"], row["source"], row["method"]), {})
        mark = MARKS.get(str(row.get("verdict")), "")
        known[row["metric"], int(row["grid"])] = _short(row["mean"]) + mark
        known[row["metric"], "paper"] = _short(row[paper]) if paper else ""
    lines = []
    for key, known in cells.items():
        if not only or any(known.get((metric, "paper")) for metric in metrics):
            numbers = []
            for metric in metrics:
                numbers += [known.get((metric, "paper"), "")] if paper else []
                numbers.append(_joined(known.get((metric, grid), "") for grid in grids))
            lines.append([*map(str, key), *numbers])
    return markdown(["model", "source", "method", *heads], lines)


def _joined(values: Iterable[object]) -> str:
    return " / ".join(map(str, values)).strip(" /")


def claims_markdown(records: Iterable[Mapping[str, str]]) -> str:
    """Every claim against the best of the interpolations, the grids side by side."""
    groups: dict[tuple, dict[int, list[Mapping[str, str]]]] = {}
    for row in records:
        own = groups.setdefault(tuple(row[of] for of in ("model", "metric", "method")), {})
        own.setdefault(int(row["grid"]), []).append(row)
    grids = sorted({grid for own in groups.values() for grid in own})
    heads = ("model", "metric", "method", f"mean at {_joined(grids)}", "gain over the best interpolation")
    lines = []
    for key, own in groups.items():
        best = [max(rows, key=lambda row: float(row["rival_mean"])) for rows in own.values()]
        won = [f"{sum(row['verdict'] == 'better' for row in rows)} of {len(rows)}" for rows in own.values()]
        worst = [f"{max(float(row['bonferroni']) for row in rows):.1g}" for rows in own.values()]
        gains = _joined(f"{float(row['gain']):+.3f}" for row in best)
        lines.append((*key, _joined(_short(row["mean"]) for row in best), gains, _joined(worst), _joined(won)))
    return markdown((*heads, "largest p, corrected", "better than"), lines)


def rivals_markdown(records: Sequence[Mapping[str, str]]) -> str:
    """Gains of each method over each rival, the grids side by side; + and - where a test decides it, corrected."""
    grids = sorted({int(row["grid"]) for row in records})
    heads = ("model", "method", "rival", *(f"{metric} at {_joined(grids)}" for metric in METRICS))
    found: dict[tuple, dict[tuple, str]] = {}
    for row in records:
        own = found.setdefault(tuple(row[of] for of in ("model", "method", "rival")), {})
        own[row["metric"], int(row["grid"])] = f"{float(row['gain']):+.3f} {MARKS[row['verdict']]}".strip()
    rows = (
        (*key, *(_joined(known[metric, grid] for grid in grids) for metric in METRICS)) for key, known in found.items()
    )
    return markdown(heads, rows)


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


def plain_markdown(records: Sequence[Mapping[str, object]], columns: Sequence[str] | None = None) -> str:
    """Any records as they are; all their columns, or these."""
    columns = columns or list(dict.fromkeys(name for record in records for name in record))
    body = ([_short(record.get(name)) for name in columns] for record in records)
    return markdown((name.replace("_", " ") for name in columns), body)


def parts(results: Path) -> dict[str, str]:
    """Everything that is measured, by the name of its place."""
    shapes = read_csv(results / "shapes.csv")
    own = [row for row in shapes if row["model"] in PAPER_FULL and row["source"] == "gradient"]
    others = [row for row in shapes if row not in own and row["method"] in SHOWN]
    beyond = [row for row in own if row["method"] in (*INTERPOLATIONS, *SHOWN) and int(row["grid"]) == BEYOND_GRID]
    return {
        "main": shape_markdown(own, paper="paper_main", only=True),
        "full": shape_markdown(own, only=True),
        "claims": claims_markdown(read_csv(results / "claims.csv")),
        "losses": losses_markdown(shapes),
        "everybody": shape_markdown(own, paper=None),
        "others": shape_markdown(others, paper=None),
        "beyond": shape_markdown(beyond, paper=None, metrics=BEYOND),
        "rivals": rivals_markdown(read_csv(results / "rivals.csv")),
        **{name: plain_markdown(read_csv(results / f"{file}.csv"), columns)
           for name, (file, columns) in AS_THEY_ARE.items()},
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
