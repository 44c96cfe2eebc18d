"""The store: nothing finished is lost, nothing damaged or foreign is believed."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from usu.bench.store import FILE, LOCK, Failure, Store
from usu.bench.table import Row

NAN = float("nan")


def rows(unit: int) -> list[tuple[Row, str]]:
    values = (unit / 7, NAN, float("inf"))
    made = [Row(f"p{unit:03d}", 1, "cell", f"m{n}", value, 3, 4, 0.5, NAN) for n, value in enumerate(values)]
    return [(row, "question") for row in made]


def failure(unit: int) -> Failure:
    return Failure("", "", f"p{unit:03d}", "", "paper", "", "It was late.", "Traceback ...")


def filled(home: Path, units: int = 40) -> Path:
    with Store(home, write=True) as store:
        store.register({"seed": "0", "metric.m2": "b", "metric.m0": "a", "metric.m1": "c"})
        for unit in range(units):
            store.keep(rows(unit), [failure(unit)])
    return home


def found(store: Store) -> dict[tuple[str, ...], str]:
    return {row.key: repr(row) for group in store.groups() for row in store.rows(group)}


def test_rows_are_there_again(tmp_path):
    filled(tmp_path)
    with Store(tmp_path) as store:
        assert store.problems() == []
        assert store.count() == 120
        assert [row.metric for row in store.rows(("", "", ""))[:3]] == ["m2", "m0", "m1"], "as they were registered"
        assert found(store)[rows(3)[0][0].key] == repr(rows(3)[0][0])
        assert store.known("", "", "p003") == {("", "cell", f"m{n}"): "question" for n in range(3)}
        assert store.failures()[0] == failure(0)
        assert store.failures()[0].name == "p000, paper"


def test_a_unit_is_kept_whole_or_not_at_all(tmp_path):
    filled(tmp_path, 1)
    with Store(tmp_path, write=True) as store:
        wrong = [*rows(1), (Row("p001", 1, "cell", "m9", object(), 1, 1), "question")]  # type: ignore[arg-type]
        with pytest.raises(sqlite3.Error):
            store.keep(wrong, [])
        assert store.count() == 3
        store.keep(rows(1), [])
        assert store.count() == 6


def test_what_works_now_is_no_failure_any_more(tmp_path):
    filled(tmp_path, 2)
    with Store(tmp_path, write=True) as store:
        store.keep(rows(0), [])
        assert [one.picture for one in store.failures()] == ["p001"]


def test_a_column_that_a_flipped_bit_renamed_is_noticed(tmp_path):
    home = filled(tmp_path / "whole")
    with Store(home) as store:
        whole = found(store)
    content = (home / FILE).read_bytes()
    assert content.count(b"metric_evaluations") == 1
    (home / FILE).write_bytes(content.replace(b"metric_evaluations", b"metric_evaluatioos"))
    with Store(home, write=True) as store:
        assert store.damage
        assert found(store) == whole


@pytest.mark.parametrize("bits", [60, pytest.param(4000, marks=pytest.mark.soak)])
def test_a_flipped_bit_is_noticed_and_changes_no_number(tmp_path, bits):
    home, dice = filled(tmp_path / "whole"), random.Random(1)
    with Store(home) as store:
        whole = found(store)
    content, lost = bytearray((home / FILE).read_bytes()), 0
    for number in range(bits):
        damaged = tmp_path / "damaged"
        shutil.rmtree(damaged, ignore_errors=True)
        damaged.mkdir()
        bit = dice.randrange(8 * (len(content) if number % 4 else 4096))
        content[bit // 8] ^= 1 << bit % 8
        (damaged / FILE).write_bytes(content)
        content[bit // 8] ^= 1 << bit % 8
        with Store(damaged, write=True) as store:
            left = found(store)
            assert left.items() <= whole.items(), bit
            assert store.damage or left == whole, bit
            lost += len(left) < len(whole)
            for unit in range(40):
                if len(store.known("", "", f"p{unit:03d}")) < 3:
                    store.keep(rows(unit), [])
            assert found(store) == whole
            assert store.problems() == []
    assert lost > bits // 10, "the bits must hit something"


def test_damage_is_told_and_the_old_file_is_kept(tmp_path):
    path = filled(tmp_path) / FILE
    content = path.read_bytes()
    place = content.index(b"p017")
    path.write_bytes(content[:place] + b"q" + content[place + 1 :])
    with Store(tmp_path) as store:
        assert len(store.problems()) >= 1
    with Store(tmp_path, write=True) as store:
        assert any("q017, " in text and "checksum" in text for text in store.damage)
        assert 117 <= store.count() <= 120
    assert path.with_name(f"{FILE}.damaged-1").is_file()
    with Store(tmp_path, write=True) as store:
        assert store.damage == []


def test_two_runs_do_not_write_to_one_store(tmp_path):
    with Store(tmp_path, write=True):
        with pytest.raises(ValueError, match="`out` must not be in use by another run"), Store(tmp_path, write=True):
            pass
        with Store(tmp_path) as reader:  # to read is another matter
            assert reader.count() == 0
    with Store(tmp_path, write=True):  # and the lock is gone with its holder
        pass


def test_the_lock_of_a_killed_run_is_no_lock(tmp_path):
    held = (
        "import os, signal, sys; from usu.bench.store import Store\n"
        "with Store(sys.argv[1], write=True): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", held, str(tmp_path)], check=False)
    assert (tmp_path / LOCK).exists()
    with Store(tmp_path, write=True):
        pass


@pytest.mark.parametrize("name", [FILE, LOCK, f"{FILE}-wal"])
def test_a_link_is_refused_and_what_it_leads_to_is_left(tmp_path, name):
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(precious)
    with pytest.raises(ValueError, match="as a file of its own"), Store(tmp_path / "run", write=True):
        pass
    assert precious.read_text() == "mine"


def test_foreign_files_and_old_folders_are_refused(tmp_path):
    for name, content, sentence in (
        (FILE, b"no database at all", "something else"),
        ("run.json", b"{}", "older version"),
        ("rows-1-of-1.jsonl", b"", "older version"),
    ):
        home = tmp_path / name
        home.mkdir()
        (home / name).write_bytes(content)
        with pytest.raises(ValueError, match=sentence), Store(home, write=True):
            pass
    other = tmp_path / "other"
    other.mkdir()
    with sqlite3.connect(other / FILE) as base:
        base.execute("CREATE TABLE songs (name)")
    with pytest.raises(ValueError, match="something else"), Store(other, write=True):
        pass
    with pytest.raises(FileNotFoundError, match="that usu evaluate has written"), Store(tmp_path / "nothing"):
        pass


def test_a_closed_store_is_not_used(tmp_path):
    with pytest.raises(ValueError, match="must be open"):
        Store(tmp_path).count()


def test_a_full_disk_keeps_what_was_finished(tmp_path):
    """A limit on the size of files is what a program sees of a full disk."""
    script = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from tests.unit.bench.test_store import rows
from usu.bench.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store(sys.argv[1], write=True) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        for unit in range(100_000):
            store.keep(rows(unit), [])
            kept = unit
    except OSError as error:
        print(kept, error)
"""
    root = str(Path(__file__).parents[3])
    told = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), root], capture_output=True, text=True, check=True
    ).stdout
    kept, _, sentence = told.partition(" ")
    assert "must take one more unit" in sentence
    with Store(tmp_path, write=True) as store:
        assert store.damage == []
        assert store.count() == 3 * (int(kept) + 1)
