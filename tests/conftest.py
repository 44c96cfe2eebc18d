"""What every test shares: quiet threads, reproducible hypothesis, and where the development data lies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
settings.register_profile("usu", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("usu")

SHARED = Path(__file__).parents[2] / "shared"


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
