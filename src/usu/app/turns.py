"""A fair queue on one model: one question at a time works, and every so often it lets the next one have its turn.

Everything that computes for long holds the turn: memory and cores are then used by one question, whoever asks. Short
questions go before long ones, but not for ever. Who hangs loses the turn.
"""

from __future__ import annotations

import threading
import time

from usu.app.assets import say
from usu.errors import UsuError

#: Seconds that a long question works before others get their turn.
SLICE = 0.25
#: Short questions in a row while a long one waits.
IN_A_ROW = 4
#: Questions that may hang before nobody is let in any more.
HANGING = 3


class RefusedError(UsuError):
    """A request that is not answered, with the sentence that says why and the HTTP status that goes with it."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


class Question:
    """One thing a visitor wants to know: how long it may work, whether it is still wanted."""

    def __init__(self, visitor: str, seconds: float, *, short: bool) -> None:
        self.visitor, self.seconds, self.short = visitor, seconds, short
        #: Why nobody waits for the answer any more.
        self.ended: RefusedError | None = None
        #: Stopped: what there is will do. Lost: it hangs, and its turn was taken from it.
        self.stopped = self.lost = False
        self.asked = time.monotonic()
        #: Since when it has had the turn, and how long it had it before.
        self.since: float | None = None
        self.worked = self.longest_wait = 0.0

    def expired(self) -> bool:
        """Has it held the turn for longer than it may work in all? Then that is its end."""
        late = self.since is not None and self.worked + time.monotonic() - self.since > self.seconds
        if late and self.ended is None:
            self.ended = RefusedError(say("too_long").format(seconds=f"{self.seconds:g}"), 504)
        return late

    def check(self) -> None:
        """Is it still wanted, and within its time?"""
        self.expired()
        if self.ended is not None:
            raise self.ended


class Turns:
    """Who may compute now; at most so many questions wait for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._queue: list[Question] = []
        self._holder: Question | None = None
        self._row = 0
        self.lost = 0

    @property
    def waiting(self) -> int:
        """How many questions wait."""
        return len(self._queue)

    def begin(self, question: Question) -> None:
        """Wait for the first turn."""
        if len(self._queue) >= self._most:
            raise RefusedError(say("busy"), 503)
        self._wait(question)

    def pause(self, question: Question) -> bool:
        """Between two pieces of work: end if nobody listens or it took too long; let others work if it is time.

        Returns whether the visitor is content with what there is.
        """
        question.check()
        with self._changed:
            short = any(one.short for one in self._queue) and self._row < IN_A_ROW
            others = bool(self._queue)
        long_enough = question.since is not None and time.monotonic() - question.since > SLICE
        if short or (others and long_enough):
            self.end(question)
            self._wait(question)
        return question.stopped

    def end(self, question: Question) -> None:
        """Give the turn to the next."""
        with self._changed:
            if question.since is not None:
                question.worked += time.monotonic() - question.since
                question.since = None
            if question.lost:
                question.lost = False  # it came back
                self.lost -= 1
            if self._holder is question:
                self._holder = None
            self._changed.notify_all()

    def cancel(self, question: Question, why: str = "superseded", status: int = 409) -> None:
        """Nobody listens any more; also wakes it where it waits."""
        with self._changed:
            question.ended = question.ended or RefusedError(say(why), status)
            self._changed.notify_all()

    def leave_behind(self) -> None:
        """Take the turn from one that hangs: a call of a model cannot be broken off, but nobody has to wait for it."""
        with self._changed:
            holder = self._holder
            if holder is not None and holder.expired():
                holder.lost, self._holder = True, None
                self.lost += 1
                self._changed.notify_all()

    def _wait(self, question: Question) -> None:
        came = time.monotonic()
        with self._changed:
            self._queue.append(question)
            try:
                while True:
                    if self.lost >= HANGING:
                        raise RefusedError(say("hanging"), 503)
                    if self._mine(question):
                        break
                    self._changed.wait(1.0)
                    question.check()
                    self.leave_behind()
                self._holder = question
                question.since = time.monotonic()
                question.longest_wait = max(question.longest_wait, question.since - came)
            finally:
                self._queue.remove(question)
                self._changed.notify_all()

    def _mine(self, question: Question) -> bool:
        """The turn is free, and nobody has more right to it: first come first served, the short ones before."""
        if self._holder is not None:
            return False
        short = [one for one in self._queue if one.short]
        long = [one for one in self._queue if not one.short]
        urgent = bool(short) and (not long or self._row < IN_A_ROW)
        if question is not (short if urgent else long)[0]:
            return False
        self._row = self._row + 1 if urgent else 0
        return True
