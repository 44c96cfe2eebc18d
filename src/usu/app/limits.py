"""What the page allows: every limit in one place, each an option of ``usu app``."""

from __future__ import annotations

from dataclasses import dataclass, fields

from usu import _checks as check


@dataclass(frozen=True)
class Limits:
    """How much one visitor, and all of them together, may ask for.

    >>> Limits(visitors=0)
    Traceback (most recent call last):
    ValueError: `visitors` must be a whole number of at least 1; got 0.
    """

    #: Of one upload, and of the picture in it.
    megabytes: int = 20
    megapixels: int = 64
    #: The longer side of the copy that is kept and shown.
    longest: int = 1600
    #: People at once, and pictures that each may have open; the oldest is forgotten.
    visitors: int = 32
    pictures: int = 2
    #: Minutes without a word after which a visitor and everything of theirs is forgotten.
    idle: int = 30
    #: Seconds of work on one question, waiting for others not counted.
    seconds: int = 60
    #: Questions that may wait for the model at once.
    waiting: int = 64
    #: Model evaluations for one map, at most; kept outputs are not counted again.
    evaluations: int = 1200

    def __post_init__(self) -> None:
        for field in fields(self):
            check.whole_number(field.name, getattr(self, field.name), least=1)
