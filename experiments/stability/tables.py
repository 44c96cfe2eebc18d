"""The page's tables, from the rows of the steps. ``every`` has the rows of ``STEP-NETWORK`` by that name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from experiments.pages import markdown
from experiments.stability.cases import NETWORKS, column
from experiments.stability.steps import BUDGETS, FEW, REPEATS

import usu

Rows = Sequence[dict[str, str]]
PAID = ("insertion-deletion mean", "insertion-deletion noise", "half-deletion mean", "half-deletion noise")
RIVALS = (
    "bilinear", "guided filter", "LayerCAM", "fast", "scores alone", "kernel SHAP", "shapiq KernelSHAP",
    "integrated gradients", "SmoothGrad", "Guided Grad-CAM", "XRAI",
)  # fmt: skip


def steps(every: Mapping[str, Rows], step: str) -> Iterator[tuple[str, Rows]]:
    """The networks that this step was run on, as a person calls them; then runs of before segments were calm."""
    for suffix, told in (("", ""), ("_before", ", former segments")):
        for name, (_, title) in NETWORKS.items():
            if rows := [row for row in every.get(f"{step}-{name}{suffix}", ()) if len(row) > 1]:
                yield f"{title}{told}", rows


def mean(rows: Rows, name: str) -> str:
    found = column(rows, name)
    return f"{found.mean():.3f}" if len(found) else ""


def against(rows: Rows, one: str, other: str) -> tuple[int, float, float]:
    """Pairs, the Hodges-Lehmann shift and Wilcoxon's p."""
    both = [row for row in rows if one in row and other in row]
    new, old = column(both, one), column(both, other)
    if len(both) < 5 or not (new != old).any():
        return len(both), 0.0, 1.0
    return len(both), float(usu.stats.hodges_lehmann(new, old)), float(usu.stats.wilcoxon(new, old).p)


def tables(every: Mapping[str, Rows]) -> dict[str, str]:
    """Every table that can be made of these rows, by its name on the page."""
    return {
        "presets": _presets(every), "paid": _paid(every), "known": _known(every), "auto": _auto(every),
        "curve": _curve(every), "few": _few(every), "moved": _moved(every), "rivals": _rivals(every),
        "choices": _choices(every), "fills": _fills(every), "outlines": _outlines(every), "fast": _fast(every),
    }  # fmt: skip


def _presets(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "seeds"):
        for name in ("soft", "former soft", "cell", "former cell", "scores alone"):
            cells = [mean(rows, f"{name} {head}") for head in ("iou", "pearson", *PAID)]
            lines.append([title, name, str(len(column(rows, f"{name} iou"))), *cells])
    return markdown(("network", "preset", "n", "IoU", "Pearson", "ins-del mean", "ins-del noise", "half mean",
                     "half noise"), lines)  # fmt: skip


def _paid(every: Mapping[str, Rows]) -> str:
    found = [
        (title, name, metric, *against(rows, f"{name} {metric}", f"former {name} {metric}"))
        for title, rows in steps(every, "seeds") for name in ("soft", "cell") for metric in ("iou", *PAID)
    ]  # fmt: skip
    holm = usu.stats.holm([p for *_, p in found]) if found else []
    return markdown(("network", "preset", "metric", "n", "shift", "p", "p (Holm)"), [
        [title, name, metric, str(n), f"{shift:+.3f}", f"{p:.2g}", f"{corrected:.2g}"]
        for (title, name, metric, n, shift, p), corrected in zip(found, holm, strict=True)
    ])  # fmt: skip


def _known(every: Mapping[str, Rows]) -> str:
    lines = []
    far, several = dict(steps(every, "long")), dict(steps(every, "repeats"))
    for title, pairs in steps(every, "seeds"):
        rows, others = (several[title], REPEATS) if title in several else (pairs, 1)
        for name in ("soft", "cell"):
            predicted, achieved = column(rows, f"{name} predicted"), column(rows, f"{name} iou")
            long = far.get(title, [])
            agreed = np.concatenate([column(long, f"{name} iou"), column(long, f"{name} other iou")])
            lines.append([
                title, name, str(len(predicted)), str(others), f"{predicted.mean():.3f}", f"{achieved.mean():.3f}",
                f"{np.corrcoef(predicted, achieved)[0, 1]:.2f}", f"{agreed.mean():.3f}" if len(agreed) else "",
                mean(long, f"{name} covered"), str(len(column(long, f"{name} covered"))),
            ])  # fmt: skip
    return markdown(("network", "preset", "n", "other seeds", "predicted", "achieved", "correlation", "IoU with 3,000",
                     "90 % intervals hold", "n (3,000)"), lines)  # fmt: skip


def _auto(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "long"):
        for name in ("soft", "cell"):
            short = sum(float(row[f"{name} auto predicted"]) < float(row[f"{name} auto level"]) for row in rows)
            heads = ("auto predicted", "auto iou", "auto pearson")
            spent = f"{column(rows, f'{name} auto evaluations').mean():.0f}"
            lines.append([title, name, str(len(rows)), spent, *(mean(rows, f"{name} {h}") for h in heads), str(short)])
    return markdown(("network", "preset", "n", "evaluations", "predicted", "achieved", "Pearson", "short, and say so"),
                    lines)  # fmt: skip


def _curve(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "curve"):
        for name in ("soft", "cell"):
            for head in ("iou", "predicted", "pearson"):
                cells = [mean(rows, f"{name}@{budget} {head}") for budget in BUDGETS]
                lines.append([title, name, {"iou": "IoU", "pearson": "Pearson"}.get(head, head), *cells])
    return markdown(("network", "preset", "", *map(str, BUDGETS)), lines)


def _few(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "curve"):
        for budget in FEW:
            cells = []
            for metric in PAID[:2]:
                cells.append(mean(rows, f"soft@{budget} {metric}"))
                for other in ("scores alone", "kernel SHAP", "shapiq"):
                    _, _, p = against(rows, f"soft@{budget} {metric}", f"{other}@{budget} {metric}")
                    cells.append(f"{mean(rows, f'{other}@{budget} {metric}')} ({p:.2g})")
            lines.append([title, str(budget), str(len(rows)), *cells])
    heads = ("scores alone (p)", "kernel SHAP (p)", "shapiq (p)")
    return markdown(("network", "evaluations", "n", "mean fill: soft", *heads, "noise fill: soft", *heads), lines)


def _moved(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "moved"):
        for name in ("fast", "soft", "cell"):
            cells = [mean(rows, f"{name} {way} {head}") for way in ("jpeg", "shift") for head in ("iou", "pearson")]
            lines.append([title, name, str(len(rows)), *cells])
    return markdown(("network", "preset", "n", "JPEG 95: IoU", "Pearson", "one pixel: IoU", "Pearson"), lines)


def _rivals(every: Mapping[str, Rows]) -> str:
    found = []
    for title, rows in [*steps(every, "rivals"), *steps(every, "rise")]:
        for other in (*RIVALS, "RISE"):
            for metric in PAID[:2]:
                if len(column(rows, f"{other} {metric}")):
                    found.append((title, other, metric, rows, *against(rows, f"soft {metric}", f"{other} {metric}")))
    holm = usu.stats.holm([p for *_, p in found]) if found else []
    return markdown(("network", "rival", "metric", "n", "`soft`", "rival", "shift", "p (Holm)"), [
        [title, other, metric, str(n), mean(rows, f"soft {metric}"), mean(rows, f"{other} {metric}"), f"{shift:+.3f}",
         f"{corrected:.2g}"]
        for (title, other, metric, rows, n, shift, _), corrected in zip(found, holm, strict=True)
    ])  # fmt: skip


def _choices(every: Mapping[str, Rows]) -> str:
    """What agrees with what, when one thing is changed."""
    names = {
        "fill blur seed": ("blur", "another seed"), "fill mean": ("blur", "mean fill"),
        "fill noise": ("blur", "noise fill"), "mean-noise": ("mean fill", "noise fill"),
        "fill drawn": ("blur", "a fill drawn for every group"), "drawn-fill mean": ("drawn", "mean fill"),
        "drawn-fill noise": ("drawn", "noise fill"), "fill drawn seed": ("drawn", "another seed"),
        "segments Felzenszwalb": ("SLIC", "Felzenszwalb"), "segments Tiles": ("SLIC", "square tiles"),
        "segments Watershed": ("SLIC", "watershed"),
    }  # fmt: skip
    lines = []
    for title, rows in steps(every, "choices"):
        for name, told in names.items():
            if len(found := column(rows, f"{name} iou")):
                lines.append([title, *told, str(len(found)), mean(rows, f"{name} iou"), mean(rows, f"{name} pearson")])
    return markdown(("network", "this", "against", "n", "IoU", "Pearson"), lines)


def _fills(every: Mapping[str, Rows]) -> str:
    """Which fill makes the more faithful map, by the fill that judges it."""
    lines = []
    for title, rows in steps(every, "choices"):
        for fill in ("blur", "mean", "noise", "drawn"):
            cells = [mean(rows, f"fill {fill} {metric}") for metric in PAID]
            if any(cells):
                ps = [f"{against(rows, f'fill {fill} {metric}', f'fill blur {metric}')[2]:.2g}" for metric in PAID[:2]]
                lines.append([title, fill, str(len(rows)), *cells, *(("", "") if fill == "blur" else ps)])
    return markdown(("network", "fill of the groups", "n", "ins-del mean", "ins-del noise", "half mean", "half noise",
                     "p to blur (mean)", "p (noise)"), lines)  # fmt: skip


def _outlines(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "outlines"):
        for name in ("bilinear", "guided", "fast", "soft", "cell"):
            n, shift, p = against(rows, f"{name} auroc", "bilinear auroc")
            tail = ("", "") if name == "bilinear" else (f"{shift:+.3f}", f"{p:.2g}")
            lines.append([title.replace("ImageNet", "pets"), name, str(n), mean(rows, f"{name} auroc"), *tail])
    return markdown(("network", "upsampler", "n", "AUROC", "shift to bilinear", "p"), lines)


def _fast(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "fast"):
        for metric in PAID:
            n, shift, p = against(rows, f"fast {metric}", f"bilinear {metric}")
            means = [mean(rows, f"{name} {metric}") for name in ("bilinear", "fast")]
            lines.append([title, metric, str(n), *means, f"{shift:+.3f}", f"{p:.2g}"])
    return markdown(("network", "metric", "n", "bilinear", "`fast`", "shift", "p"), lines)
