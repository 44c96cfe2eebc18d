"""Who computes the units: this process, several on this machine, or a Ray cluster. The same units, the same numbers.

A worker that dies, or says nothing for too long, is replaced; a unit that costs three workers is given up.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

from usu import _checks as check
from usu.bench.store import Failure
from usu.bench.units import Outcome, Unit, UnitGrid
from usu.errors import MissingExtraError, UsuError

#: Workers that a unit may cost before it is given up.
TRIES = 3


class WorkerError(UsuError):
    """A worker is gone, or said nothing for too long."""


@dataclass(frozen=True)
class Local:
    """Processes of this machine, one thread each; one worker is this process itself.

    Args:
        workers: how many.
        patience: seconds after which a unit's worker is taken to hang; None waits for ever, as one worker always does.
    """

    workers: int = 1
    patience: float | None = None

    def run(self, grid: UnitGrid, units: Iterable[Unit]) -> Iterator[tuple[Unit, Outcome]]:
        """The units' outcomes as they come."""
        check.whole_number("workers", self.workers, least=1)
        if self.workers == 1:
            for unit in units:
                yield unit, grid.compute(unit)
            return
        payload = packed(grid)
        yield from _shared(units, lambda: _Process(payload, self.patience), self.workers)


@dataclass(frozen=True)
class Ray:
    """A Ray cluster (extra ``ray``).

    Args:
        address: ``"auto"`` or ``"HOST:PORT"`` of one that runs; None starts one on this machine.
        workers: how many; None is one for every processor of the cluster.
        patience: as of `Local`.
    """

    address: str | None = None
    workers: int | None = None
    patience: float | None = None

    def run(self, grid: UnitGrid, units: Iterable[Unit]) -> Iterator[tuple[Unit, Outcome]]:
        """The units' outcomes as they come."""
        try:
            import ray
        except ImportError:
            raise MissingExtraError("ray", "ray", "The engine ray") from None
        payload, ours = packed(grid), not ray.is_initialized()
        if ours:
            alone: dict[str, Any] = {"include_dashboard": False, "num_cpus": self.workers}
            own = alone if self.address is None else {}
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR, **own)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ConnectionError(f"`address` must be a Ray cluster; got {self.address!r} ({error}).") from error
        try:
            shared = ray.put(payload)  # to every node once, and from there to its workers
            workers = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))  # type: ignore[no-untyped-call]
            yield from _shared(units, lambda: _Actor(ray, shared, self.patience), workers)
        finally:
            if ours:
                ray.shutdown()


Engine: TypeAlias = Local | Ray


def packed(grid: UnitGrid) -> bytes:
    """The grid without its pictures, for another process: functions and classes of a script go with it."""
    try:
        return _dumped(replace(grid, datasets={}, _digests={}))
    except MissingExtraError:
        raise
    except Exception as error:  # whatever an object says when it cannot be pickled
        why = " ".join(str(error).split())
        raise TypeError(f"`engine` must be one process for what cannot be sent to others; got {why}.") from error


def _dumped(value: Any) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        raise MissingExtraError("cloudpickle", "bench", "More than one worker") from None
    return bytes(cloudpickle.dumps(value))


def _shared(
    units: Iterable[Unit], start: Callable[[], _Process | _Actor], workers: int
) -> Iterator[tuple[Unit, Outcome]]:
    """Each thread has a worker of its own; no more units are on their way than keep them busy."""
    mine, ended = threading.local(), threading.Event()
    started: list[_Process | _Actor] = []

    def work(unit: Unit) -> tuple[Unit, Outcome]:
        reason = ""
        for _ in range(TRIES):
            if ended.is_set():
                break
            if getattr(mine, "worker", None) is None:
                mine.worker = start()
                started.append(mine.worker)
            try:
                return unit, mine.worker.ask(unit)
            except WorkerError as error:
                reason = str(error)
                mine.worker.close()
                mine.worker = None
        lost = f"It was tried {TRIES} times, and each time its worker was lost: {reason}"
        failure = Failure(unit.dataset, unit.model, unit.sample.name, "", "", "", lost)
        return unit, Outcome((), (failure,))

    waiting: set[Future[tuple[Unit, Outcome]]] = set()
    todo, pool = iter(units), ThreadPoolExecutor(workers)
    try:
        while True:
            waiting |= {pool.submit(work, unit) for unit in islice(todo, 2 * workers - len(waiting))}
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        ended.set()
        for future in waiting:
            future.cancel()
        for worker in started:
            worker.close()  # whoever waits for it is told that it is gone
        pool.shutdown()


class _Process:
    """A Python process of its own: pickled units go in, pickled outcomes come out."""

    def __init__(self, payload: bytes, patience: float | None) -> None:
        self.patience = patience
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from usu.bench.engines import serve; serve()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **threads, "PYTHONPATH": paths},
        )  # fmt: skip
        self.pipes: tuple[Any, Any] = (self.process.stdin, self.process.stdout)
        self._send(payload)

    def ask(self, unit: Unit) -> Outcome:
        """What the unit gives; `WorkerError` where the worker is lost."""
        watch = threading.Timer(self.patience or threading.TIMEOUT_MAX, self.process.kill)
        watch.daemon = True
        watch.start()
        try:
            self._send(_dumped(unit))
            outcome: Outcome = pickle.load(self.pipes[1])
        except (OSError, EOFError, pickle.UnpicklingError):
            told = f"ended with code {self.process.wait()}, or was ended after {self.patience} s"
            raise WorkerError(f"process {self.process.pid} {told}.") from None
        finally:
            watch.cancel()
        return outcome

    def _send(self, content: bytes) -> None:
        with suppress(OSError):  # it is gone, and the answer that does not come says so
            self.pipes[0].write(content)
            self.pipes[0].flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in self.pipes:
            with suppress(OSError):  # what it was sent last did not arrive
                pipe.close()


def serve() -> None:
    """A worker process: a grid, then units, until nobody asks any more. What others print goes to standard error."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(EOFError):
        grid: UnitGrid = pickle.load(incoming)
        while True:
            pickle.dump(grid.compute(pickle.load(incoming)), outgoing)
            outgoing.flush()


class _Actor:
    """A worker of a Ray cluster, wherever there is room for it."""

    def __init__(self, ray: Any, payload: Any, patience: float | None) -> None:
        self.ray, self.patience = ray, patience
        self.actor = ray.remote(num_cpus=1)(_Computer).remote(payload)

    def ask(self, unit: Unit) -> Outcome:
        """As of `_Process`."""
        try:
            outcome: Outcome = self.ray.get(self.actor.compute.remote(_dumped(unit)), timeout=self.patience)
        except self.ray.exceptions.GetTimeoutError:
            raise WorkerError(f"a Ray worker said nothing for {self.patience} s.") from None
        except self.ray.exceptions.RayError as error:
            raise WorkerError(f"a Ray worker was lost ({type(error).__name__}).") from error
        return outcome

    def close(self) -> None:
        self.ray.kill(self.actor)


class _Computer:
    """What a Ray worker holds: the grid, unpacked once."""

    def __init__(self, payload: bytes) -> None:
        self.grid: UnitGrid = pickle.loads(payload)

    def compute(self, unit: bytes) -> Outcome:
        return self.grid.compute(pickle.loads(unit))
