"""What one result has that another has not: class against class, model against model, before against after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from usu.plot import figures
from usu.plot.panels import OPACITY, Panel, overlays
from usu.plot.scales import QUANTILE, shares
from usu.results.result import Explanation
from usu.types import NDArray


@dataclass(frozen=True, eq=False, repr=False)
class Contrast:
    """Two maps of one picture, each as shares of its own evidence, and their difference."""

    #: H x W, positive where the first has more; in the unit of the average pixel.
    difference: NDArray
    #: The part of the evidence that lies elsewhere: 0 for equal maps, 1 for maps that share no pixel.
    moved: float
    picture: NDArray
    #: What the two are called.
    names: tuple[str, str]

    @property
    def title(self) -> str:
        """Which against which."""
        return f"{self.names[0]} (red) against {self.names[1]} (blue)"

    @property
    def facts(self) -> str:
        """How much is different."""
        return f"{100 * self.moved:.0f} % of the evidence lies elsewhere"

    def panels(self) -> list[Panel]:
        """The difference over the picture: red where the first has more, blue where the second has."""
        return [Panel(self.title, self.difference, self.picture)]

    def plot(self, ax: Any = None, *, opacity: float = OPACITY, quantile: float = QUANTILE) -> Any:
        """Draw on matplotlib axes of yours, or on new ones of pyplot's; returns them."""
        return figures.plot(self, ax, opacity=opacity, quantile=quantile)

    def __repr__(self) -> str:
        return f"Contrast({self.title}; {self.facts})"

    overlay, _repr_html_, _repr_png_ = overlays, figures.html, figures.small_panel


def contrast(a: Explanation, b: Explanation | None = None) -> Contrast:
    """The difference of two results for one picture, as shares of their evidence: a / mean|a| - b / mean|b|.

    Class against class, model against model, before against after fine-tuning. ``b`` None: the first two classes of
    ``a``. ``moved`` is half of mean |difference|: what is missing in one place is too much in another.

    >>> from types import SimpleNamespace as Result
    >>> left = Result(first_map=np.array([[2.0, 0.0]]), picture=np.zeros((1, 2, 3)), names=("cat",))
    >>> right = Result(first_map=np.array([[0.0, 8.0]]), picture=np.zeros((1, 2, 3)), names=("dog",))
    >>> found = contrast(left, right)
    >>> found.difference.tolist(), found.moved
    ([[2.0, -2.0]], 1.0)
    """
    if b is None:
        if len(a.names) < 2:
            raise ValueError("`b` must be given where `a` has one class; got None.")
        first, second, names = a.pixel_map[0], a.pixel_map[1], (a.names[0], a.names[1])
    else:
        first, second, names = a.first_map, b.first_map, (a.names[0], b.names[0])
        if first.shape != second.shape:
            sizes = [" x ".join(map(str, field.shape)) for field in (first, second)]
            raise ValueError(f"`b` must be of the same picture as `a`, at the same size {sizes[0]}; got {sizes[1]}.")
    difference = shares(first) - shares(second)
    return Contrast(difference, float(np.abs(difference).mean() / 2), a.picture, names)
