"""The paper's two synthetic tables and its desiderata table, the paper's value beside ours.

The paper's numbers are copied from its tables and are never mixed with ours. It gives one number per model and method
and does not say at which of its three grids; ours are shown for each.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from experiments.first_table import spent
from experiments.synthetic.additive import Bound
from experiments.synthetic.figures import Shown
from experiments.synthetic.measures import BETTER, of_grid
from experiments.synthetic.methods import INTERPOLATIONS

import usu
from usu.bench import Table
from usu.stats import report

METRICS = ("iou", "concentration", "pointing-game")
#: Full synthetic results (appendix): IoU, concentration, pointing game.
PAPER_FULL = {
    "rrl-mlp": {
        "nearest": (0.77, 0.52, 0.76), "bilinear": (0.81, 0.56, 0.80), "bicubic": (0.84, 0.55, 0.79),
        "usu": (0.88, 0.79, 1.00), "iwmr": (0.91, 0.84, 1.00), "oracle-usu": (0.97, 0.90, 1.00),
        "oracle-iwmr": (1.00, 0.95, 1.00),
    },
    "rrl-cnn": {
        "nearest": (0.75, 0.50, 0.74), "bilinear": (0.79, 0.54, 0.78), "bicubic": (0.82, 0.52, 0.76),
        "usu": (0.86, 0.76, 1.00), "iwmr": (0.89, 0.81, 1.00), "oracle-usu": (0.96, 0.88, 1.00),
        "oracle-iwmr": (1.00, 0.93, 1.00),
    },
}  # fmt: skip
#: The main text's table, where bicubic and the IWMR oracle differ from the appendix.
PAPER_MAIN = {
    "rrl-cnn": {
        "bilinear": (0.79, 0.54, 0.78), "bicubic": (0.82, 0.59, 0.79), "usu": (0.86, 0.76, 1.00),
        "oracle-usu": (0.96, 0.88, 1.00), "oracle-iwmr": (1.00, 0.85, 1.00),
    }
}  # fmt: skip
#: Desiderata on ImageNet with VGG16: D1 to D4, and "mean absolute neighbourhood mass discrepancy" in unknown units.
PAPER_DESIDERATA = {
    "bilinear": ("no", "no", "no", "no", 1.23e-1),
    "bicubic": ("no", "no", "no", "no", 8.65e-1),
    "lanczos3": ("no", "no", "no", "no", 2.14e-2),
    "usu": ("yes", "yes", "yes", "yes", 4.95e-7),
    "iwmr": ("no", "yes", "yes", "yes", 3.81e-4),
}
#: The captions say the oracles use true scores, the appendix says true segments: ours stand beside the paper's one. So
#: do the pipeline of the study and the preset.
NAMES = ((re.compile(r"^oracle-(?:segments|scores)-"), "oracle-"), (re.compile("^printed-"), ""))
#: Who could beat them: what never asks the model, and what has the same scores or evaluations. ``nearest``, among the
#: interpolations, is ``usu`` with constant scores.
RIVALS = (
    "bilinear-corrected", "guided", "guided-corrected", "joint-bilateral", "segment-pooled", "usu-permuted-scores",
    "usu-random-scores", "usu-scores-alone", "usu-kernel-shap", "usu",
)  # fmt: skip
#: Who is said to beat every interpolation; and beside them the preset made for photographs, where it was measured.
CONTESTING = ("usu", "iwmr")
CLAIMING = (*CONTESTING, "printed-usu", "printed-iwmr")
AUDITED = {"usu": "usu", "iwmr": "usu-iwmr-area"}
Record = dict[str, object]


def paper_value(paper: Mapping[str, Mapping[str, tuple]], model: str, method: str, metric: str) -> float | None:
    """What the paper prints, None where it prints nothing."""
    for pattern, by in NAMES:
        method = pattern.sub(by, method)
    found = paper.get(model, {}).get(method)
    return found[METRICS.index(metric)] if found is not None and metric in METRICS else None


def shape_records(
    model: str, source: str, table: Table, grids: Iterable[int], *, resamples: int = 10_000
) -> list[Record]:
    """One record per grid, method and metric: the mean beside the paper's, and the comparison with bilinear.

    Wilcoxon, Cohen's d and BCa intervals come from `usu.comparison`; the family is every test of one grid.
    """
    records = []
    for grid in grids:
        rows = of_grid(table, grid)
        values = {metric: (BETTER[metric], rows.values(metric)) for metric in rows.metrics}
        found = report(values, resamples=resamples)
        cost = spent(rows)
        for metric, (better, columns) in values.items():
            for method, column in columns.items():
                record: Record = {
                    "model": model, "source": source, "grid": grid, "method": method, "metric": metric,
                    "better": better,
                    "paper": paper_value(PAPER_FULL, model, method, metric),
                    "paper_main": paper_value(PAPER_MAIN, model, method, metric),
                    "mean": float(np.nanmean(column)) if not np.isnan(column).all() else None,
                    "worst": _worst(column, better), "pictures": int((~np.isnan(column)).sum()),
                    "evaluations": cost[method],
                }  # fmt: skip
                if method != "bilinear":
                    row = found[metric][method]
                    record |= {
                        "gain": row.gain.estimate, "gain_low": row.gain.low, "gain_high": row.gain.high,
                        "cohens_d": row.cohens_d, "paired_d": row.paired_d.estimate, "paired_d_low": row.paired_d.low,
                        "paired_d_high": row.paired_d.high, "p": row.p, "bonferroni": row.bonferroni,
                        "holm": row.holm, "verdict": row.verdict, "family": found.family,
                    }  # fmt: skip
                records.append(record)
    return records


def claim_records(
    tables: Mapping[str, Table],
    grids: Sequence[int],
    *,
    claiming: Sequence[str] = CLAIMING,
    rivals: Sequence[str] = INTERPOLATIONS,
    resamples: int = 10_000,
) -> list[Record]:
    """Those of ``claiming`` that were measured against every rival, one by one, on the paper's three metrics.

    All of it is a single family of tests.
    """
    pairs = {
        (model, rival): [name for name in claiming if name in table.upsamplers and name != rival]
        for model, table in tables.items()
        for rival in rivals
    }
    family = sum(map(len, pairs.values())) * len(grids) * len(METRICS)
    records: list[Record] = []
    for model, table in tables.items():
        for grid in grids:
            rows = of_grid(table, grid)
            for metric in METRICS:
                columns = rows.values(metric)
                for rival in rivals:
                    own = pairs[model, rival]
                    columns_of = {name: columns[name] for name in (rival, *own)}
                    found = report({metric: (BETTER[metric], columns_of)}, rival, family=family, resamples=resamples)
                    for method in own:
                        row = found[metric][method]
                        records.append({
                            "model": model, "grid": grid, "metric": metric, "method": method, "rival": rival,
                            "mean": float(columns[method].mean()), "rival_mean": float(columns[rival].mean()),
                            "gain": row.gain.estimate, "gain_low": row.gain.low, "gain_high": row.gain.high,
                            "shift": row.shift.estimate, "win_rate": row.win_rate.estimate,
                            "cohens_d": row.cohens_d, "paired_d": row.paired_d.estimate, "p": row.p,
                            "bonferroni": row.bonferroni, "verdict": row.verdict, "pictures": row.n, "family": family,
                        })  # fmt: skip
    return records


def desiderata_records(network: str, table: Table, *, trials: int = 25) -> list[Record]:
    """What the audit finds of D1 to D4, and the mass that a network's own maps lose: mean and worst over pictures.

    ``moved`` is half the paper's mean discrepancy in units of the mean cell mass, which is the share of the mass that
    changed its cell; the paper's own units are not given.
    """
    records = []
    for method, (*verdicts, discrepancy) in PAPER_DESIDERATA.items():
        audit = _audit(AUDITED.get(method, method), trials)
        record: Record = {"network": network, "method": method}
        for name, said in zip(("D1", "D2", "D3", "D4"), verdicts, strict=True):
            record |= {
                f"{name}_paper": said,
                f"{name}_measured": audit[name].verdict,
                f"{name}_worst": audit[name].worst,
            }
        record |= {"error_paper": discrepancy}
        for column, metric in (("moved", "moved-mass"), ("relative_D1", "mass-error")):
            values = table.values(metric)[method]
            record |= {f"{column}_mean": float(np.mean(values)), f"{column}_worst": float(np.max(values))}
        records.append(record | {"pictures": len(values)})
    return records


def additive_records(bounds: Sequence[Bound]) -> list[Record]:
    """Least, mean and worst of the mass-error bounds and of the errors over pictures, per grid and upsampler."""
    records = []
    for grid, name in dict.fromkeys((one.grid, one.upsampler) for one in bounds):
        own = [one for one in bounds if (one.grid, one.upsampler) == (grid, name)]
        record: Record = {"grid": grid, "upsampler": name, "pictures": len(own)}
        for field in ("excess", "deficit", "alpha", "beta"):
            values = [getattr(one, field) for one in own]
            record |= {
                f"{field}_least": min(values),
                f"{field}_mean": float(np.mean(values)),
                f"{field}_worst": max(values),
            }
        records.append(record)
    return records


def pattern_records(patterns: Iterable[Shown]) -> list[Record]:
    """How much of a pattern each method finds: errors as shares of its mass, and the share of |map| on the pattern."""
    records = []
    for one in patterns:
        for method, pixel_map in one.maps.items():
            alpha, beta = (float(part.sum() / one.truth.sum()) for part in usu.alpha_beta_errors(pixel_map, one.truth))
            records.append({
                "pattern": one.name, "method": method, "alpha": alpha, "beta": beta,
                "iou": usu.metrics.iou(pixel_map, one.truth > 0),
                "concentration": usu.metrics.concentration(pixel_map, one.truth > 0),
                "cell_auroc": usu.metrics.cell_auroc(pixel_map, one.truth > 0, one.coarse.shape),
            })  # fmt: skip
    return records


def write_csv(records: Sequence[Record], path: Path) -> Path:
    """Every column that any record has, six digits, empty where there is nothing."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_plain(record.get(name)) for name in columns] for record in records)
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    """What `write_csv` wrote, as text."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def _audit(name: str, trials: int) -> usu.AuditReport:
    """Of the operator, so one for all networks."""
    return usu.audit(usu.upsamplers.by_name(name), trials=trials)


def _worst(column: np.ndarray, better: str) -> float | None:
    known = column[~np.isnan(column)]
    return None if not len(known) else float(known.min() if better == "higher" else known.max())


def _plain(value: object) -> object:
    return "" if value is None or value != value else f"{value:.6g}" if isinstance(value, float) else value
