"""Who is here, and what they may ask for and have open: in memory only, each apart from all others, forgotten soon."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from usu import _checks as check
from usu.app.looking import Opened
from usu.app.texts import say
from usu.app.turns import Question, RefusedError


@dataclass(frozen=True)
class Limits:
    """How much one visitor, and all of them together, may ask for; most are options of ``usu app``.

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
        for one in fields(self):
            check.whole_number(one.name, getattr(self, one.name), least=1)


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
        forget: called with a question whose visitor is forgotten.
        clock: seconds that only grow.
    """

    def __init__(
        self, limits: Limits, forget: Callable[[Question], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits, self._forget, self._clock = limits, forget, clock
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
                raise RefusedError(say("full"), 503)
            known = Visitor(secrets.token_urlsafe(24), self._clock())
            self._all[known.key] = known
        known.seen = self._clock()
        return known

    def visitor(self, key: str | None) -> Visitor:
        """The visitor with this key."""
        self.sweep()
        known = self._all.get(key or "")
        if known is None:
            raise RefusedError(say("no_visit"), 403)
        known.seen = self._clock()
        return known

    def opened(self, visitor: Visitor, picture: object) -> Opened:
        """A picture of this visitor; whoever else's is not here."""
        known = visitor.pictures.get(picture) if isinstance(picture, str) else None
        if known is None:
            raise RefusedError(say("no_picture"), 404)
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
