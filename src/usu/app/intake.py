"""What comes with a request: checked, within its limits, a few at a time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import torch
from starlette.requests import ClientDisconnect, Request

from usu.app.looking import Explained, Opened
from usu.app.texts import say
from usu.app.turns import RefusedError
from usu.app.views import Look
from usu.app.visitors import Visitor

#: Uploads that are read at once, how many more may wait for that, and seconds that one may take.
_READING, _QUEUEING, _UPLOAD_SECONDS = 4, 16, 60
#: The most bytes of any other request.
_SMALL = 100_000


@dataclass(frozen=True)
class Asked:
    """What came with a request about a picture."""

    visitor: Visitor
    opened: Opened
    body: dict[str, Any]

    @property
    def target(self) -> int:
        """The class that is meant."""
        classes, found = len(self.opened.logits), self.body.get("target")
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < classes:
            raise RefusedError(say("no_class"))
        return found

    def number(self, name: str, low: float, high: float, default: float) -> float:
        """A number within its range."""
        found = self.body.get(name, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not low <= found <= high:
            raise RefusedError(say("bad_number").format(name=name, low=f"{low:g}", high=f"{high:g}"))
        return found

    @property
    def view(self) -> Look:
        """How the map is to be made."""
        words = [str(self.body.get(name, default))[:40] for name, default in (("way", "usu"), ("budget", "soft"))]
        try:
            return Look(words[0], words[1], self.number("temperature", 0.01, 10, 0.3))
        except ValueError:
            raise RefusedError(say("no_way")) from None

    @property
    def known(self) -> Explained:
        """What is known of the class that is meant."""
        found = self.opened.explained.get(self.target)
        if found is None:
            raise RefusedError(say("not_yet"), 409)
        return found

    @property
    def keep(self) -> torch.Tensor:
        """What stays when a rectangle of the picture, or segments, are taken away."""
        opened = self.opened
        height, width = opened.image.shape[-2:]
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
            rows = slice(round(top * height), round(bottom * height))
            keep[rows, round(left * width) : round(right * width)] = False
        if bool(keep.all()):
            raise RefusedError(say("nothing_marked"))
        return keep


async def asked_of(request: Request, visitor: Visitor, opened: Opened) -> Asked:
    """The question in a request's body."""
    data = await _read(request, _SMALL)
    try:
        body = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise RefusedError(say("no_question"))
    return Asked(visitor, opened, body)


class Intake:
    """Where uploads come in.

    Args:
        megabytes: the most of one.
    """

    def __init__(self, megabytes: int) -> None:
        self._most = 1_000_000 * megabytes
        self._reading = asyncio.Semaphore(_READING)
        self._queueing = 0

    async def upload(self, request: Request) -> bytes:
        """An upload, within its limits; a few at a time."""
        if self._queueing >= _QUEUEING:
            raise RefusedError(say("busy"), 503)
        self._queueing += 1
        try:
            async with self._reading:
                try:
                    return await asyncio.wait_for(_read(request, self._most), _UPLOAD_SECONDS)
                except asyncio.TimeoutError:
                    raise RefusedError(say("slow_upload"), 408) from None
        finally:
            self._queueing -= 1


async def _read(request: Request, most: int) -> bytes:
    too_much = RefusedError(say("too_large").format(megabytes=f"{most / 1e6:g}"), 413)
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > most:
        raise too_much
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_much
            parts.append(part)
    except ClientDisconnect:
        raise RefusedError(say("superseded"), 409) from None
    return b"".join(parts)
