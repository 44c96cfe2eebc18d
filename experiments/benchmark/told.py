"""What the page of the benchmark says of a plan's groups in words and small tables; the long ones are in the record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from experiments.pages import markdown, prose

from usu.bench.report import FAITHFUL, Group, paper

Groups = list[Group]
SHORT = {"half-deletion": "half", "insertion-deletion": "ins-del", "infidelity": "infid"}
#: Means that the page shows, of insertion minus deletion.
MEANS = ("bilinear", "guided", "paper", "cell", "soft", "fast", "scores-alone", "kernel-shap")
#: `soft` with one ingredient replaced: what still is better than bilinear does not need it.
WITHOUT = {
    "soft-uniform-coarse": "a uniform coarse map", "soft-shuffled-coarse": "a shuffled coarse map",
    "soft-permuted-scores": "permuted scores", "soft-random-scores": "random scores",
    "soft-constant-scores": "constant scores",
}  # fmt: skip


def told(groups: Groups, shown: Sequence[str]) -> dict[str, str]:
    """Blocks by their names after the plan's: what several sources say, or what one and its controls do."""
    once = different(groups)
    made = {"matrix": matrix(once, shown[1:])}
    if len({group.source for group in groups}) > 1:
        return {**made, "answer": answer(once), "factors": factors(groups)}
    return {**made, "means": _means(groups), "controls": controls(once)}


def different(groups: Groups) -> Groups:
    """Sources that give the same maps count once."""
    return [*{group.signature: group for group in reversed(groups)}.values()][::-1]


def models(groups: Groups) -> dict[str, Groups]:
    return {model: [g for g in groups if g.model == model] for model in dict.fromkeys(g.model for g in groups)}


def verdicts(groups: Groups, upsampler: str, metric: str) -> list[str]:
    """Of every group that compared it."""
    found = [c for g in groups if upsampler in g.table.upsamplers and (c := g.comparison(metric)) is not None]
    return [one[upsampler].verdict for one in found]


def factor(group: Group) -> float:
    """Raw infidelity of bilinear over that of the paper's operator: above 1 the operator is better."""
    values = group.table.values("infidelity-raw")
    return float(np.nanmean(values["bilinear"]) / np.nanmean(values["paper"]))


def printed(dataset: str) -> dict[str, float]:
    """Source -> the same factor as the paper prints it."""
    lines = [one for one in paper() if (one["table"], one["dataset"]) == ("cross-method", dataset)]
    found = {(one["source"], one["upsampler"]): float(one["value"]) for one in lines}
    return {source: value / found[source, "USU"] for (source, name), value in found.items() if name == "bilinear"}


def answer(groups: Groups) -> str:
    """The paper's gain and what is left of it."""
    theirs = [printed(dataset) for dataset in ("imagenet", "cifar10")]
    spans = [f"{min(one.values()):,.0f} to {max(one.values()):,.0f}" for one in theirs]
    ours = [factor(group) for group in groups]
    worse = sum(one < 1 for one in ours)
    better = sum(verdicts(groups, "paper", metric).count("better") for metric in FAITHFUL)
    where = f"{better} times" if better else "nowhere"
    return prose(
        f"The paper reports that USU lowers raw infidelity {spans[0]} times (ImageNet) and {spans[1]} times "
        f"(CIFAR-10) against bilinear, whatever the CAM method. Here its operator (`paper`) divides it by "
        f"{min(ours):.2f} to {max(ours):.2f}, and makes it worse for {worse} of {len(ours)} different sources. On the "
        f"three measures that know no units it is {where} better than bilinear after correction."
    )


def matrix(groups: Groups, names: Sequence[str]) -> str:
    """Upsamplers by networks: for how many sources, or sets of pictures, a metric is better (+) or worse (-)."""
    networks = models(groups)

    def cell(own: Groups, name: str) -> str:
        told_of = []
        for metric in FAITHFUL:
            found = verdicts(own, name, metric)
            told_of += [
                f"{SHORT[metric]} {sign}{count}"
                for word, sign in (("better", "+"), ("worse", "-"))
                if (count := found.count(word))
            ]
        return ", ".join(told_of) or "·"

    heads = []
    for model, own in networks.items():
        sources, sets = (len({getattr(group, key) for group in own}) for key in ("source", "dataset"))
        pictures = max(sum(group.pictures for group in own if group.source == one.source) for one in own)
        many = [f"{n} {word}" for n, word in ((sets, "sets"), (sources, "sources")) if n > 1]
        heads.append(", ".join([f"{model}: {pictures} pictures", *many]))
    rows = [[name, *(cell(own, name) for own in networks.values())] for name in names]
    return markdown(["upsampler", *heads], rows)


def factors(groups: Groups) -> str:
    """Raw infidelity of bilinear over the paper's operator, by source: as printed, and as measured."""
    rows = []
    networks = models(groups)
    theirs = {dataset: printed(dataset) for dataset in ("imagenet", "cifar10")}
    for source in dict.fromkeys(group.source for group in groups):
        cells = [f"{one[source]:,.0f}" if source in one else "-" for one in theirs.values()]
        for own in networks.values():
            found = [factor(group) for group in own if group.source == source]
            cells.append(f"{found[0]:.2f}" if found else "-")
        rows.append([source, *cells])
    return markdown(["source", "paper, ImageNet", "paper, CIFAR-10", *(f"here, {model}" for model in networks)], rows)


def _means(groups: Groups) -> str:
    rows = [
        [group.model, f"{group.dataset} {group.pictures}", *(_mean(group, name) for name in MEANS)] for group in groups
    ]
    return markdown(["network", "pictures", *MEANS], rows)


def _mean(group: Group, name: str) -> str:
    """Two digits, and the mark."""
    number, *rest = group.cell("insertion-deletion", name).split(" ")
    return " ".join([f"{float(number):.2f}", *rest[1:]]) if rest else number


def controls(groups: Groups) -> str:
    """Where `soft` helps, does it still help with an ingredient replaced?"""
    lines = []
    for model, own in models(groups).items():
        if "better" not in verdicts(own, "soft", "insertion-deletion"):
            continue
        still = [said for name, said in WITHOUT.items() if "better" in verdicts(own, name, "insertion-deletion")]
        if still:
            known = " or ".join([", ".join(still[:-1]), still[-1]] if len(still) > 1 else still)
            lines.append(
                f"- On **{model}** `soft` is also better than bilinear with {known} in the place of its own: what was "
                "replaced is not what helps there."
            )
        else:
            lines.append(f"- On **{model}** no control of `soft` is better than bilinear.")
    return prose(*lines) if lines else "`soft` is nowhere better than bilinear, so there is nothing to control."
