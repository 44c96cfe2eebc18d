"""The journal: nothing finished is lost, nothing half-written is believed."""

from __future__ import annotations

import json

import pytest

from usu.bench.journal import Journal
from usu.bench.table import Row

ROW = Row("a", 1, "cell", "iou", 0.5, 300, 0, 1.0, 0.1)
OTHER = Row("b", 1, "cell", "iou", float("nan"), 300, 0, 1.0, 0.1)


def test_rows_are_there_again(tmp_path):
    with Journal(tmp_path, {"seed": 0}) as journal:
        journal.add(ROW)
        journal.add(OTHER)
    with Journal(tmp_path, {"seed": 0}) as journal:
        assert list(journal.rows) == [ROW.key, OTHER.key]
        assert journal.rows[ROW.key] == ROW


@pytest.mark.parametrize("cut", [1, 5, 40, 90])
def test_a_line_cut_short_is_dropped_and_written_anew(tmp_path, cut):
    with Journal(tmp_path, {}) as journal:
        journal.add(ROW)
        journal.add(OTHER)
    path = tmp_path / "rows-1-of-1.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(tmp_path, {}) as journal:
        assert list(journal.rows) == [ROW.key]
        journal.add(OTHER)
    assert [json.loads(line)["picture"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_parts_see_each_others_rows(tmp_path):
    with Journal(tmp_path, {}, part=(1, 2)) as one:
        one.add(ROW)
        with Journal(tmp_path, {}, part=(2, 2)) as two:
            assert ROW.key in two.rows
            two.add(OTHER)
    with Journal(tmp_path, {}, part=(1, 1)) as both:
        assert set(both.rows) == {ROW.key, OTHER.key}


def test_a_part_sees_what_another_wrote_after_it_began(tmp_path):
    with Journal(tmp_path, {}, part=(1, 2)) as one, Journal(tmp_path, {}, part=(2, 2)) as two:
        two.add(OTHER)
        assert OTHER.key not in one.rows
        one.look()
        assert one.rows[OTHER.key].picture == "b"


def test_two_processes_do_not_write_to_one_file(tmp_path):
    with Journal(tmp_path, {}), pytest.raises(ValueError, match="`out` must not be in use"), Journal(tmp_path, {}):
        pass
    with Journal(tmp_path, {}):  # and the lock is gone with its holder
        pass


def test_other_settings_are_refused_and_more_names_welcome(tmp_path):
    with Journal(tmp_path, {"seed": 0, "upsamplers": {"cell": {"temperature": 0.15}}}) as journal:
        journal.add(ROW)
    with pytest.raises(ValueError, match="made with another seed"), Journal(tmp_path, {"seed": 1}):
        pass
    with (
        pytest.raises(ValueError, match=r"made with another upsamplers\.cell"),
        Journal(tmp_path, {"seed": 0, "upsamplers": {"cell": {"temperature": 0.3}}}),
    ):
        pass
    with Journal(tmp_path, {"seed": 0, "upsamplers": {"soft": {}}}):
        pass
    assert set(json.loads((tmp_path / "run.json").read_text())["upsamplers"]) == {"cell", "soft"}


def test_a_closed_journal_is_not_written_to(tmp_path):
    journal = Journal(tmp_path, {})
    with pytest.raises(ValueError, match="must be open"):
        journal.add(ROW)
