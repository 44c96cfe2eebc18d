"""Where questions are answered: each in a thread of its own that waits for its turn.

One line of the log for every question, without the picture.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from usu.app.texts import say
from usu.app.turns import HANGING, GoneError, Question, RefusedError, StoppedError, Turns
from usu.app.visitors import Limits, Visitor
from usu.errors import UsuError, first_line

LOG = logging.getLogger("usu.app")
#: What a question does: given the pause between two pieces of work and where frames go, its answer.
Work = Callable[[Callable[[], None], Callable[[bytes], None]], Any]


class _Threads:
    """Threads that are used again: each new one would bring memory of its own, and a team of torch's.

    They end with the process, so that one that hangs does not hold it back.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def run(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._idle -= 1
            if self._idle >= 0:
                self._jobs.put(job)
                return
            self._idle = 0
        threading.Thread(target=self._loop, args=(job,), name="usu-question", daemon=True).start()

    def _loop(self, job: Callable[[], None]) -> None:
        while True:
            job()
            with self._lock:
                self._idle += 1
            job = self._jobs.get()


class Desk:
    """Answers questions on one model.

    Args:
        limits: how long a question may work, and how many may wait.
        open_about_errors: whether a visitor may read what a model's exception says.
    """

    def __init__(self, limits: Limits, *, open_about_errors: bool) -> None:
        self.turns = Turns(limits.waiting)
        self._limits, self._open = limits, open_about_errors
        self.closing = False
        self._asked: set[Question] = set()
        self._threads = _Threads()

    @property
    def healthy(self) -> bool:
        """Can questions be answered?"""
        return not self.closing and self.turns.lost < HANGING

    async def ask(self, visitor: Visitor, kind: str, work: Work, *, about: dict[str, Any], short: bool = True) -> Any:
        """The answer to a question that has one."""
        async for event, value in self._events(visitor, kind, work, about, short=short):
            if event == "done":
                return value
        raise RefusedError(say("superseded"), 409)

    async def watch(self, visitor: Visitor, kind: str, work: Work, *, about: dict[str, Any]) -> AsyncIterator[bytes]:
        """The frames of a question that has many; closing the iterator ends it."""
        async for event, value in self._events(visitor, kind, work, about, short=False):
            if event == "frame":
                yield value

    def close(self) -> None:
        """Nobody is answered any more."""
        self.closing = True
        for question in list(self._asked):
            self.turns.cancel(question)

    async def _events(
        self, visitor: Visitor, kind: str, work: Work, about: dict[str, Any], *, short: bool
    ) -> AsyncIterator[tuple[str, Any]]:
        if self.closing:
            raise RefusedError(say("closing"), 503)
        question = Question(visitor.name, self._limits.seconds, short=short)
        before = visitor.asking.pop(kind, None)
        if before is not None:  # they have thought of something else
            self.turns.cancel(before)
        visitor.asking[kind] = question
        self._asked.add(question)
        loop, events = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Any]]()

        def tell(event: str, value: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, (event, value))

        self._threads.run(lambda: self._work(question, work, tell))
        outcome = "cancelled"
        try:
            while True:
                try:
                    event, value = await asyncio.wait_for(events.get(), 0.5)
                except asyncio.TimeoutError:
                    self.turns.leave_behind()
                    if not question.lost:
                        continue
                    # its thread hangs in a call of the model; nobody has to
                    event, value = "failed", question.too_long
                if event == "failed":
                    if isinstance(value, GoneError):
                        raise (
                            RefusedError(say("closing"), 503) if self.closing else RefusedError(say("superseded"), 409)
                        )
                    outcome = "refused"
                    raise value
                if event == "done":
                    outcome = "answered"
                yield event, value
                if event == "done":
                    return
        finally:
            self.turns.cancel(question)
            self._asked.discard(question)
            if visitor.asking.get(kind) is question:
                del visitor.asking[kind]
            times = {
                "seconds": time.monotonic() - question.asked,
                "worked": question.worked,
                "longest_wait": question.longest_wait,
            }
            line = {"question": kind, "visitor": visitor.name, **about, "outcome": outcome}
            LOG.info(json.dumps(line | {name: round(value, 3) for name, value in times.items()}))

    def _work(self, question: Question, work: Work, tell: Callable[[str, Any], None]) -> None:
        try:
            self.turns.begin(question)
            try:
                found = work(lambda: self.turns.pause(question), lambda frame: tell("frame", frame))
                self.turns.check_wanted(question)
            finally:
                self.turns.end(question)
            tell("done", found)
        except (RefusedError, GoneError) as error:
            tell("failed", error)
        except StoppedError:
            tell("done", None)
        except (UsuError, ValueError, TypeError) as error:  # of ours: one clear sentence
            tell("failed", RefusedError(first_line(error), 400))
        except Exception as error:  # whatever a model may raise
            LOG.exception("a question failed")
            what = f"{type(error).__name__}: {first_line(error)}" if self._open else type(error).__name__
            tell("failed", RefusedError(say("model_raised").format(what=what), 500))
