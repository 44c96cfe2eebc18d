"""The value every source returns: a coarse attribution with its provenance."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class CoarseMap:
    """A coarse attribution with its provenance."""

    #: (B, h, w), at the layer's own resolution and in its own units.
    values: Tensor
    layer: str
    #: Why this layer.
    reason: str
    #: The class explained in each picture; None where the target was a callable.
    targets: tuple[int, ...] | None
    #: Forward passes counted in pictures; each came with a backward pass.
    evaluations: int
    #: What a person should know before believing the map.
    notes: tuple[str, ...] = ()
    #: What finer layers said in the same pass, (B, h', w') each, the next finer first; empty unless asked for.
    finer: tuple[Tensor, ...] = ()


def finite(values: Tensor) -> Tensor:
    """The maps themselves, if they can be maps at all."""
    if not bool(values.isfinite().all()):
        raise ValueError(
            "`model` must have finite activations and gradients at the layer; got NaN or infinity. "
            "Check the scaling of `images` and the model's weights."
        )
    return values


def notes_on(signed: Tensor, *, relu: bool) -> tuple[str, ...]:
    """What is odd about the maps (B, h, w) before they are rectified, one sentence per kind."""
    flat = signed.flatten(1)
    zero = (flat == 0).all(1)
    against = (flat <= 0).all(1) & ~zero
    shown = "so the rectified map is zero. See it with relu=False" if relu else "the map has no positive value"
    notes = []
    for found, text in (
        (zero, "the map is zero everywhere: the target does not depend on this layer here. Try another layer."),
        (against, f"the layer holds only evidence against the target, {shown}."),
    ):
        if bool(found.any()):
            which = ", ".join(str(i) for i in found.nonzero().flatten().tolist())
            notes.append(f"Picture {which}: {text}" if len(signed) > 1 else text[0].upper() + text[1:])
    return tuple(notes)
