"""What is shared, and whose time it was: by a clock that only moves when told."""

from __future__ import annotations

import pytest

from usu.metrics import catalogue as module
from usu.metrics.catalogue import Memory


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def takes(clock, seconds, value="made"):
    def make():
        clock[0] += seconds
        return value

    return make


def test_a_thing_is_made_once_and_its_time_is_lent_to_the_others(clock):
    memory = Memory()
    assert memory.once("a", takes(clock, 3.0, "first")) == "first"
    assert (memory.lent, memory.seconds("a"), clock[0]) == (0, 3, 3)
    assert memory.once("a", takes(clock, 5.0, "second")) == "first"
    assert (memory.lent, clock[0]) == (3, 3)
    assert memory.seconds("never made") == 0


def test_what_a_thing_borrows_belongs_to_its_own_time(clock):
    memory = Memory()
    memory.once("inner", takes(clock, 2.0))

    def outer():
        memory.once("inner", takes(clock, 9.0))
        clock[0] += 1.0

    memory.once("outer", outer)
    assert memory.seconds("outer") == 3
    assert memory.lent == 2
