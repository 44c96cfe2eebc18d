"""What was timed, for the pages that say it: docs/results/timings.csv, one line per figure, with the command.

Two cores; one run each but for ranges. They are sizes, not promises: a new run is written into the file by hand.
"""

from __future__ import annotations

import csv
from pathlib import Path

from experiments.pages import markdown, prose

#: Milliseconds that are wanted of a slider, by the picture's side.
WANTED = {"224": "100", "1024": "500"}
BUDGETS = ("soft", "hybrid", "cell")


def parts(results: Path) -> dict[str, str]:
    """Every block by its name."""
    with (results / "timings.csv").open(encoding="utf-8", newline="") as file:
        rows = {(row["what"], row["case"]): row for row in csv.DictReader(file)}

    def said(what: str, case: str) -> str:
        row = rows[what, case]
        words = row["from"] if row["from"] == row["to"] else f"{row['from']} to {row['to']}"
        return f"{words} {row['unit']}".strip()

    def moved(where: str, side: str) -> list[str]:
        cells = [said(where, f"{side} {way}") if (where, f"{side} {way}") in rows else "" for way in BUDGETS]
        return [f"{side} pixels, {where.removeprefix('slider ')}", *cells, f"{WANTED[side]} ms"]

    taken = said("explain", "300 evaluations").removesuffix(" s")
    ratios = [said("fast over own Grad-CAM", f"layer {how}") for how in ("found", "named")]
    whole = [said("command over import torch and bare passes", engine) for engine in ("torch", "auto")]
    return {
        "seconds": f"On two cores 300 evaluations of EfficientNet-Lite0 take {taken} seconds.",
        "fast seconds": prose(
            f"`fast` takes {ratios[0]} as long as our own Grad-CAM with bilinear upsampling when the layer is found "
            f"automatically, and {ratios[1]} when it is named, because then Grad-CAM listens to that layer only. "
            f"It takes {said('fast over pytorch-grad-cam', 'layer named')} as long as pytorch-grad-cam's own Grad-CAM "
            "of a named layer."
        ),
        "command": prose(
            f"On two idle cores `usu explain cat.jpg` takes {whole[0]} as long as `import torch` and the bare passes "
            f"together. With `--engine auto`, whose passes are several times shorter, it takes {whole[1]} as long: "
            f"other imports ({said('imports beside torch', 'auto')}) and the files it writes "
            f"({said('panel and files', 'auto')}) show. `usu --help` takes {said('help over import torch', '')} as "
            "long as `import torch`."
        ),
        "two workers": f"Two Ray workers do {said('two Ray workers over one', '')} the units of one in the same time.",
        "chunks": prose(
            "Pictures of a batch are asked about one after the other. To fill one chunk from several of them would "
            "save nothing on a CPU: a small picture takes least in chunks of about 60, which one picture fills, and in "
            f"chunks of 240 {said('chunks of 240 over chunks of 60', '28 x 28 to 64 x 64')} as long."
        ),
        "shared work": prose(
            "All metrics of one photograph for eight upsamplers pass "
            f"{said('pictures passed over those that differ', 'eight upsamplers, all metrics')} as many pictures as "
            "differ."
        ),
        "reuse": _reuse(results / "reuse.csv"),
        "page": _list(rows, "page"),
        "slider": markdown(
            ["a new picture", *BUDGETS, "wanted"], (moved("slider in the browser", side) for side in WANTED)
        ),
        "visitors": _list(rows, "twenty visitors for five minutes"),
    }


def _list(rows: dict[tuple[str, str], dict[str, str]], what: str) -> str:
    own = [(case, row) for (own, case), row in rows.items() if own == what]
    return markdown([what, "figure"], ([case, f"{row['from']} {row['unit']}".strip()] for case, row in own))


def _reuse(path: Path) -> str:
    """Of all multiply-adds, those that are known; nothing where nobody counted."""
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", newline="") as file:
        own = [row for row in csv.DictReader(file) if row["outputs"] == "all"]
    return markdown(
        ["network", "masks", "known at most"],
        ([row["network"], row["masks"], f"{float(row['known']):.0%}".replace("%", " %")] for row in own),
    )
