"""What the oldest Python we promise cannot import, found in the text: no such Python is needed to see it."""

from __future__ import annotations

import ast

from tests.contracts.source import Module, library


def crowded_tuples(module: Module) -> list[str]:
    """Classes that are a NamedTuple and something else, which Python 3.10 refuses."""
    return [
        f"{module.name}, line {node.lineno}: {node.name} has a base beside NamedTuple"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        and len(node.bases) > 1
        and any(ast.unparse(base).rpartition(".")[2] == "NamedTuple" for base in node.bases)
    ]


def test_no_named_tuple_has_a_second_base() -> None:
    assert [offence for module in library() for offence in crowded_tuples(module)] == []


def test_a_second_base_would_be_found() -> None:
    text = "class Pair(typing.NamedTuple, Generic[T]): ...\nclass Fine(NamedTuple): ..."
    assert len(crowded_tuples(Module("made.up", text))) == 1
