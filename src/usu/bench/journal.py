"""Rows on disk the moment they are known: a run that is killed loses nothing but the row it was working on.

A journal is a folder. Each process appends to a file of its own, one line of JSON per row; a line cut short by a crash
is dropped and its row computed again. ``run.json`` says what the rows are answers to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from usu.bench.table import Row
from usu.results import written

try:
    import fcntl
except ImportError:  # not on Windows, where two runs in one folder are not kept apart
    fcntl = None  # type: ignore[assignment]


class Journal:
    """A folder of finished rows, open for more. Use it in a ``with`` statement.

    Args:
        folder: made if it is not there.
        request: what the rows depend on besides their names; must be what the folder's rows were made with. Of
            ``"pictures"``, ``"upsamplers"`` and ``"metrics"`` those count that have rows.
        part: the number of this process and how many there are; each writes to a file of its own.
    """

    def __init__(self, folder: str | Path, request: Mapping[str, Any], *, part: tuple[int, int] = (1, 1)) -> None:
        self.folder, self.request, self.part = Path(folder), dict(request), part
        self.rows: dict[tuple[str, str, str], Row] = {}
        self._file: int | None = None

    def __enter__(self) -> Journal:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"rows-{self.part[0]}-of-{self.part[1]}.jsonl"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._lock(path)
            self.look()
            self._agree()
            os.ftruncate(self._file, _rows(path)[1])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)  # and with it the lock
            self._file = None

    def add(self, row: Row) -> None:
        """Keep a row: it is in the file when this returns."""
        if self._file is None:
            raise ValueError("`journal` must be open to be written to; got one that is closed.")
        line = (json.dumps(asdict(row), ensure_ascii=False) + "\n").encode()
        while line:  # a full disk writes less than it was given, then raises
            line = line[os.write(self._file, line) :]
        self.rows[row.key] = row

    def look(self) -> None:
        """Take in what other processes have written meanwhile."""
        for path in sorted(self.folder.glob("rows-*.jsonl")):
            self.rows.update({row.key: row for row in _rows(path)[0]})

    def _lock(self, path: Path) -> None:
        if fcntl is None or self._file is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(f"`out` must not be in use by another run of the same `part`; got {path}.") from error

    def _agree(self) -> None:
        """The folder must hold answers to the same question."""
        path = self.folder / "run.json"
        known: dict[str, Any] = {}
        with suppress(ValueError, FileNotFoundError):
            known = json.loads(path.read_text(encoding="utf-8"))
        request = json.loads(json.dumps(self.request))
        there = {name: {key[i] for key in self.rows} for i, name in enumerate(("pictures", "upsamplers", "metrics"))}
        for name in sorted(known.keys() & request.keys()):
            old, new = known[name], request[name]
            if name in there:
                both = old.keys() & new.keys() & there[name]
                differs = next((f"{name}.{key}" for key in sorted(both) if old[key] != new[key]), None)
                request[name] = old | new
            else:
                differs = name if old != new else None
            if differs is not None:
                got = f"{self.folder}, made with another {differs}"
                raise ValueError(f"`out` must hold rows made with the same settings; got {got}.")
        if request != known:
            written(path, (json.dumps(request, indent=1, ensure_ascii=False) + "\n").encode())


def _rows(path: Path) -> tuple[list[Row], int]:
    """The whole lines of a file, and where they end."""
    rows, end = [], 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                rows.append(Row(**json.loads(line)))
            except (ValueError, TypeError):
                break
            end += len(line)
    return rows, end
