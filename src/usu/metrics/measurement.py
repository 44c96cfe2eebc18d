"""What a metric that asks the model gives back."""

from __future__ import annotations

from dataclasses import dataclass

from usu.types import NDArray


@dataclass(frozen=True, eq=False)
class Measured:
    """A number, what it cost, and the curve it sums up.

    >>> float(Measured(0.25, evaluations=3))
    0.25
    """

    value: float
    #: Pictures passed through the model.
    evaluations: int = 0
    #: The values behind the number, where a person may want to draw them.
    curve: NDArray | None = None

    def __float__(self) -> float:
        return self.value
