"""How much of a network's work could be taken over exactly from passes made before: an upper bound.

``python -m benchmarks.reuse MODEL ... > docs/results/reuse.csv``, models as `usu.models.load` names them.

An activation is known if its receptive field sees only pixels of the picture, or only pixels of the fill: both have
been passed once. Masks go through the network itself with weights of one, without bias and with norms that do nothing:
what comes out above zero has seen such a pixel. Multiply-adds of convolutions are counted; skipping them in pieces of
any shape is taken to cost nothing.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy

import numpy as np
import torch
from skimage import data
from torch import Tensor, nn

import usu
from usu.metrics.maps import cuts, ranking
from usu.models import Loaded, load
from usu.score.groups import orthogonal_groups
from usu.score.posterior import centres

PICTURES = ("astronaut", "chelsea", "coffee", "rocket")
#: Groups per picture; the first are the same however many there are.
GROUPS = 30


def mask_network(model: nn.Module) -> nn.Module:
    """A copy that passes masks on: every convolution gives one where its window has met any."""
    found = deepcopy(model).eval()
    for module in found.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
        if isinstance(module, (nn.Conv2d, nn.BatchNorm2d)):
            nn.init.ones_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, __, output: (output > 0).to(output))
    return found


def known(network: nn.Module, keep: Tensor) -> dict[int, tuple[float, float]]:
    """By the side of the output: multiply-adds of the convolutions for masks (n, H, W), and those that are known."""
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    seen: dict[nn.Conv2d, list[Tensor]] = defaultdict(list)
    hooks = [one.register_forward_hook(lambda own, _, output: seen[own].append(output[:, 0])) for one in convolutions]
    with torch.no_grad():
        for pixels in (keep, ~keep):
            network(pixels[:, None].expand(-1, 3, -1, -1).float())
    for hook in hooks:
        hook.remove()
    work: dict[int, tuple[float, float]] = {}
    for one, (picture, fill) in seen.items():
        each = one.weight.numel() * picture[0].numel()
        before = work.get(picture.shape[-1], (0.0, 0.0))
        share = float((picture * fill == 0).double().mean())
        work[picture.shape[-1]] = before[0] + each, before[1] + each * share
    return work


def masks(loaded: Loaded, image: Tensor, picture: np.ndarray) -> Iterator[tuple[str, Tensor]]:
    """What is shown: of groups as preset soft draws them, without one segment, and along a deletion curve."""
    settings = usu.PRESETS["soft"]
    labels = torch.from_numpy(settings.segmenter(picture, settings.parts))
    count = int(labels.max()) + 1
    groups = orthogonal_groups(GROUPS, centres(labels), torch.Generator().manual_seed(0))
    yield "random halves", groups[:, labels]
    yield "all but one segment", ~torch.eye(count, dtype=torch.bool)[:, labels]
    coarse = usu.gradcam(loaded.model, image[None], layer=loaded.layer).values
    order = ranking(usu.interpolate(coarse[0], tuple(labels.shape), "bilinear").double(), 0)
    keep = torch.ones(7, labels.numel(), dtype=torch.bool)
    for row, gone in zip(keep, cuts(labels.numel(), 8)[1:-1], strict=True):
        row[order[:gone]] = False
    yield "deletion curve", keep.reshape(7, *labels.shape)


def main(models: list[str]) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["network", "masks", "outputs", "share of multiply-adds", "known", "least", "most"])
    for name in models:
        loaded = load(name)
        assert isinstance(loaded.model, nn.Module)
        network, found = mask_network(loaded.model), defaultdict(list)
        for photograph in PICTURES:
            image, _ = loaded.prepare(getattr(data, photograph)())
            low, high = image.amin(), image.amax()
            picture = ((image - low) / (high - low)).permute(1, 2, 0).numpy()
            for kind, keep in masks(loaded, image, picture):
                work = known(network, keep)
                whole = sum(each for each, _ in work.values())
                for side, (each, own) in [*work.items(), ("all", (whole, sum(own for _, own in work.values())))]:
                    found[kind, side].append((each / whole, own / each))
        for (kind, side), rows in found.items():
            shares = [own for _, own in rows]
            numbers = [np.mean([part for part, _ in rows]), np.mean(shares), min(shares), max(shares)]
            out.writerow([name.rpartition(":")[2], kind, side, *(f"{number:.4f}" for number in numbers)])


if __name__ == "__main__":
    main(sys.argv[1:])
