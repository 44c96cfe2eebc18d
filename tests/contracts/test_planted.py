"""The list of planted defects stays alive: code moves, and a defect whose text is gone tests nothing."""

from __future__ import annotations

from pathlib import Path

from tests.contracts.source import ROOT, SOURCE
from tests.planted.__main__ import paths_of, planted
from tests.planted.defects import DEFECTS, ROOMS, Defect

#: So many must be alive, and one in every room; a few may wait for somebody who replaces them.
LEAST = 80


def alive(defect: Defect) -> bool:
    file = SOURCE / "usu" / defect.file
    return file.is_file() and file.read_text(encoding="utf-8").count(defect.old) == 1


def test_most_defects_can_be_planted_and_every_room_has_one() -> None:
    gone = [f"{defect.file}: {defect.what}" for defect in DEFECTS if not alive(defect)]
    assert len(DEFECTS) - len(gone) >= LEAST, f"replace what is gone in tests/planted/defects.py: {gone}"
    assert {defect.room for defect in DEFECTS if alive(defect)} == set(ROOMS), f"gone: {gone}"


def test_every_defect_is_a_change_and_every_room_has_tests() -> None:
    assert all(defect.old != defect.new for defect in DEFECTS)
    assert len({(defect.file, defect.old) for defect in DEFECTS}) == len(DEFECTS)
    assert [room for room in ROOMS if not paths_of(room, ROOT)] == []


def test_what_is_gone_is_said_and_what_was_planted_is_taken_out_again(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "src" / "usu" / "one.py"
    file.parent.mkdir(parents=True)
    file.write_text("a = 1\n")
    seen = []
    monkeypatch.setattr("tests.planted.__main__.caught_by", lambda *_: seen.append(file.read_text()) or "")
    assert planted(Defect("operator", "one.py", "a = 1", "a = 2", ""), tmp_path) == "survived"
    assert (seen, file.read_text()) == (["a = 2\n"], "a = 1\n")
    assert planted(Defect("operator", "one.py", "b = 1", "b = 2", ""), tmp_path) == "gone"
    assert planted(Defect("operator", "two.py", "a = 1", "a = 2", ""), tmp_path) == "gone"
