"""Maps of layers finer than a coarse map, for `usu.upsample`."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from usu.forward import Engine, undisturbed
from usu.forward.calls import read, top_class
from usu.sources.cams import finer_layercams
from usu.sources.layers import finer_layers
from usu.sources.recording import recorded
from usu.types import Array


class Finer(NamedTuple):
    """LayerCAM maps of layers finer than a coarse map, and the engine with its target fixed. Cost: one evaluation."""

    #: (T, h, w) each, in float64 on the CPU, the next finer resolution first; none where the model has none.
    maps: tuple[Tensor, ...]
    engine: Engine


def module_of(model: object) -> nn.Module | None:
    """The module whose layers can be recorded, if there is one; of a compiled one, what was compiled."""
    original = getattr(model, "_orig_mod", model)
    if not isinstance(original, nn.Module):
        return None
    weights = (*original.parameters(), *original.buffers())
    return None if any(one.is_inference() for one in weights) else original  # these let no gradient pass


def finer_maps(engine: Engine, module: nn.Module, picture: Array, cells: int) -> Finer:
    """Σ_c relu(G_c) · A_c at the last layer of each of the next resolutions above ``cells`` places.

    Guarantees: one forward pass; one backward pass per target, no further than the finest of those layers; the module
    is left as it was found.

    >>> from usu.forward import engine
    >>> net = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AvgPool2d(2), nn.Conv2d(1, 1, 1, bias=False),
    ...                     nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> with torch.no_grad(): _ = net[0].weight.fill_(1.0), net[2].weight.fill_(1.0)
    >>> picture = torch.zeros(1, 4, 4)
    >>> picture[0, 0, 0] = 16  # the mean of 16 pixels: 1/16 each
    >>> found = finer_maps(engine(net, 0), net, picture, cells=4)
    >>> [tuple(one.shape) for one in found.maps], float(found.maps[0][0, 0, 0])
    ([(1, 4, 4)], 1.0)
    """
    engine.meter.plan(1)
    with undisturbed(module), torch.inference_mode(False), torch.enable_grad():
        leaf = engine.place(picture).detach().clone().requires_grad_()[None]
        with recorded(module, leaf, every=False, shapes=True) as seen:
            output = module(seen.entry.to(dtype=engine.dtype))
        engine.meter.count(1)
        target = engine.target if engine.target is not None else (top_class(output),)
        values = read(output, target, engine.link, 1)[0]
        levels = [finer_layercams(finer_layers(seen, value, cells)) for value in values]
    maps = tuple(torch.cat(level) for level in zip(*levels, strict=True))
    return Finer(maps, replace(engine, target=target))
