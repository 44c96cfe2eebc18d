"""What the page says in words, from the rows of the steps: where numbers change, words do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from experiments.pages import prose
from experiments.stability.cases import FULL, NETWORKS, column
from experiments.stability.chosen import MANY
from experiments.stability.compared import (
    LEVEL,
    PAID,
    Against,
    Rows,
    against,
    changes,
    correlated,
    judged,
    rivalry,
    steps,
    told,
)
from experiments.stability.rivals import SHAPIQ
from experiments.stability.steps import FEW, LONG
from experiments.stability.tables import EARLIER

import usu

#: What was aimed at: the correlation of two seeds, and that of predicted and achieved stability over pictures.
AIMED, AIMED_KNOWN = 0.95, 0.8
#: By how much the two may differ in the mean.
AIMED_GAP = 0.05
#: The IoU of two seeds that was hoped for with so many evaluations.
HOPED, HOPED_AT = 0.9, 600
#: Evaluations that are compared with three times as many of the former presets.
THIRD = 100
#: On pictures of full size: two seeds, and 300 against 3,000 evaluations; `auto`; what a moved picture keeps of `fast`.
AIMED_IOU, AIMED_AUTO, AIMED_KEPT = 0.8, 0.83, 0.9
#: The steps that a network with pictures of full size should have.
WANTED = {
    "seeds": "two seeds", "long": "long runs and `auto`", "curve": "other numbers of evaluations",
    "moved": "moved pictures", "rivals": "other methods", "choices": "fills and segmenters", "outlines": "outlines",
}  # fmt: skip
CALLED = {
    "insertion-deletion mean": "insertion minus deletion, mean fill",
    "insertion-deletion noise": "insertion minus deletion, noise fill",
    "half-deletion mean": "half deletion, mean fill",
    "half-deletion noise": "half deletion, noise fill",
}


def sentences(every: Mapping[str, Rows]) -> dict[str, str]:
    """Every block of words, by its name on the page."""
    return {
        "short": _short(every),
        "paid": _paid(every),
        "record halves": _halves(every),
        "shapiq seeds": _shapiq(every),
        "a third": _third(every),
        "how sure": _how_sure(every),
        "blunter": _blunter(every),
        "ceiling": _ceiling(every),
        "dots": _dots(every),
        "stability not reached": _not_reached(every),
    }


def _mean(rows: Rows, name: str) -> float:
    return float(column(rows, name).mean())


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _short(every: Mapping[str, Rows]) -> str:
    seeds = {short: rows for name, short in FULL.items() if (rows := every.get(f"seeds-{name}"))}
    today = {
        preset: _listed([f"{_mean(rows, f'{preset} iou'):.2f} on {short}" for short, rows in seeds.items()])
        for preset in ("soft", "cell")
    }
    pictures = _listed([str(len(column(rows, "soft iou"))) for rows in seeds.values()])
    kept = {
        way: min(
            _mean(moved, f"{preset} {way} iou") / _mean(moved, f"fast {way} iou")
            for name in FULL if (moved := every.get(f"moved-{name}")) for preset in ("soft", "cell")
        )
        for way in ("jpeg", "shift")
    }  # fmt: skip
    return prose(
        "**In short.** A map made from random groups changes with the seed, and most libraries do not say so. Ours "
        "did: two seeds of `soft` agreed on the 5 % highest pixels by an IoU of "
        f"{_mean(every['seeds-embedded'], 'former soft iou'):.2f}. Today, at the same 300 evaluations and on pictures "
        f"that chose nothing ({pictures}), `soft` has {today['soft']}, `cell` {today['cell']}. {_price(every)} "
        f"A picture that is saved again keeps at least {100 * kept['jpeg']:.1f} %, and one that is shifted by a pixel "
        f"{100 * kept['shift']:.1f} %, of the agreement that `fast` has, which draws no lots. Every result of these "
        "presets says how stable it is: `result.stability` is the expected IoU with another run, from this one run."
    )


def _decided(every: Mapping[str, Rows], metrics: tuple[str, ...], sign: str) -> list[tuple[str, str, str]]:
    """Where today's presets are ahead (+) or behind (-) after correction."""
    found = changes(every)
    return [key for key, (change, p) in found.items() if key[2] in metrics and change.ahead(p) == sign]


def _price(every: Mapping[str, Rows]) -> str:
    lower = _decided(every, PAID, "-")
    if not lower:
        return "No metric of faithfulness is lower for it after correction."
    where = "; ".join(f"`{preset}` on {title} ({CALLED[metric]})" for title, preset, metric in lower)
    return f"It is paid for: faithfulness is lower after correction for {where}."


def _paid(every: Mapping[str, Rows]) -> str:
    tests = {key: p for key, (_, p) in changes(every).items() if p is not None}
    stable = [key for key in tests if key[2] == "iou"]
    higher, faithful = _decided(every, ("iou",), "+"), _decided(every, PAID, "+")
    return prose(
        f"Of {len(tests)} tests against the former presets (Wilcoxon, paired by picture, 5 % after Holm), "
        f"{len(stable)} are of the IoU: {len(higher)} find it higher, {len(_decided(every, ('iou',), '-'))} lower. "
        f"{len(tests) - len(stable)} are of faithfulness: {len(faithful)} find it higher, "
        f"{len(_decided(every, PAID, '-'))} lower. What is decided is marked (+, -). Every test is in "
        "[the record](appendix/stability.md)."
    )


def _halves(every: Mapping[str, Rows]) -> str:
    """Half deletion means nothing where it is near zero for everybody."""
    flat = []
    for title, rows in steps(every, "seeds", whole=False):
        found = [_mean(rows, f"{name} {metric}") for name in ("soft", "cell", "scores alone") for metric in PAID[2:]]
        if max(map(abs, found)) < LEVEL:
            flat.append(title)
    if not flat:
        return "On every network some preset has a half deletion above .05."
    return prose(
        f"Half deletion is below .05 for everybody on {_listed(flat)}: with half of every cell gone the network no "
        "longer knows the class."
    )


def _word(found: Against, p: float | None) -> str:
    sign = found.ahead(p)
    return {"+": "behind `soft`", "-": "ahead of `soft`", "": "not told from `soft`"}[sign]


def _not_reached(every: Mapping[str, Rows]) -> str:
    lines = [_alone(every), *_less_stable(every), *_softer(every)]
    seeds = dict(steps(every, "seeds", whole=False))
    loose = [
        f"`{preset}` on {title} {value:.3f}"
        for title, rows in seeds.items()
        for preset in ("soft", "cell")
        if (value := _mean(rows, f"{preset} pearson")) < AIMED
    ]
    if loose:
        lines.append(f"- **Two seeds correlate by less than the {AIMED} that was aimed at**: {_listed(loose)}.")
    less = [
        f"`{preset}` on {title}, {CALLED[metric]} ({found.one:.3f} against {found.other:.3f})"
        for (title, preset, metric), (found, _) in changes(every).items()
        if title in seeds and metric in PAID and found.n and found.one < found.other
    ]
    if less:
        lines.append(f"- **Lower than before in the mean, decided or not**: {_listed(less)}.")
    blind = [
        f"`{preset}` on {title} {value:.2f}"
        for title, (rows, _) in judged(every).items()
        for preset in ("soft", "cell")
        if (value := correlated(rows, preset)) < AIMED_KNOWN
    ]
    if blind:
        lines.append(
            "- **Predicted and achieved stability** correlate over pictures by less than the "
            f"{AIMED_KNOWN} that was aimed at: {_listed(blind)}."
        )
    apart = [
        f"`{preset}` on {title} ({predicted:.3f} against {achieved:.3f})"
        for title, (rows, _) in judged(every).items()
        for preset in ("soft", "cell")
        for predicted, achieved in [(_mean(rows, f"{preset} predicted"), _mean(rows, f"{preset} iou"))]
        if abs(predicted - achieved) > AIMED_GAP
    ]
    if apart:
        lines.append(
            f"- **Predicted and achieved stability** differ in the mean by more than the {AIMED_GAP} that was aimed "
            f"at: {_listed(apart)}."
        )
    lines += [*_outside(every), *_behind(every), *_missing(every)]
    return prose(*lines)


def _less_stable(every: Mapping[str, Rows]) -> list[str]:
    """Where an IoU is below what was aimed at."""
    found: dict[str, list[str]] = {}
    for name, title in FULL.items():
        rows, long, moved = (every.get(f"{step}-{name}", ()) for step in ("seeds", "long", "moved"))
        for preset in ("soft", "cell"):
            values = [
                (f"two seeds at 300 evaluations, aim {AIMED_IOU:.2f}", AIMED_IOU, column(rows, f"{preset} iou")),
                (
                    f"300 against {LONG:,} evaluations, aim {AIMED_IOU:.2f}",
                    AIMED_IOU,
                    np.concatenate([column(long, f"{preset} {other}iou") for other in ("", "other ")]),
                ),
                (f"`auto` with a ceiling of 1,200, aim {AIMED_AUTO}", AIMED_AUTO, column(long, f"{preset} auto iou")),
            ]
            values += [
                (
                    f"{told_of}, as a part of what `fast` has, aim {AIMED_KEPT}",
                    AIMED_KEPT,
                    column(moved, f"{preset} {way} iou").mean(keepdims=True) / column(moved, f"fast {way} iou").mean(),
                )
                for way, told_of in (("jpeg", "saved again"), ("shift", "shifted by a pixel"))
                if moved
            ]
            for aim, least, value in values:
                if len(value) and value.mean() < least:
                    found.setdefault(aim, []).append(f"`{preset}` on {title} {value.mean():.3f}")
    lines = [f"- **Less stable than was aimed at** ({aim}): {_listed(short)}." for aim, short in found.items()]
    hoped = [
        f"`{preset}` on {title} {value:.3f} (n {len(rows)})"
        for name, title in FULL.items()
        for preset in ("soft", "cell")
        if len(rows := column(every.get(f"curve-{name}", ()), f"{preset}@{HOPED_AT} iou"))
        and (value := float(rows.mean())) < HOPED
    ]
    if hoped:
        lines.append(f"- **Two seeds at {HOPED_AT} evaluations** were hoped to agree by {HOPED:.2f}: {_listed(hoped)}.")
    return lines


def _behind(every: Mapping[str, Rows]) -> list[str]:
    """Other methods that are decided to be ahead of `soft`."""
    found = [
        f"{other} on {title}, {CALLED[metric]} ({one.other:.3f} against {one.one:.3f})"
        for (title, other, metric), (one, p) in rivalry(every).items()
        if one.ahead(p) == "-"
    ]
    return [f"- **Ahead of `soft`**, decided: {_listed(found)}."] if found else []


def _outside(every: Mapping[str, Rows]) -> list[str]:
    """Where outlines are worse than bilinear's."""
    found = [
        f"`{preset}` on {title} {one.one:.3f} against {one.other:.3f} (p {told(one.p)})"
        for title, rows in steps(every, "outlines", whole=False)
        for preset in ("soft", "cell")
        if (one := against(rows, f"{preset} auroc", "bilinear auroc")).n and one.one < one.other
    ]
    return [f"- **Outlines no better than bilinear's in the mean**: {_listed(found)}."] if found else []


NOTHING = "nothing that can be told"


def _softer(every: Mapping[str, Rows]) -> list[str]:
    """What the softer `cell` gained at even places, and its price."""
    now, then = usu.PRESETS["cell"].temperature, EARLIER[0]
    gained, costs = _traded(every, f"ordered cell@{now}", f"cell@{then}")
    if not gained:
        return []
    return [
        f"- **`cell` became softer, and not for nothing.** At even places a temperature of {now} instead of {then}, "
        f"with empty cells in order, takes two seeds {_listed(gained)}. It costs {_listed(costs)}."
    ]


def _traded(every: Mapping[str, Rows], ours: str, theirs: str) -> tuple[list[str], list[str]]:
    """For every network the change of the IoU, and what is significantly lower for it."""
    gains, costs = [], []
    for name, title in FULL.items():
        if rows := every.get(f"softer-{name}"):
            found = {metric: against(rows, f"{ours} {metric}", f"{theirs} {metric}") for metric in ("iou", *PAID)}
            iou = found.pop("iou")
            gains.append(f"from {iou.other:.2f} to {iou.one:.2f} on {title} (n {iou.n})")
            paid = [
                f"{CALLED[metric]}, {one.other:.3f} to {one.one:.3f} (p {told(one.p)})"
                for metric, one in found.items()
                if one.ahead(one.p) == "-"
            ]
            costs.append(f"on {title} {'; '.join(paid) or NOTHING}")
    return gains, costs


def _alone(every: Mapping[str, Rows]) -> str:
    """What the coarse map buys."""
    tested, title = rivalry(every), NETWORKS["embedded"][1]
    (first, p), (second, q) = (tested[title, "scores alone", metric] for metric in PAID[:2])
    seeds, rows = every["seeds-embedded"], every["few-embedded"]
    few = against(rows, f"soft@{FEW[0]} {PAID[1]}", f"scores alone@{FEW[0]} {PAID[1]}")
    return (
        f"- **Scores alone**, without any coarse map, are {_word(first, p)} with the mean fill ({first.other:.3f} "
        f"against {first.one:.3f}) and {_word(second, q)} with the noise fill ({second.other:.3f} against "
        f"{second.one:.3f}) on {title}. What the coarse map buys is stability (an IoU of "
        f"{_mean(seeds, 'soft iou'):.2f} instead of {_mean(seeds, 'scores alone iou'):.2f}) and faithfulness at very "
        f"few evaluations ({few.one:.3f} instead of {few.other:.3f} at {FEW[0]} with the noise fill, p {told(few.p)})."
    )


def _how_sure(every: Mapping[str, Rows]) -> str:
    """What one run promises, and what is kept of it, where groups are few."""
    found = []
    for budget in FEW:
        gaps = [
            _mean(rows, f"{preset}@{budget} predicted") - _mean(rows, f"{preset}@{budget} iou")
            for _, rows in steps(every, "curve", whole=False)
            for preset in ("soft", "cell")
        ]
        found.append(f"{min(gaps):+.2f} to {max(gaps):+.2f} at {budget}")
    return prose(
        f"**With few evaluations, too.** Predicted minus achieved, means of networks and presets: {_listed(found)}."
    )


def _blunter(every: Mapping[str, Rows]) -> str:
    """What larger segments gain and cost, where evaluations are few."""
    found = []
    for title, rows in steps(every, "fewer"):
        for head, called in (("iou", "two seeds"), ("far", f"a run of {MANY}")):
            one = against(rows, f"fewer@{THIRD} {head}", f"all@{THIRD} {head}")
            lead = f"on {title} (n {one.n}) " if head == "iou" else ""
            found.append(f"{lead}{called} {one.one:.2f} instead of {one.other:.2f} (p {told(one.p)})")
    return prose(f"IoU at {THIRD} evaluations, with these segments instead of all, at even places: {'; '.join(found)}.")


def _ceiling(every: Mapping[str, Rows]) -> str:
    """How often the presets' own ceiling ends a run before it is stable."""
    found = []
    for title, rows in steps(every, "default"):
        for preset in ("soft", "cell"):
            level = column(rows, f"{preset} auto level")
            short = int((column(rows, f"{preset} auto predicted") < level).sum())
            found.append(f"{short} of {len(rows)} (`{preset}`, {title})")
    return prose(f"Below the level at their own ceiling, and told so: {_listed(found)}.")


def _third(every: Mapping[str, Rows]) -> str:
    """A third of the evaluations, against the former presets with all of them."""
    found = []
    for title, rows in steps(every, "curve", whole=False):
        before = {row["picture"]: row for row in dict(steps(every, "seeds", whole=False)).get(title, ())}
        for preset in ("soft", "cell"):
            both = [{**before.get(row["picture"], {}), **row} for row in rows]
            measure = "iou" if title in FULL.values() else "pearson"
            one = against(both, f"{preset}@{THIRD} {measure}", f"former {preset} {measure}")
            if one.n:
                found.append(
                    f"`{preset}` on {title} {one.one:.2f} against {one.other:.2f} (n {one.n}, p {told(one.p)})"
                )
    return prose(
        f"**A third of the evaluations.** IoU of two seeds (on CIFAR-10 their correlation) at {THIRD} evaluations, "
        f"against the former presets at 300 on the same pictures: {_listed(found)}."
    )


def _shapiq(every: Mapping[str, Rows]) -> str:
    """What two seeds of the others agree on."""
    rows, seeds, title = every["few-embedded"], every["seeds-embedded"], NETWORKS["embedded"][1]
    found = [f"{name} {_mean(rows, f'shapiq {name}@{FEW[-1]} iou'):.2f}" for name in SHAPIQ]
    return prose(
        f"Two seeds agree less: on {title} the IoU of the 5 % highest pixels at {FEW[-1]} evaluations is "
        f"{_listed(found)} (n {len(rows)}), that of `soft` {_mean(seeds, 'soft iou'):.2f}."
    )


def _dots(every: Mapping[str, Rows]) -> str:
    """What a pattern that is the same on every seed did to the maps of ResNet-50, and what its end did."""

    def changed(step: str, name: str) -> str:
        then, now = (every[f"{step}-resnet50{end}"] for end in ("_dots", ""))
        same = [row for row in then if row["picture"] in {one["picture"] for one in now}]
        return f"{_mean(same, f'soft {name}'):.2f} to {_mean(now, f'soft {name}'):.2f}"

    return prose(
        f"From the dots to their end, `soft` on the same pictures: AUROC {changed('outlines', 'auroc')}; insertion "
        f"minus deletion {changed('seeds', PAID[0])}; IoU of two seeds {changed('seeds', 'iou')}."
    )


def _missing(every: Mapping[str, Rows]) -> list[str]:
    lines = []
    for name, short in FULL.items():
        counts = {step: sum(len(row) > 1 for row in every.get(f"{step}-{name}", ())) for step in WANTED}
        missing = [WANTED[step] for step, n in counts.items() if not n]
        most = max(counts.values())
        fewer = [f"{WANTED[step]} {n}" for step, n in counts.items() if 0 < n < most / 2]
        told_of = [f"not run: {_listed(missing)}"] if missing else []
        told_of += [f"few pictures: {_listed(fewer)} (the most has {most})"] if fewer else []
        if told_of:
            lines.append(f"- **{short}** with today's segments: {'; '.join(told_of)}.")
    return lines
