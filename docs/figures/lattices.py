"""The figures of docs/how-to/signals-and-volumes.md, from the page's own code.

python docs/figures/lattices.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.snippets import blocks  # noqa: E402
from usu.operator.interpolate import interpolate  # noqa: E402
from usu.plot import Panel, figure  # noqa: E402
from usu.plot.lattices import sliced  # noqa: E402


def panels(found: Any, smooth: str) -> list[Panel]:
    """What the model sees, the interpolated map, and ours."""
    linear = interpolate(found.coarse, found.pixel_map.shape)
    coarse = " x ".join(map(str, found.coarse.shape))
    return [
        Panel("what the model sees", picture=found.picture),
        Panel(f"{smooth}, from {coarse}", linear, found.picture),
        Panel(f"USU: {found.title}", found.pixel_map, found.picture),
    ]


def main() -> None:
    """Run the page, draw both."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(HERE.parent / "how-to" / "signals-and-volumes.md"):
        exec(compile(block, "page", "exec"), names)
    figure(panels(names["beat"], "linear"), columns=1).savefig(HERE / "signal.png", dpi=110)
    scan = names["scan"]
    figure(sliced(panels(scan, "trilinear"), scan.pixel_map), columns=1).savefig(HERE / "volume.png", dpi=110)


if __name__ == "__main__":
    main()
