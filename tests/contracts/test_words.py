"""What the source does not say: banned words, forms and files; and what every error message does say."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from tests.contracts.source import ROOT, SOURCE, Module, library

LONGEST = 350
#: A function with more parameters wants a value of its own; a command's parameters are its options.
MOST_PARAMETERS = 12
#: Back-quoted argument, what it must be, what came; what to do, where that is not plain.
MESSAGE = re.compile(r"`[^`]+`( and `[^`]+`)? must .+; got .+(\.|\?|\{\})", re.DOTALL)
_OWN = ("self", "cls")
_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
_MACHINE = re.compile(r"(?<![\w.~])/(?:home|root|work|tmp|Users|mnt|opt|usr|srv|var)/\w|\b[A-Z]:\\\\?\w")


def offences(module: Module) -> Iterator[str]:
    """One sentence for every rule the module breaks."""
    lines = module.text.splitlines()
    for number, line in enumerate(lines, 1):
        if _UNFINISHED.search(line):
            yield f"{module.name}, line {number}: unfinished business belongs in an issue"
        if _MACHINE.search(line):
            yield f"{module.name}, line {number}: the path of one machine"
    if len(lines) > LONGEST:
        yield f"{module.name}: {len(lines)} lines, more than {LONGEST}; which part has a name of its own?"
    if module.name.rpartition(".")[2] in ("utils", "util", "helpers", "misc", "common"):
        yield f"{module.name}: a file is named after what it does"
    for node in ast.walk(module.tree):
        many = len(_parameters(node)) if isinstance(node, (ast.FunctionDef, ast.Lambda)) else 0
        if many > MOST_PARAMETERS and not module.name.startswith("usu.cli."):
            yield f"{module.name}, line {node.lineno}: {many} parameters, more than {MOST_PARAMETERS}"
        for complaint in _complaints(node):
            yield f"{module.name}, line {getattr(node, 'lineno', 1)}: {complaint}"


def _parameters(node: ast.FunctionDef | ast.Lambda) -> list[ast.arg]:
    return [arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs) if arg.arg not in _OWN]


def _complaints(node: ast.AST) -> Iterator[str]:
    for name in _named(node):
        if "baseline" in name.lower():
            yield f"`{name}`: 'baseline' means two things in this field"
        if name == "mask":
            yield "`mask` does not say whether True hides or keeps: say `keep`"
    if isinstance(node, ast.arguments) and node.kwarg is not None:
        yield f"`**{node.kwarg.arg}` hides which settings there are"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
        yield "the library does not print"
    elif isinstance(node, ast.Assert):
        yield "`assert` vanishes under -O: raise an error that says what to do"
    elif _swallows(node):
        yield "this handler hides every error"
    elif isinstance(node, ast.Raise):
        text = _message(node)
        if text is not None and not MESSAGE.fullmatch(text):
            yield f"the message must read '`argument` must ...; got .... What to do.'; it is {text!r}"


def _named(node: ast.AST) -> Iterator[str]:
    """Names this node gives to something. Attributes and keywords that are only read belong to others."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.alias):
        yield node.asname or ""


def _swallows(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2] == "suppress" and _broad(node.args)
    if not isinstance(node, ast.ExceptHandler):
        return False
    if node.type is None:
        return True
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return _broad(caught) and all(isinstance(line, (ast.Pass, ast.Continue)) for line in node.body)


def _broad(caught: list[ast.expr]) -> bool:
    return any(isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException") for kind in caught)


def _message(node: ast.Raise) -> str | None:
    """The text of a ValueError or TypeError, with {} for values; None if it is made elsewhere."""
    call = node.exc
    if isinstance(call, ast.Name) and call.id in ("ValueError", "TypeError"):
        return ""
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        return None
    if call.func.id not in ("ValueError", "TypeError"):
        return None
    return _text(call.args[0]) if call.args else ""


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = _text(node.left), _text(node.right)
        return "".join(part or "{}" for part in parts) if any(parts) else None
    return None


def test_the_source_keeps_the_manners() -> None:
    assert [offence for module in library() for offence in offences(module)] == []


def named_twice(modules: Iterable[Module]) -> list[str]:
    """Public classes whose name another one has."""
    nodes = [node for module in modules for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    count = Counter(node.name for node in nodes if not node.name.startswith("_"))
    return [name for name, times in count.items() if times > 1]


def test_every_public_class_has_a_name_of_its_own() -> None:
    assert named_twice(library()) == []
    assert "Settings" in named_twice([*library(), *library()])


def test_the_source_has_messages_to_check() -> None:
    raised = [node for m in library() for node in ast.walk(m.tree) if isinstance(node, ast.Raise)]
    assert sum(_message(node) is not None for node in raised) > 50


def test_no_machine_in_other_files() -> None:
    data = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix in (".txt", ".json", ".toml", ".md")]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    for path in [*data, *pages]:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not _MACHINE.search(line), f"{path.relative_to(ROOT)}: {line}"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("baseline = 1", "two things"),
        ("def f(baselines): ...", "two things"),
        ("def to_baseline(): ...", "two things"),
        ("import numpy as baseline", "two things"),
        ("self.baseline_map = 1", "two things"),
        ("mask = 1", "keep"),
        ("def f(mask): ...", "keep"),
        ("def f(**kwargs): ...", "`**kwargs` hides"),
        ("f = lambda **more: 0", "`**more` hides"),
        ("print(1)", "does not print"),
        ("assert x", "vanishes"),
        ("try:\n    f()\nexcept:\n    g()", "hides every error"),
        ("try:\n    f()\nexcept Exception:\n    pass", "hides every error"),
        ("try:\n    f()\nexcept (OSError, Exception):\n    pass", "hides every error"),
        ("with contextlib.suppress(Exception):\n    f()", "hides every error"),
        ("x = 1  # TODO: more", "unfinished"),
        ("# FIXME", "unfinished"),
        ("x = '/home/me/cat.png'", "one machine"),
        ("x = 'see /" + "work/shared'", "one machine"),
        (r"x = 'C:\\data'", "one machine"),
        ("x = 1\n" * (LONGEST + 1), "lines, more than"),
        ("raise ValueError('bad value')", "must read"),
        ("raise ValueError", "must read"),
        ("raise TypeError()", "must read"),
        ("raise ValueError(f'coarse must be finite; got {x}. Look for NaN.')", "must read"),
        ("raise ValueError(f'`coarse` must be finite, not {x}. Look for NaN.')", "must read"),
        ("raise ValueError(f'`coarse` should be finite; got {x}. Look for NaN.')", "must read"),
        ("raise ValueError(f'`coarse` must be finite; got {x}, sorry')", "must read"),
        (f"def f({', '.join(f'x{i}' for i in range(MOST_PARAMETERS + 1))}): ...", "parameters, more than"),
        ("raise ValueError('bad: ' + text)", "must read"),
    ],
)
def test_a_planted_offence_is_named(text: str, rule: str) -> None:
    (message,) = offences(Module("usu.planted", text))
    assert message.startswith("usu.planted")
    assert rule in message


def test_a_file_without_a_subject_is_named() -> None:
    assert "named after" in next(offences(Module("usu.utils", "x = 1")))


@pytest.mark.parametrize(
    "text",
    [
        "x = slic(picture, mask=region)",
        "x = y.masked_fill(keep, 0).mask",
        "def from_masks(masks): ...",
        "console.print(table)",
        "try:\n    f()\nexcept Exception:\n    return_value = 1",
        "try:\n    f()\nexcept OSError:\n    pass",
        "f(**settings)",
        "x = 'https://example.org/home/page and ~/" + "work/x and a/" + "tmp/b'",
        "raise ValueError(f'`{name}` must be one of {words}; got {value!r}. Check the spelling.')",
        "raise ValueError('`fine` and `coarse` must have the same shape; got 2 and 3. Compare maps of one picture.')",
        "raise ValueError(f'`coarse` must be finite; got {x}.')",
        "raise ValueError(message)",
        "raise KeyError(name)",
    ],
)
def test_good_manners_are_not(text: str) -> None:
    assert list(offences(Module("usu.planted", text))) == []
