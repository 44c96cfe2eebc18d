"""The Python of README and documentation, and which test runs it."""

from __future__ import annotations

import re
from pathlib import Path

#: Run by tests/integrations/test_documentation.py.
HERE = (
    "README.md",
    "docs/cost.md",
    "docs/desiderata.md",
    "docs/evaluation.md",
    "docs/how-to/your-own.md",
    "docs/index.md",
    "docs/infidelity.md",
    "docs/presets.md",
    "docs/reference/explain.md",
    "docs/reference/figures.md",
    "docs/reference/measuring.md",
    "docs/reference/operator.md",
    "docs/reference/sources.md",
    "docs/theory.md",
    "docs/tutorial.md",
)
#: Run by tests of their own, which also look at what is printed.
ELSEWHERE = (
    "docs/guarantees.md",
    "docs/how-to/captum.md",
    "docs/how-to/detection-and-segmentation.md",
    "docs/how-to/faq.md",
    "docs/how-to/lime-shap-rise.md",
    "docs/how-to/page.md",
    "docs/how-to/pytorch-grad-cam.md",
    "docs/how-to/quantus.md",
    "docs/how-to/signals-and-volumes.md",
    "docs/how-to/sources.md",
    "docs/how-to/torchcam.md",
    "docs/how-to/vision-transformers.md",
    "docs/model-kinds.md",
    "docs/stability.md",
)


def blocks(page: Path) -> list[str]:
    """Every block of Python, from the top."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
