from __future__ import annotations

from usu.forward.digest import digest


def test_where_one_part_ends_counts():
    found = {digest(b"ab", b"c"), digest(b"a", b"bc"), digest(b"abc"), digest(b"abc", b""), digest(b"", b"abc")}
    assert len(found) == 5
    assert digest(b"ab", b"c") == digest(b"ab", b"c")
