"""What README and pages say in words of the measurements, each beside the rows that it stands on.

A row that changed may make a sentence wrong. Its test fails then and names it: change the sentence, there and here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from experiments.benchmark.__main__ import read
from experiments.benchmark.told import different, factor, models, verdicts
from experiments.evidence import Evidence
from experiments.stability.__main__ import rows_of
from experiments.stability.cases import NETWORKS, column
from experiments.stability.compared import LEVEL, PAID, against
from experiments.stability.rivals import SHAPIQ
from experiments.stability.sentences import AIMED_IOU, AIMED_KEPT, FULL
from experiments.stability.steps import FEW

from tests.contracts.source import ROOT
from usu.bench.report import FAITHFUL, Group, grouped
from usu.settings import PRESETS

RESULTS = ROOT / "docs" / "results"
EMBEDDED = NETWORKS["embedded"][1]
#: Above this a gain in raw infidelity would be one.
GAIN = 2


@cache
def step(name: str) -> list[dict[str, str]]:
    return rows_of(RESULTS / "stability" / f"{name}.csv")


@cache
def groups(name: str) -> list[Group]:
    return different(grouped(read(name), "bilinear", resamples=50))


@cache
def evidence() -> Evidence:
    return Evidence(RESULTS / "evidence.csv")


def mean(name: str, what: str) -> float:
    return float(column(step(name), what).mean())


def helps(plan: str, model: str, upsampler: str = "soft") -> int:
    """On how many sources and metrics it is better, less those on which it is worse."""
    own = models(groups(plan))[model]
    found = [verdict for metric in FAITHFUL for verdict in verdicts(own, upsampler, metric)]
    return found.count("better") - found.count("worse")


def no_gain() -> bool:
    return max(factor(group) for plan in ("main", "cross-method") for group in groups(plan)) < GAIN


def most_helpful() -> bool:
    own = models(groups("cross-method"))
    sums = {name: sum(helps("cross-method", model, name) for model in own) for name in
            ("paper", "paper-iwmr", "cell", "soft", "fast")}  # fmt: skip
    return max(sums, key=lambda name: sums[name]) == "soft" and min(helps("cross-method", model) for model in own) <= 0


def fills_differ() -> bool:
    """A fill changes more than a seed does."""
    return most_alike("fill mean", "fill noise") < mean("choices-embedded", "fill blur seed iou")


def most_alike(*pairs: str) -> float:
    return max(mean("choices-embedded", f"{pair} iou") for pair in pairs)


def drawn_agrees() -> bool:
    """A fill drawn by lot is nearer to each fill than they are to each other; and less stable."""
    apart = most_alike("fill mean", "fill noise", "mean-noise")
    near = min(
        mean("choices-embedded", f"{pair} iou") for pair in ("fill drawn", "drawn-fill mean", "drawn-fill noise")
    )
    return near > apart and most_alike("fill drawn seed") < most_alike("fill blur seed")


def drawn_is_more_faithful() -> bool:
    """For how many of the judges, by network."""
    found = {
        name: [against(step(f"choices-{name}"), f"fill drawn {metric}", f"fill blur {metric}") for metric in PAID[:2]]
        for name in ("vit_s14_cifar10", "vgg16_cifar10")
    }
    return [sum(one.ahead(one.p) == "+" for one in own) for own in found.values()] == [2, 1]


def moved_more_than_seeds() -> bool:
    """`fast`, which draws nothing, loses about as much by one pixel: the share of the network itself."""
    return mean("moved-embedded", "fast shift iou") < 0.9


def stable_by_the_coarse_map() -> bool:
    found = against(step("seeds-embedded"), "soft iou", "scores alone iou")
    return found.shift > 0 and found.p is not None and found.p < LEVEL


def softer_is_a_trade() -> bool:
    """More stable on both networks at .5; behind in some metric on one of them."""
    iou, half = (
        {name: against(step(f"softer-{name}"), f"cell@0.5 {metric}", f"cell@0.3 {metric}") for name in FULL}
        for metric in ("iou", "half-deletion noise")
    )
    more = all(found.ahead(found.p) == "+" for found in iou.values())
    return more and any(found.ahead(found.p) == "-" for found in half.values())


def cell_became_softer() -> bool:
    """More stable on both networks; behind in something on one of them."""
    now, then = f"ordered cell@{PRESETS['cell'].temperature}", "cell@0.3"
    found = {
        metric: [against(step(f"softer-{name}"), f"{now} {metric}", f"{then} {metric}") for name in FULL]
        for metric in ("iou", *PAID)
    }
    more = all(one.ahead(one.p) == "+" for one in found.pop("iou"))
    return more and any(one.ahead(one.p) == "-" for each in found.values() for one in each)


def sharper_helps() -> bool:
    """In 2 x 2 cells, on all networks but one, at the price of stability on all, and of another metric on one."""
    signs = {}
    for name in NETWORKS:
        for metric in ("iou", *PAID):
            one = against(step(f"coarser-{name}"), f"2@0.4 {metric}", f"2@0.8 {metric}")
            signs[name, metric] = one.ahead(one.p)
    helped = {name for name in NETWORKS if signs[name, PAID[0]] == "+"}
    stable = all(signs[name, "iou"] == "-" for name in NETWORKS)
    return helped == set(NETWORKS) - {"resnet50"} and stable and signs["vgg16_cifar10", PAID[1]] == "-"


def larger_agree_more() -> bool:
    """On every network they were tried on; in faithfulness behind on none."""
    known = [rows for name in NETWORKS if (rows := step(f"fewer-{name}"))]
    signs = {
        metric: {
            one.ahead(one.p)
            for rows in known
            for n in FEW[:-1]
            if (one := against(rows, f"fewer@{n} {metric}", f"all@{n} {metric}"))
        }
        for metric in ("iou", *PAID)
    }
    return len(known) > 2 and signs.pop("iou") == {"+"} and not any("-" in found for found in signs.values())


def order_helps() -> bool:
    """The same temperature and coarse map, with and without an order among empty cells."""
    found = [against(step(f"softer-{name}"), f"ordered weaker cell@0.5 {metric}", f"weaker cell@0.5 {metric}")
             for name in FULL for metric in PAID[:2]]  # fmt: skip
    return any(one.ahead(one.p) == "+" for one in found) and not any(one.ahead(one.p) == "-" for one in found)


#: The page, what stands there, and whether it is so.
CLAIMS: list[tuple[str, str, Callable[[], bool]]] = [
    ("README.md", "with Grad-CAM, yes", lambda: evidence().decided(
        "soft", "bilinear", "insertion-deletion") == 1),
    ("README.md", "what the coarse map buys is stability", stable_by_the_coarse_map),
    ("README.md", "no more faithful than `fast`", lambda: evidence().mean("cell", "insertion-deletion")
     <= evidence().mean("fast", "insertion-deletion")),
    ("README.md", "The paper's own gain did not come back", no_gain),
    ("docs/evidence.md", "The gain that the paper reports does not come back", no_gain),
    ("docs/benchmark.md", "The paper's gain does not come back", no_gain),
    ("docs/benchmark.md", "`soft` is the one that helps, and not on every network", most_helpful),
    ("docs/benchmark.md", "the factor is gone", no_gain),
    ("docs/stability.md", "What the coarse map buys is stability", stable_by_the_coarse_map),
    ("docs/stability.md", "and faithfulness at very few evaluations", lambda: mean(
        "few-embedded", "soft@30 insertion-deletion noise") > mean(
        "few-embedded", "scores alone@30 insertion-deletion noise")),
    ("docs/stability.md", "What the fill changes is no noise", fills_differ),
    ("docs/stability.md", "agrees with each fill better than they agree with each other", drawn_agrees),
    ("docs/stability.md", "than blur for both judges on the ViT, for one on VGG-16", drawn_is_more_faithful),
    ("docs/stability.md", "Two seeds agree less", lambda: all(
        mean("few-embedded", f"shapiq {one}@300 iou") < mean("seeds-embedded", "soft iou") for one in SHAPIQ)),
    ("docs/stability.md", "found the animal less well than bilinear", lambda: all(
        mean("outlines-resnet50_dots", f"{one} auroc") < mean("outlines-resnet50_dots", "bilinear auroc")
        for one in ("soft", "cell"))),
    ("docs/stability.md", "is more faithful and a little less stable", lambda: all(
        (mean("seeds-resnet50", f"soft {name}") > mean("seeds-resnet50_dots", f"soft {name}")) == more
        for name, more in (("insertion-deletion mean", True), ("iou", False)))),
    ("docs/stability.md", "what it loses is the network's own share", moved_more_than_seeds),
    ("docs/stability.md", "`cell` became softer, and not for nothing", cell_became_softer),
    ("docs/appendix/stability.md", "ranked among each other, which helps insertion minus deletion", order_helps),
    ("docs/presets.md", "makes a map softer and more stable, and [may cost faithfulness]", softer_is_a_trade),
    ("docs/appendix/stability.md", "With all of them `soft` is not lower in any", lambda: all(
        mean("seeds-vgg16_cifar10", f"soft {metric}") >= mean("seeds-vgg16_cifar10", f"former soft {metric}")
        for metric in PAID)),
    ("docs/appendix/stability.md", "a lower temperature helps insertion minus deletion", sharper_helps),
    ("docs/stability.md", "Two seeds then agree more", larger_agree_more),
    ("docs/appendix/stability.md", "The first twelve were hard ones", lambda: (
        column(step("seeds-resnet50")[:12], "soft iou").mean() < mean("seeds-resnet50", "soft iou"))),
    ("docs/appendix/stability.md", "With all of them `soft` keeps both aims", lambda: (
        mean("long-resnet50", "soft iou") + mean("long-resnet50", "soft other iou") >= 2 * AIMED_IOU
        and mean("moved-resnet50", "soft shift iou") >= AIMED_KEPT * mean("moved-resnet50", "fast shift iou"))),
]  # fmt: skip


@pytest.mark.parametrize(("page", "sentence", "so"), CLAIMS, ids=[f"{page}: {said}" for page, said, _ in CLAIMS])
def test_what_is_said_is_so(page: str, sentence: str, so: Callable[[], bool]) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert sentence in text, f"{page} no longer says this: take it out of this list."
    assert so(), f"{page} says {sentence!r}, and docs/results no longer does."
