"""docs/model-kinds.md says of every kind of model what is so: a result, or one clear sentence."""

from __future__ import annotations

import pytest

from tests.integrations.model_kinds import HEAD, KINDS, PAGE, TAIL, row

LINES = PAGE.read_text(encoding="utf-8").removeprefix(HEAD).removesuffix(TAIL).splitlines()


@pytest.mark.parametrize("kind", KINDS, ids=": ".join)
def test_the_page_says_what_is_so(kind: tuple[str, str], torchvision: object) -> None:
    group, name = kind
    if group != "torch":
        pytest.importorskip(group)
    assert row(group, name) == next(line for line in LINES if line.startswith(f"| {group}: {name} |"))


def test_every_kind_has_a_line() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(HEAD)
    assert text.endswith(TAIL)
    assert [line.split(" |")[0] for line in LINES] == [f"| {group}: {name}" for group, name in KINDS]
