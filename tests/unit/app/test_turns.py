"""The fair queue: first come, first served, the short ones before the long ones, but not for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.unit.app.served import until
from usu.app import turns as module
from usu.app.turns import Question, RefusedError, Turns


def question(name: str, *, short: bool = False, seconds: float = 60) -> Question:
    return Question(name, seconds, short=short)


def queued(turns: Turns, asked: Question, work: Callable[[], None]) -> threading.Thread:
    """A thread that waits for its turn, works and ends; it stands in the queue when this returns."""

    def run() -> None:
        turns.begin(asked)
        work()
        turns.end(asked)

    before = turns.waiting
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: turns.waiting == before + 1)
    return thread


def test_first_come_first_served_and_short_before_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_A_ROW", 2)
    turns, order = Turns(9), list[str]()
    holder = question("holder")
    turns.begin(holder)
    names = ["long1", "short1", "long2", "short2", "short3", "short4"]
    threads = [
        queued(turns, question(name, short=name.startswith("s")), lambda name=name: order.append(name))  # type: ignore[misc]
        for name in names
    ]
    turns.end(holder)
    for thread in threads:
        thread.join(10)
    assert order == ["short1", "short2", "long1", "short3", "short4", "long2"]


def test_long_questions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 0.0)
    turns, order = Turns(9), list[str]()
    holder = question("holder")
    turns.begin(holder)

    def work(asked: Question) -> Callable[[], None]:
        def three_pieces() -> None:
            for _ in range(3):
                order.append(asked.visitor)
                time.sleep(0.002)
                turns.pause(asked)

        return three_pieces

    asked = [question(name) for name in "abc"]
    threads = [queued(turns, one, work(one)) for one in asked]
    turns.end(holder)
    for thread in threads:
        thread.join(10)
    assert "".join(order) == "abcabcabc"


def test_who_leaves_while_waiting_leaves_the_queue() -> None:
    turns, holder, waiting = Turns(9), question("a"), question("b")
    turns.begin(holder)
    told = list[str]()

    def wait() -> None:
        try:
            turns.begin(waiting)
        except RefusedError as error:
            told.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: turns.waiting == 1)
    turns.cancel(waiting)
    thread.join(10)
    assert told == ["This question was replaced by a newer one."]
    assert turns.waiting == 0


def test_one_that_hangs_loses_its_turn_and_may_come_back() -> None:
    turns, hanging = Turns(9), question("a", seconds=0.01)
    turns.begin(hanging)
    other = question("b")
    turns.begin(other)  # waits no longer than it takes to notice
    assert hanging.lost
    assert turns.lost == 1
    with pytest.raises(RefusedError, match="longer than 0"):
        turns.pause(hanging)
    turns.end(hanging)
    assert turns.lost == 0
    turns.end(other)


def test_too_many_and_too_long() -> None:
    turns, holder = Turns(1), question("a", seconds=0.01)
    turns.begin(holder)
    time.sleep(0.02)
    with pytest.raises(RefusedError, match="longer than 0"):
        turns.pause(holder)
    patient = question("b", seconds=60)
    holder.seconds = 60
    thread = queued(turns, patient, lambda: None)
    with pytest.raises(RefusedError, match="Too many questions"):
        turns.begin(question("c"))
    turns.end(holder)
    thread.join(10)
