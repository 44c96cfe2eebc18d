"""What every test shares: quiet threads, reproducible hypothesis, and where the development data lies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
settings.register_profile("usu", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("usu")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command line, called inside this process: a folder and arguments give code, output and complaints."""
    import usu.cli

    def call(folder: Path, *arguments: object) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["usu", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            usu.cli.main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


@pytest.fixture(scope="session")
def vectors() -> Path:
    """Reference numbers beside the project."""
    folder = SHARED / "vectors"
    if not folder.is_dir():
        pytest.skip("the reference vectors beside the project are missing")
    return folder


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Real pictures beside the project."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("the development pictures beside the project are missing")
    return folder
