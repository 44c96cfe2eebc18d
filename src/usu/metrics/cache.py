"""What is made for one and used by many, and how long it took: everybody's time is as if nothing was shared."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Memory:
    """Things by their key, each made on first demand.

    >>> memory = Memory()
    >>> [memory.once("answer", lambda: 42), memory.once("answer", lambda: 43)]
    [42, 42]
    """

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Any, float]] = {}
        #: Seconds that were saved so far, because something was there already.
        self.lent = 0.0

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What is remembered under ``key``; on first demand it is made."""
        if key in self._made:
            found: T = self._made[key][0]
            self.lent += self._made[key][1]
            return found
        start, lent = time.perf_counter(), self.lent
        made = make()
        # what it borrowed itself belongs to its own time
        self._made[key] = made, time.perf_counter() - start + self.lent - lent
        return made

    def seconds(self, key: Any) -> float:
        """How long it took to make; 0 for what was not made."""
        return self._made[key][1] if key in self._made else 0.0
