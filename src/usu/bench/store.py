"""Rows on disk: one SQLite file, one transaction a unit, a checksum on every row, and what it is an answer to.

Rows that do not match their checksum are dropped, and their unit is computed anew.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from usu.bench.table import Row

FILE, LOCK = "store.sqlite", "store.lock"
#: "usu1": which program's file it is, and the layout.
_APPLICATION = 0x75737531
_ROW = (
    "dataset", "model", "picture", "source", "upsampler", "metric", "target", "value", "evaluations",
    "metric_evaluations", "seconds", "metric_seconds",
)  # fmt: skip
_KEY = _ROW[:6]
_GROUP = ("dataset", "model", "source")
_FAILURE = (*_KEY, "sentence", "traceback")
_TABLES = {
    "rows": (*_ROW, "identity", "checksum"),
    "failures": (*_FAILURE, "checksum"),
    "ingredients": ("place", "name", "digest", "checksum"),
}
_KEYS = {"rows": _KEY, "failures": _KEY, "ingredients": ("place",)}
#: What a file of ours has near its beginning, whatever bit of it was flipped.
_SIGNS = tuple(f"CREATE TABLE {table}".encode() for table in _TABLES)


@dataclass(frozen=True)
class Failure:
    """What did not work, by the names of what was tried (empty from where all of it failed), and why."""

    dataset: str
    model: str
    picture: str
    source: str
    upsampler: str
    metric: str
    sentence: str
    traceback: str = ""

    @property
    def name(self) -> str:
        """The names that are not empty."""
        return ", ".join(filter(None, [getattr(self, kind) for kind in _KEY]))


class Store:
    """A folder of finished rows. Use it in a ``with`` statement.

    Args:
        folder: made if it is not there, to be written to.
        write: as the only one who does; others may read meanwhile.
    """

    def __init__(self, folder: str | Path, *, write: bool = False) -> None:
        self.folder, self.write = Path(folder), write
        self.path = self.folder / FILE
        #: What was damaged and is to be computed anew.
        self.damage: list[str] = []
        self._lock: sqlite3.Connection | None = None
        self._base: sqlite3.Connection | None = None

    def __enter__(self) -> Store:
        if self.write:
            self.folder.mkdir(parents=True, exist_ok=True)
        self._refuse_what_is_not_ours()
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (self._base, self._lock):
            if connection is not None:
                with suppress(sqlite3.Error):  # a full disk cannot be tidied up
                    connection.close()
        self._base = self._lock = None

    @property
    def base(self) -> sqlite3.Connection:
        """The open connection."""
        if self._base is None:
            raise ValueError("`store` must be open to be used; got one that is closed.")
        return self._base

    def register(self, ingredients: Mapping[str, str]) -> None:
        """What rows will depend on, name -> digest, in the order of tables; known names keep their place."""
        known, places = self.ingredients(), dict(self.base.execute("SELECT name, place FROM ingredients"))
        free = count(max(places.values(), default=-1) + 1)
        changed = [(name, value) for name, value in ingredients.items() if known.get(name) != value]
        with self._transaction():
            placed = [(places[name] if name in places else next(free), name, value) for name, value in changed]
            self._insert("ingredients", placed)

    def ingredients(self) -> dict[str, str]:
        """Name -> digest, in the order they were registered."""
        return dict(self.base.execute("SELECT name, digest FROM ingredients ORDER BY place"))

    def known(self, dataset: str, model: str, picture: str) -> dict[tuple[str, str, str], str]:
        """(source, upsampler, metric) -> identity, of one unit."""
        asked = "SELECT source, upsampler, metric, identity FROM rows WHERE dataset = ? AND model = ? AND picture = ?"
        return {found[:3]: found[3] for found in self.base.execute(asked, (dataset, model, picture))}

    def keep(self, rows: Iterable[tuple[Row, str]], failures: Iterable[Failure]) -> None:
        """Rows with their identities, and what failed: all of a unit is on disk when this returns, or nothing."""
        values = [(*(getattr(row, name) for name in _ROW), identity) for row, identity in rows]
        told = [tuple(vars(failure).values()) for failure in failures]
        with self._transaction():
            for unit in {one[:3] for one in (*values, *told)}:
                self.base.execute("DELETE FROM failures WHERE dataset = ? AND model = ? AND picture = ?", unit)
            self._insert("rows", values)
            self._insert("failures", told)

    def failures(self) -> list[Failure]:
        """What failed and has not worked since."""
        return [Failure(*found[:8]) for found in self.base.execute("SELECT * FROM failures")]

    def groups(self) -> list[tuple[str, str, str]]:
        """Dataset, model and source of all that is there, in the order they were registered."""
        found = self.base.execute("SELECT DISTINCT dataset, model, source FROM rows")
        return sorted(found, key=self._places(_GROUP))

    def rows(self, group: tuple[str, str, str]) -> list[Row]:
        """Of a dataset, a model and a source: picture by picture, upsamplers and metrics as they were registered."""
        asked = f"SELECT {', '.join(_ROW)} FROM rows WHERE dataset = ? AND model = ? AND source = ?"
        found = [_row(values) for values in self.base.execute(asked, group)]
        places = self._places(("upsampler", "metric"))
        return sorted(found, key=lambda row: (row.picture, *places((row.upsampler, row.metric))))

    def _places(self, kinds: Sequence[str]) -> Callable[[Sequence[str]], list[tuple[int, str]]]:
        """What names of these kinds are sorted by: the order of registration, then the name."""
        places = {name: number for number, name in enumerate(self.ingredients())}
        return lambda names: [
            (places.get(f"{kind}.{name}", len(places)), name) for kind, name in zip(kinds, names, strict=True)
        ]

    def count(self) -> int:
        """How many rows."""
        return int(self.base.execute("SELECT count(*) FROM rows").fetchone()[0])

    def problems(self) -> list[str]:
        """Every fault of the file, one sentence each; none if there are none."""
        found = []
        try:
            found += [text for (text,) in self.base.execute("PRAGMA quick_check(5)") if text != "ok"]
        except sqlite3.DatabaseError as error:
            found.append(f"{FILE} cannot be read: {error}.")
        for table, keys in _KEYS.items():
            last: tuple[Any, ...] = ()
            try:
                for values in self.base.execute(f"SELECT * FROM {table}"):
                    key = values[: len(keys)]
                    name = f"{', '.join(str(one) for one in key if one != '')} ({table})"
                    if values[-1] != _checksum(values[:-1]):
                        found.append(f"{name}: it does not match its checksum.")
                    elif not last < key:
                        found.append(f"{name}: it is out of order.")
                    else:
                        last = key
            except (sqlite3.DatabaseError, UnicodeDecodeError, TypeError) as error:
                found.append(f"the {table} of {FILE} cannot be read: {error}.")
        return found

    def _open(self) -> None:
        if not self.write:
            if not self.path.is_file():
                raise FileNotFoundError(f"`run` must be a folder that usu evaluate has written; got {self.folder}.")
            self._base = _connected(self.path, "ro")
            return
        self._lock = sqlite3.connect(self.folder / LOCK, timeout=0, isolation_level=None)
        try:
            self._lock.execute("BEGIN EXCLUSIVE")  # gone with its holder, however that ends
        except sqlite3.OperationalError as error:
            raise ValueError(f"`out` must not be in use by another run; got {self.folder} ({error}).") from None
        self._base = _connected(self.path)
        try:
            self._prepare()
            self.damage = self.problems()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # of ours, but not to be read any more
            self.damage = [f"{FILE} cannot be read: {error}."]
        if self.damage:
            self._rebuild()

    def _prepare(self) -> None:
        self.base.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            for table, columns in _TABLES.items():
                names = f"{', '.join(columns)}, PRIMARY KEY ({', '.join(_KEYS[table])})"
                self.base.execute(f"CREATE TABLE IF NOT EXISTS {table} ({names}) WITHOUT ROWID")
            self.base.execute(f"PRAGMA application_id = {_APPLICATION}")
        for table, columns in _TABLES.items():  # a flipped bit may have renamed one
            self.base.execute(f"SELECT {', '.join(columns)} FROM {table} LIMIT 1").fetchall()
        self.base.execute("PRAGMA journal_mode = WAL")  # from now on, so that the file itself says whose it is

    def _refuse_what_is_not_ours(self) -> None:
        """Links, other programs' files, and folders of before there was a store."""
        if (self.folder / "run.json").exists() or any(self.folder.glob("rows-*.jsonl")):
            raise ValueError(
                f"`out` must be a new folder or one of this version; got {self.folder}, whose rows an older version "
                "wrote as lines of text. They are not converted."
            )
        for name in (FILE, f"{FILE}-wal", f"{FILE}-shm", LOCK):
            path = self.folder / name
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise ValueError(f"`out` must hold {name} as a file of its own; got {path}, which is a link or none.")
        if self.path.is_file() and self.path.stat().st_size:
            with self.path.open("rb") as file:
                start = file.read(1 << 16)
            if not any(sign in start for sign in _SIGNS):
                raise ValueError(f"`out` must hold a store of usu evaluate; got {self.path}, which is something else.")

    def _rebuild(self) -> None:
        """A new file with every row that is whole; the old one stays beside it."""
        draft = self.folder / f"{FILE}.new"
        draft.unlink(missing_ok=True)
        number = sum(1 for _ in self.folder.glob(f"{FILE}.damaged-*")) + 1
        fresh = Store(self.folder)
        fresh._base = _connected(draft)
        with closing(fresh.base):
            fresh._prepare()
            for table in _TABLES:
                with fresh._transaction():
                    fresh._insert(table, [one[:-1] for one in self._readable(table) if one[-1] == _checksum(one[:-1])])
        self.base.close()
        for name in (f"{FILE}-wal", f"{FILE}-shm"):
            (self.folder / name).unlink(missing_ok=True)
        self.path.replace(self.folder / f"{FILE}.damaged-{number}")
        draft.replace(self.path)
        self._base = _connected(self.path)
        self._prepare()

    def _readable(self, table: str) -> Iterator[tuple[Any, ...]]:
        """What can be read: from the beginning and from the end, as far as it goes."""
        for way in ("ASC", "DESC"):
            asked = f"SELECT * FROM {table} ORDER BY {', '.join(f'{name} {way}' for name in _KEYS[table])}"
            with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
                yield from self.base.execute(asked)
                return

    def _insert(self, table: str, many: Iterable[Sequence[Any]]) -> None:
        asked = f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(_TABLES[table]))})"
        self.base.executemany(asked, [(*one, _checksum(one)) for one in many])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; what the disk says is an `OSError`."""
        base = self.base
        try:
            base.execute("BEGIN IMMEDIATE")
            yield
            base.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                base.execute("ROLLBACK")
            if not isinstance(error, sqlite3.OperationalError):
                raise
            sentence = f"`out` must take one more unit; got {self.path}: {error}. What was finished is kept."
            raise OSError(sentence) from error


def _connected(path: Path, mode: str = "rwc") -> sqlite3.Connection:
    where = f"{path.resolve().as_uri()}?mode={mode}"
    return sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)


def _row(values: Sequence[Any]) -> Row:
    """NaN is nothing in SQL."""
    named: dict[str, Any] = {name: value for name, value in zip(_ROW, values, strict=True) if value is not None}
    return Row(**{"value": math.nan, **named})


def _checksum(values: Sequence[Any]) -> str:
    """Of the values as SQLite gives them back."""
    plain = [None if isinstance(one, float) and one != one else one for one in values]
    return hashlib.blake2b(repr(plain).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
