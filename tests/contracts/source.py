"""The library's own text, as values the contract tests can ask questions of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


@dataclass(frozen=True)
class Module:
    """A module by its dotted name, with its text; ``package`` if its file is an ``__init__.py``."""

    name: str
    text: str
    package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


@dataclass(frozen=True)
class Import:
    """``lazy``: inside a function, so that importing the module does not import ``target``."""

    target: str
    line: int
    lazy: bool


def library() -> tuple[Module, ...]:
    """Every module of the library."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        package = parts[-1] == "__init__"
        found.append(Module(".".join(parts[:-1] if package else parts), path.read_text(encoding="utf-8"), package))
    return tuple(found)


def imports(module: Module, known: frozenset[str]) -> list[Import]:
    """All imports but those for type checkers; ``from usu import x`` is ``usu.x`` if that is one of the ``known``."""
    return list(_imports(module, module.tree, known, lazy=False))


def _imports(module: Module, node: ast.AST, known: frozenset[str], *, lazy: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = _absolute(module, node)
        for alias in node.names:
            deeper = f"{source}.{alias.name}"
            yield Import(deeper if deeper in known else source, node.lineno, lazy)
    elif (
        isinstance(node, ast.Call)
        and _last_name(node.func) in ("import_module", "__import__")
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ):
        yield Import(str(node.args[0].value), node.lineno, lazy)
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
        children = list(node.orelse)
    inside = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    for child in children:
        yield from _imports(module, child, known, lazy=inside)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    above = node.level - 1 if module.package else node.level
    parts = module.name.split(".")
    return ".".join([*parts[: len(parts) - above], *([node.module] if node.module else [])])


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
