"""Who is here, and what they have open: in memory only, each apart from all others, forgotten after a while."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from usu.app.limits import Limits
from usu.app.looking import Opened
from usu.app.turns import Question, RefusedError


@dataclass(eq=False)
class Visitor:
    """One browser. Its key is in a cookie that scripts cannot read, and nowhere else."""

    key: str
    seen: float
    pictures: OrderedDict[str, Opened] = field(default_factory=OrderedDict)
    #: What is being worked on for them, by kind: a new one of a kind ends the one before.
    asking: dict[str, Question] = field(default_factory=dict)
    uploading: bool = False

    @property
    def name(self) -> str:
        """For the log: the same for all questions of a visitor, and of no use to anybody else."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:8]


class Visitors:
    """All of them.

    Args:
        limits: how many, and for how long.
        sentences: texts for ``full``, ``no_visit`` and ``no_picture``.
        forget: called with a question whose visitor is forgotten.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        limits: Limits,
        sentences: Callable[[str], str],
        forget: Callable[[Question], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits, self._say, self._forget, self._clock = limits, sentences, forget, clock
        self._all: dict[str, Visitor] = {}

    def __len__(self) -> int:
        return len(self._all)

    def welcome(self, key: str | None) -> Visitor:
        """The visitor with this key, or a new one."""
        self.sweep()
        known = self._all.get(key or "")
        if known is None:
            # who came, looked and has nothing open makes room for who comes now
            for one in sorted(self._all.values(), key=lambda one: one.seen):
                if len(self._all) < self._limits.visitors:
                    break
                if not one.pictures and not one.asking:
                    del self._all[one.key]
            if len(self._all) >= self._limits.visitors:
                raise RefusedError(self._say("full"), 503)
            known = Visitor(secrets.token_urlsafe(24), self._clock())
            self._all[known.key] = known
        known.seen = self._clock()
        return known

    def visitor(self, key: str | None) -> Visitor:
        """The visitor with this key."""
        self.sweep()
        known = self._all.get(key or "")
        if known is None:
            raise RefusedError(self._say("no_visit"), 403)
        known.seen = self._clock()
        return known

    def opened(self, visitor: Visitor, picture: object) -> Opened:
        """A picture of this visitor; whoever else's is not here."""
        known = visitor.pictures.get(picture) if isinstance(picture, str) else None
        if known is None:
            raise RefusedError(self._say("no_picture"), 404)
        return known

    def keep(self, visitor: Visitor, opened: Opened) -> None:
        """Remember a picture; the oldest goes."""
        visitor.pictures[opened.id] = opened
        while len(visitor.pictures) > self._limits.pictures:
            visitor.pictures.popitem(last=False)

    def sweep(self) -> None:
        """Forget who has been silent for too long."""
        oldest = self._clock() - 60 * self._limits.idle
        for key in [key for key, one in self._all.items() if one.seen < oldest]:
            for question in self._all.pop(key).asking.values():
                self._forget(question)
