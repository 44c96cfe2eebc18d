"""Peak memory of the operator, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch, usu
def status(key):
    with open("/proc/self/status") as lines:
        return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024
coarse, scores = torch.rand(16, 16) - 0.3, torch.rand(3072, 3072)
usu.redistribute(coarse[:2, :2], scores[:64, :64])
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")
before = status("VmRSS")
result = usu.redistribute(coarse, scores, budget=BUDGET)
print((status("VmHWM") - before) / (result.numel() * result.element_size()))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(("budget", "most"), [("'cell'", 2.0), ("usu.SoftPrior(0.75)", 9.0)])
def test_peak_memory_is_a_few_times_the_output(budget: str, most: float) -> None:
    """A soft prior has a prior and logits on the way, and no label for each pixel."""
    program = PROGRAM.replace("BUDGET", budget)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert 0.9 < float(done.stdout) < most
