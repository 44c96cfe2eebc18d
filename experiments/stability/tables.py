"""The page's tables, from the rows of the steps. ``every`` has the rows of ``STEP-NETWORK`` by that name."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from experiments.pages import markdown, once
from experiments.stability.cases import FULL, column
from experiments.stability.chosen import MANY, SHARPER, SIDES, TEMPERATURES
from experiments.stability.compared import (
    FEWEST,
    PAID,
    Rows,
    against,
    changes,
    correlated,
    judged,
    mean,
    rivalry,
    steps,
    told,
    whole,
)  # fmt: skip
from experiments.stability.rivals import SHAPIQ
from experiments.stability.steps import BUDGETS, FEW, LONG

import usu

#: Temperatures that were tried when every empty cell still had the same trace; the first was that of `cell`.
EARLIER = (0.3, 0.4, 0.5, 0.7)
#: And those that were tried with a weaker coarse map when the traces were in order.
WEAKER = (0.5, 0.7, 0.85, 1.0)


def tables(every: Mapping[str, Rows]) -> dict[str, str]:
    """Every table that can be made of these rows, by its name on the page; those of the record have all rows."""
    return {
        "presets": _presets(every), "record presets": _all_presets(every), "record paid": _paid(every),
        "known": _known(every), "record known": _known(every, whole=True),
        "auto": _auto(every), "record auto": _auto(every, whole=True), "record curve": _curve(every),
        "few": _few(every, PAID[0], FULL.values()), "record few": _few(every, PAID[0]),
        "record few noise": _few(every, PAID[1]),
        "moved": _moved(every), "rivals": _rivals(every), "record rivals": _all_rivals(every),
        "choices": _choices(every, FULL.values()), "record choices": _choices(every),
        "fills": _fills(every, FULL.values()), "record fills": _fills(every), "outlines": _outlines(every),
        "fast": _fast(every), "record softer": _softer(every), "record coarser": _coarser(every),
        "record fewer": _fewer(every),
        "record refined": _refined(every), "randomised": _randomised(every),
    }  # fmt: skip


def _presets(every: Mapping[str, Rows]) -> str:
    """One line a network and preset, beside the former one on the same pictures."""
    lines, tested = [], changes(every)
    for title, rows in steps(every, "seeds", whole=False):
        for name in ("soft", "cell", "scores alone"):
            cells = []
            for metric in ("iou", *PAID[:2]):
                change, p = tested.get((title, name, metric), (None, None))
                mark = f" {change.ahead(p)}".rstrip() if change else ""
                cells += [f"{mean(rows, f'{name} {metric}', 2)}{mark}", mean(rows, f"former {name} {metric}", 2)]
            n = [len(column(rows, f"{own} iou")) for own in (name, f"former {name}")]
            shown = f"{n[0]} ({n[1]})" if n[1] not in (0, n[0]) else f"{n[0]}"
            correlation = mean(rows, f"{name} pearson", 2)
            lines.append([title, name, shown, *cells[:2], correlation, *cells[2:]])
    return markdown(("network", "preset", "n", "IoU", "before", "correlation", "mean fill", "before", "noise fill",
                     "before"), once(lines))  # fmt: skip


def _all_presets(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "seeds"):
        for name in ("soft", "former soft", "cell", "former cell", "scores alone"):
            cells = [mean(rows, f"{name} {head}") for head in ("iou", "pearson", *PAID)]
            lines.append([title, name, str(len(column(rows, f"{name} iou"))), *cells])
    return markdown(("network", "preset", "n", "IoU", "Pearson", "ins-del mean", "ins-del noise", "half mean",
                     "half noise"), once(lines))  # fmt: skip


def _paid(every: Mapping[str, Rows]) -> str:
    return markdown(("network", "preset", "metric", "n", "shift", "p", "p (Holm)"), once(
        [title, name, metric, str(one.n), f"{one.shift:+.3f}", told(one.p), told(p)]
        for (title, name, metric), (one, p) in changes(every).items()
    ))  # fmt: skip


def _known(every: Mapping[str, Rows], *, whole: bool = False) -> str:
    lines = []
    far = dict(steps(every, "long"))
    for title, (rows, others) in judged(every, whole=whole).items():
        for name in ("soft", "cell"):
            predicted, achieved = column(rows, f"{name} predicted"), column(rows, f"{name} iou")
            long = far.get(title, [])
            agreed = np.concatenate([column(long, f"{name} iou"), column(long, f"{name} other iou")])
            lines.append([
                title, name, str(len(predicted)), str(others), f"{predicted.mean():.3f}", f"{achieved.mean():.3f}",
                f"{correlated(rows, name):.2f}", f"{agreed.mean():.3f}" if len(agreed) else "-",
                mean(long, f"{name} covered"), str(len(column(long, f"{name} covered")) or "not run"),
            ])  # fmt: skip
    return markdown(("network", "preset", "n", "runs", "predicted", "achieved", "correlation",
                     f"IoU with {LONG:,}", "90 % intervals hold", f"pictures ({LONG:,})"), once(lines))  # fmt: skip


def _auto(every: Mapping[str, Rows], *, whole: bool = False) -> str:
    lines = []
    for step, ceiling in (("default", usu.PRESETS["soft"].ceiling), ("long", BUDGETS[-1])):
        for title, rows in steps(every, step, whole=whole):
            for name in ("soft", "cell"):
                short = sum(float(row[f"{name} auto predicted"]) < float(row[f"{name} auto level"]) for row in rows)
                heads = ("auto predicted", "auto iou", "auto pearson")
                spent = f"{column(rows, f'{name} auto evaluations').mean():.0f}"
                cells = (mean(rows, f"{name} {head}") for head in heads)
                lines.append([f"{ceiling:,}", title, name, str(len(rows)), spent, *cells, str(short)])
    return markdown(("ceiling", "network", "preset", "n", "evaluations", "predicted", "achieved", "Pearson",
                     "told to be below"), once(lines))  # fmt: skip


def _curve(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, found in steps(every, "curve"):
        rows = whole(found)
        for name in ("soft", "cell"):
            for head in ("iou", "predicted", "pearson"):
                cells = [mean(rows, f"{name}@{budget} {head}") for budget in BUDGETS]
                called = {"iou": "IoU", "pearson": "Pearson"}.get(head, head)
                lines.append([title, str(len(rows)), name, called, *cells])
    return markdown(("network", "n", "preset", "", *map(str, BUDGETS)), once(lines))


def _few(every: Mapping[str, Rows], metric: str, of: Collection[str] | None = None) -> str:
    lines = []
    others = ("scores alone", "kernel SHAP", *(f"shapiq {name}" for name in SHAPIQ))
    for title, rows in steps(every, "few", whole=False, of=of):
        for budget in FEW:
            cells = [mean(rows, f"soft@{budget} {metric}")]
            for other in others:
                found = against(rows, f"soft@{budget} {metric}", f"{other}@{budget} {metric}")
                cells.append(f"{found.other:.3f} ({told(found.p)})" if found.n >= FEWEST else "-")
            pictures = len(column(rows, f"soft@{budget} {metric}"))
            lines.append([title, str(budget), str(pictures), *cells])
    return markdown(("network", "evaluations", "n", "`soft`", *(f"{other} (p)" for other in others)), once(lines))


def _moved(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "moved", whole=False):
        for name in ("fast", "soft", "cell"):
            cells = [mean(rows, f"{name} {way} {head}") for way in ("jpeg", "shift") for head in ("iou", "pearson")]
            lines.append([title, name, str(len(rows)), *cells])
    return markdown(("network", "preset", "n", "JPEG 95: IoU", "Pearson", "one pixel: IoU", "Pearson"), once(lines))


def _rivals(every: Mapping[str, Rows]) -> str:
    """One line a rival, all networks beside each other."""
    tested = rivalry(every)
    titles, others = (dict.fromkeys(key[place] for key in tested) for place in (0, 1))
    most = {title: max(one.n for key, (one, _) in tested.items() if key[0] == title) for title in titles}
    first, last = ["`soft`"], ["pictures"]
    for title in titles:
        counts = {other: found[0].n for other in others if (found := tested.get((title, other, PAID[0])))}
        whole = next(other for other, n in counts.items() if n == most[title])
        first += [f"{tested[title, whole, metric][0].one:.3f}" for metric in PAID[:2]]
        fewer = [f"{other} {n}" for other, n in counts.items() if n < most[title]]
        last += [f"{most[title]}" + f" ({', '.join(fewer)})" * bool(fewer), ""]
    lines = []
    for other in others:
        cells = []
        for title in titles:
            for metric in PAID[:2]:
                found, p = tested.get((title, other, metric), (None, None))
                cells.append("-" if found is None else f"{found.other:.3f} {found.ahead(p)}".rstrip())
        lines.append([other, *cells])
    heads = [f"{title}: {fill}" for title in titles for fill in ("mean", "noise")]
    return markdown(("method", *heads), (first, *lines, last))


def _all_rivals(every: Mapping[str, Rows]) -> str:
    """One line a network and rival: both fills beside each other."""
    tested = rivalry(every)
    lines = []
    for title, other in dict.fromkeys((title, other) for title, other, _ in tested):
        cells = []
        for metric in PAID[:2]:
            found, p = tested[title, other, metric]
            cells += [f"{found.one:.3f}", f"{found.other:.3f}", told(p)]
        lines.append([title, other, str(found.n), *cells])
    return markdown(("network", "rival", "n", "mean fill: `soft`", "rival", "p (Holm)", "noise fill: `soft`", "rival",
                     "p (Holm)"), once(lines))  # fmt: skip


def _choices(every: Mapping[str, Rows], of: Collection[str] | None = None) -> str:
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
    for title, rows in steps(every, "choices", whole=False, of=of):
        for name, words in names.items():
            if len(found := column(rows, f"{name} iou")):
                lines.append([title, *words, str(len(found)), mean(rows, f"{name} iou"), mean(rows, f"{name} pearson")])
    return markdown(("network", "this", "against", "n", "IoU", "Pearson"), once(lines))


def _fills(every: Mapping[str, Rows], of: Collection[str] | None = None) -> str:
    """Which fill makes the more faithful map, by the fill that judges it."""
    lines = []
    for title, rows in steps(every, "choices", whole=False, of=of):
        for fill in ("blur", "mean", "noise", "drawn"):
            if len(found := column(rows, f"fill {fill} {PAID[0]}")):
                cells = [mean(rows, f"fill {fill} {metric}") for metric in PAID]
                ps = [told(against(rows, f"fill {fill} {metric}", f"fill blur {metric}").p) for metric in PAID[:2]]
                lines.append([title, fill, str(len(found)), *cells, *(("", "") if fill == "blur" else ps)])
    return markdown(("network", "fill of the groups", "n", "ins-del mean", "ins-del noise", "half mean", "half noise",
                     "p to blur (mean)", "p (noise)"), once(lines))  # fmt: skip


def _outlines(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "outlines", whole=False):
        for name in ("bilinear", "guided", "fast", "soft", "cell"):
            found = against(rows, f"{name} auroc", "bilinear auroc")
            tail = ("", "") if name == "bilinear" else (f"{found.shift:+.3f}", told(found.p))
            lines.append([f"{title}, pets", name, str(found.n), f"{found.one:.3f}", *tail])
    return markdown(("network", "upsampler", "n", "AUROC", "shift to bilinear", "p"), once(lines))


def _fast(every: Mapping[str, Rows]) -> str:
    lines = []
    for title, rows in steps(every, "fast", whole=False):
        for metric in PAID:
            one = against(rows, f"fast {metric}", f"bilinear {metric}")
            lines.append([title, metric, str(one.n), f"{one.other:.3f}", f"{one.one:.3f}", f"{one.shift:+.3f}",
                          told(one.p)])  # fmt: skip
    return markdown(("network", "metric", "n", "bilinear", "`fast`", "shift", "p"), once(lines))


def _softer(every: Mapping[str, Rows]) -> str:
    """What a higher temperature gains and costs, beside that of the former presets."""
    lines = []
    kinds = {
        "soft": ("`soft`", "soft", EARLIER), "cell": ("`cell`, traces alike", "cell", EARLIER),
        "weaker cell": ("the same, coarse map ¼", "cell", EARLIER),
        "ordered cell": ("`cell`, traces in order", "cell", TEMPERATURES),
        "ordered weaker cell": ("the same, coarse map ¼", "cell", WEAKER),
    }  # fmt: skip
    for title, rows in steps(every, "softer"):
        for name, (called, preset, temperatures) in kinds.items():
            for temperature in temperatures:
                at, usual = f"{name}@{temperature}", f"{preset}@{EARLIER[0]}"
                n = len(column(rows, f"{at} iou"))
                if not n:
                    continue
                cells = [mean(rows, f"{at} iou"), mean(rows, f"{at} shift iou")]
                for metric in PAID:
                    one = against(rows, f"{at} {metric}", f"{usual} {metric}")
                    cells.append(f"{one.one:.3f}" + ("" if at == usual else f" ({told(one.p)})"))
                lines.append([title, called, str(n), str(temperature), *cells])
        lines.append([title, "`fast`", str(len(column(rows, "fast shift iou"))), "-", "-", mean(rows, "fast shift iou"),
                      *["-"] * len(PAID)])  # fmt: skip
    return markdown(("network", "preset", "n", "temperature", "IoU", "one pixel", "ins-del mean (p)",
                     "ins-del noise (p)", "half mean (p)", "half noise (p)"), once(lines))  # fmt: skip


def _coarser(every: Mapping[str, Rows]) -> str:
    """What a sharper `cell` gains and costs where cells are large."""
    lines = []
    for title, rows in steps(every, "coarser"):
        for side in SIDES:
            for temperature in SHARPER:
                at, usual = f"{side}@{temperature}", f"{side}@{SHARPER[-1]}"
                found = [against(rows, f"{at} {metric}", f"{usual} {metric}") for metric in ("iou", *PAID)]
                if found[0].n:
                    cells = [f"{one.one:.3f}" + ("" if at == usual else f" ({told(one.p)})") for one in found]
                    lines.append([title, f"{side} x {side}", str(found[0].n), str(temperature), *cells])
    return markdown(("network", "cells", "n", "temperature", "IoU (p)", "ins-del mean (p)", "ins-del noise (p)",
                     "half mean (p)", "half noise (p)"), once(lines))  # fmt: skip


def _fewer(every: Mapping[str, Rows]) -> str:
    """What larger segments gain and cost where evaluations are few."""
    lines = []
    for title, rows in steps(every, "fewer"):
        for budget in FEW[:-1]:
            for name, called in (("all", "all"), ("fewer", "a quarter")):
                at, usual = f"{name}@{budget}", f"all@{budget}"
                found = [against(rows, f"{at} {metric}", f"{usual} {metric}") for metric in ("iou", "far", *PAID)]
                cells = [f"{one.one:.3f}" + ("" if at == usual else f" ({told(one.p)})") for one in found]
                lines.append([title, str(budget), called, str(found[0].n), mean(rows, f"{at} pearson"), *cells])
    return markdown(("network", "evaluations", "segments", "n", "Pearson", "IoU (p)", f"IoU with {MANY} (p)",
                     "ins-del mean (p)", "ins-del noise (p)", "half mean (p)", "half noise (p)"),
                    once(lines))  # fmt: skip


def _refined(every: Mapping[str, Rows]) -> str:
    """What further rounds and finer pieces gain and cost."""
    kinds = {"plain": "`soft`", "pieces": "in pieces", "one round": "one more round", "two rounds": "two more rounds"}
    lines = []
    for title, rows in steps(every, "refined"):
        for name, called in kinds.items():
            cells = [mean(rows, f"{name} predicted")]
            for metric in ("iou", *PAID):
                one = against(rows, f"{name} {metric}", f"plain {metric}")
                cells.append(f"{one.one:.3f}" + ("" if name == "plain" else f" ({told(one.p)})"))
            lines.append([title, called, str(len(rows)), *cells])
    return markdown(("network", "map", "n", "predicted", "IoU (p)", "ins-del mean (p)", "ins-del noise (p)",
                     "half mean (p)", "half noise (p)"), once(lines))  # fmt: skip


def _randomised(every: Mapping[str, Rows]) -> str:
    """What is left of a map when the weights are shuffled: by rank of all pixels, and of the highest ones."""
    lines = []
    for title, rows in steps(every, "randomised"):
        for name in ("bilinear", "fast", "soft", "cell"):
            ranks = column(rows, f"{name} rank")
            sizes = (f"{value:.2f}" for value in (ranks.mean(), np.abs(ranks).mean()))
            lines.append([title, name, str(len(ranks)), *sizes, mean(rows, f"{name} iou", 2)])
    return markdown(("network", "map", "n", "mean rank correlation", "mean of its size", "IoU"), once(lines))
