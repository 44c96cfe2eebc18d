"""Who is here, what they ask and may have open: in memory only, each apart from all others, forgotten soon."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from usu import _checks as check
from usu.app.assets import say
from usu.app.looking import Explained, Opened
from usu.app.turns import Question, RefusedError
from usu.app.views import OWN, Look
from usu.errors import first_line


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

    def opened(self, picture: str) -> Opened:
        """A picture of this visitor; whoever else's is not here."""
        if picture not in self.pictures:
            raise RefusedError(say("no_picture"), 404)
        return self.pictures[picture]


class Visitors:
    """All of them; ``forget`` is called with every question whose visitor is forgotten."""

    def __init__(
        self, limits: Limits, forget: Callable[[Question], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits, self._forget, self._clock = limits, forget, clock
        self._all: dict[str, Visitor] = {}

    def __len__(self) -> int:
        return len(self._all)

    def welcome(self, key: str | None) -> Visitor:
        """The visitor with this key, or a new one; who came, looked and has nothing open makes room."""
        self._sweep()
        if key not in self._all:
            if len(self._all) >= self._limits.visitors:
                idle = [one for one in self._all.values() if not one.pictures and not one.asking]
                if not idle:
                    raise RefusedError(say("full"), 503)
                del self._all[min(idle, key=lambda one: one.seen).key]
            key = secrets.token_urlsafe(24)
            self._all[key] = Visitor(key, self._clock())
        return self.visitor(key)

    def visitor(self, key: str | None) -> Visitor:
        """The visitor with this key."""
        self._sweep()
        known = self._all.get(key or "")
        if known is None:
            raise RefusedError(say("no_visit"), 403)
        known.seen = self._clock()
        return known

    def keep(self, visitor: Visitor, opened: Opened) -> None:
        """Remember a picture; the oldest goes."""
        visitor.pictures[opened.id] = opened
        while len(visitor.pictures) > self._limits.pictures:
            visitor.pictures.popitem(last=False)

    def _sweep(self) -> None:
        """Forget who has been silent for too long."""
        oldest = self._clock() - 60 * self._limits.idle
        for key in [key for key, one in self._all.items() if one.seen < oldest]:
            for question in self._all.pop(key).asking.values():
                self._forget(question)


@dataclass(frozen=True)
class Asked:
    """A question about a picture, checked."""

    visitor: Visitor
    opened: Opened
    body: dict[str, Any]
    #: The class that is meant, and how its map is to be made.
    target: int
    view: Look
    #: Of sharpening: evaluations at most, and levels of refinement.
    evaluations: int
    depth: int
    #: The part of the pixels that a mask keeps.
    share: float

    @property
    def about(self) -> dict[str, Any]:
        """What the log says of it."""
        return {**self.opened.about, "target": self.target, "way": self.view.way}

    @property
    def known(self) -> Explained:
        """What is known of the class that is meant."""
        found = self.opened.explained.get(self.target)
        if found is None:
            raise RefusedError(say("not_yet"), 409)
        return found

    @property
    def keep(self) -> torch.Tensor:
        """What stays when segments, or a rectangle of the picture, are taken away."""
        height, width = self.opened.image.shape[-2:]
        keep = torch.ones(height, width, dtype=torch.bool)
        segments, box = self.body.get("segments"), self.body.get("box")
        if isinstance(segments, list) and all(isinstance(s, int) and 0 <= s < 2**31 for s in segments):
            scored = self.known.scored
            if scored is None:
                raise RefusedError(say("not_yet"), 409)
            keep = ~torch.isin(torch.from_numpy(scored.segments[-1]), torch.tensor(segments, dtype=torch.int64))
        elif isinstance(box, list) and len(box) == 4 and all(isinstance(v, (int, float)) and 0 <= v <= 1 for v in box):
            # parts of what the model sees: left, top, right, bottom
            left, top, right, bottom = (float(v) for v in box)
            keep[round(top * height) : round(bottom * height), round(left * width) : round(right * width)] = False
        if bool(keep.all()):
            raise RefusedError(say("nothing_marked"))
        return keep


def asked_of(data: bytes, visitor: Visitor, opened: Opened, limits: Limits) -> Asked:
    """The question in a request's body."""
    try:
        body = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise RefusedError(say("no_question"))
    most = limits.evaluations
    try:
        return Asked(
            visitor,
            opened,
            body,
            target=check.whole_number("target", body.get("target", -1), most=len(opened.logits) - 1),
            view=Look(body.get("way", OWN), body.get("budget", "soft"), body.get("temperature", 0.3)),
            evaluations=check.whole_number("evaluations", body.get("evaluations", min(600, most)), least=24, most=most),
            depth=check.whole_number("depth", body.get("depth", 0), most=2),
            share=check.real_number("share", body.get("share", 0.05), least=0.001, most=1),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise RefusedError(f"{first_line(error).rstrip('.')}.") from None
