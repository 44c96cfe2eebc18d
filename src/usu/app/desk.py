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

from usu.app.assets import say
from usu.app.turns import Question, RefusedError, Turns
from usu.app.visitors import Limits, Visitor
from usu.errors import UsuError, first_line

LOG = logging.getLogger("usu.app")
#: What a question does: given the pause between two pieces of work and where frames go, its answer if it has one.
Work = Callable[[Callable[[], bool], Callable[[bytes], None]], Any]


class _Threads:
    """Threads that are used again: each new one would bring memory of its own, and a team of torch's.

    They end with the process, so that one that hangs does not hold it back.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)

    def run(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._loop, name="usu-question", daemon=True).start()

    def _loop(self) -> None:
        while True:
            self._jobs.get()()
            self._idle.release()


class Desk:
    """Answers questions on one model; ``open_about_errors``: a visitor may read what the model's exception says."""

    def __init__(self, limits: Limits, *, open_about_errors: bool) -> None:
        self.turns = Turns(limits.waiting)
        self._limits, self._open = limits, open_about_errors
        self.closing = False
        self._asked: set[Question] = set()
        self._threads = _Threads()

    def close(self) -> None:
        """Nobody is answered any more."""
        self.closing = True
        for question in list(self._asked):
            self.turns.cancel(question, "closing", 503)

    async def ask(self, visitor: Visitor, kind: str, work: Work, about: dict[str, Any]) -> Any:
        """The answer to a short question."""
        return [one async for one in self.watch(visitor, kind, work, about, short=True)][-1]

    async def watch(
        self, visitor: Visitor, kind: str, work: Work, about: dict[str, Any], *, short: bool = False
    ) -> AsyncIterator[Any]:
        """The frames of a question, and its answer if it has one; closing the iterator ends it.

        A new question of a kind ends the visitor's one before. ``about`` goes to the log.
        """
        if self.closing:
            raise RefusedError(say("closing"), 503)
        question = Question(visitor.name, self._limits.seconds, short=short)
        if kind in visitor.asking:
            self.turns.cancel(visitor.asking[kind])
        visitor.asking[kind] = question
        self._asked.add(question)
        loop, told = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def tell(value: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(told.put_nowait, value)

        self._threads.run(lambda: self._work(question, work, tell))
        outcome = "cancelled"
        try:
            while True:
                try:
                    value = await asyncio.wait_for(told.get(), 0.5)
                except asyncio.TimeoutError:
                    self.turns.leave_behind()
                    if question.ended is None:
                        continue
                    value = question.ended  # its thread hangs in a call of the model
                if value is None:
                    outcome = "answered"
                    return
                if isinstance(value, RefusedError):
                    outcome = "cancelled" if value is question.ended and value.status != 504 else "refused"
                    raise value
                yield value
        finally:
            self.turns.cancel(question)
            self._asked.discard(question)
            if visitor.asking.get(kind) is question:
                del visitor.asking[kind]
            times = (time.monotonic() - question.asked, question.worked, question.longest_wait)
            seconds, worked, longest_wait = (round(value, 3) for value in times)
            line = {"question": kind, "visitor": visitor.name, **about, "outcome": outcome, "seconds": seconds}
            LOG.info(json.dumps({**line, "worked": worked, "longest_wait": longest_wait}))

    def _work(self, question: Question, work: Work, tell: Callable[[Any], None]) -> None:
        """Tells frames, the answer or an error, and None at the end."""
        try:
            self.turns.begin(question)
            try:
                answer = work(lambda: self.turns.pause(question), tell)
                question.check()
            finally:
                self.turns.end(question)
            if answer is not None:
                tell(answer)
        except RefusedError as error:
            tell(error)
        except (UsuError, ValueError, TypeError) as error:  # of ours: one clear sentence
            tell(RefusedError(first_line(error)))
        except Exception as error:  # whatever a model may raise
            LOG.exception("a question failed")
            what = f"{type(error).__name__}: {first_line(error)}" if self._open else type(error).__name__
            tell(RefusedError(say("model_raised").format(what=what), 500))
        tell(None)
