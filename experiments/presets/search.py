"""The search that the presets come from: one ingredient changed at a time, on the development half.

    python -m experiments.presets.search DATA RUN --forward lite0.onnx [--workers 2] [--group parts]

Groups: ``parts`` (segments and temperatures), ``ingredients`` (one taken away or replaced), ``budgets`` (evaluations),
``unscored`` (no evaluations beyond one forward and one backward pass), ``candidates`` (what might still improve the
presets that came out of the others).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from experiments.presets import FORMER
from experiments.presets.candidates import Based, Fitted, Mixed, Perplexed
from experiments.presets.confirm import METRICS, arguments
from experiments.presets.pictures import development
from experiments.presets.rivals import LayerCam, RefineCam

from usu import PRESETS, Hybrid, SoftIWMR, SoftPrior
from usu.bench import Local, evaluate
from usu.bench.contenders import ScoresAlone
from usu.forward import from_onnx
from usu.models import load
from usu.segment import Slic

FAST = PRESETS["fast"]
#: Where the search stood when this was run; what it found became the presets.
CELL = replace(FORMER["cell"], parts=150, temperature=0.3)
SOFT = replace(FORMER["soft"], parts=150, temperature=0.3, budget=SoftPrior(0.5, 0.0))
BILINEAR = SoftPrior(0.5, 0.03)
FOUND = dict(FORMER)
IWMR = replace(FORMER["cell"], trace=0.0, max_gain=None)
GROUPS: dict[str, list[Any]] = {
    "parts": [
        "nearest", "bilinear", "guided",
        *((f"soft, {parts} segments", replace(SOFT, parts=parts)) for parts in (100, 150, 200)),
        *((f"cell, {parts} segments", replace(CELL, parts=parts)) for parts in (100, 150, 200)),
        ("soft, temperature 0.2", replace(SOFT, temperature=0.2)),
        ("soft, exponent 0.75", replace(SOFT, budget=SoftPrior(0.75, 0.0))),
        ("cell, temperature 0.15", replace(CELL, temperature=0.15)),
        ("cell, temperature 0.2", replace(CELL, temperature=0.2)),
        ("cell, no ceiling", replace(CELL, max_gain=None)),
        ("cell, no trace", replace(CELL, trace=0.0)),
        ScoresAlone("scores alone", SOFT),
    ],
    "ingredients": [
        "bilinear", "paper",
        *((f"{name}, bilinear base", replace(preset, base="bilinear", budget=budget))
          for name, preset, budget in (("soft", SOFT, BILINEAR), ("cell", CELL, "cell"))),
        *((f"{name}, edges of segments", replace(preset, edges="segments"))
          for name, preset in (("soft", SOFT), ("cell", CELL))),
        ("soft, log-probability", replace(SOFT, link="log_probability")),
        ("soft, kernel SHAP", replace(SOFT, fit="kernel_shap")),
        ("soft, gradient scores", replace(SOFT, scoring="gradient", evaluations=None)),
        ("soft, one segment at a time", replace(SOFT, scoring="delete", evaluations=300)),
    ],
    "budgets": [
        "bilinear",
        *((f"{name}, {spent} evaluations", replace(preset, evaluations=spent))
          for spent in (50, 150, 1000) for name, preset in (("soft", SOFT), ("cell", CELL))),
        *(ScoresAlone(f"scores alone, {spent} evaluations", replace(SOFT, evaluations=spent))
          for spent in (50, 150, 1000)),
    ],
    "unscored": [
        "bilinear", "fast", LayerCam(), LayerCam("layercam, two finer", 2), RefineCam(),
        ("fast, cells keep their mass", replace(FAST, budget="cell", trace=1e-13)),
        ("gradient scores, cell", replace(CELL, scoring="gradient", evaluations=None)),
    ],
    "candidates": [
        "bilinear", "guided", "cell", "soft", "fast", "scores-alone",
        *((f"cell, temperature {t:g}", replace(FOUND["cell"], temperature=t)) for t in (0.3, 0.5, 1.0)),
        *(one for name, preset in FOUND.items() for one in (
            Perplexed(f"{name}, temperature by perplexity", preset),
            Fitted(f"{name}, gradients as control variate", preset, controlled=True),
            Fitted(f"{name}, groups of 70 %", preset, keep=0.7),
            Fitted(f"{name}, groups of 30 %", preset, keep=0.3),
            Fitted(f"{name}, ridge 1", preset, strength=1.0),
            Mixed(f"{name}, blur and noise", preset, fills=("blur", "noise")),
            Mixed(f"{name}, three segmentations", preset, parts=(75, 150, 300)),
            (f"{name}, compactness 1", replace(preset, segmenter=Slic(compactness=1.0, smoothing=1.0))),
            (f"{name}, compactness 30", replace(preset, segmenter=Slic(compactness=30.0, smoothing=1.0))),
            (f"{name}, refined once from 60", replace(preset, parts=60, depth=1)),
            Based(f"{name}, two finer layers", preset),
        )),
        ("iwmr, mass prior", replace(IWMR, budget=SoftIWMR(prior="mass"))),
        ("iwmr, log-mean-exp", replace(IWMR, budget=SoftIWMR(prior="mass", importance="logmeanexp"))),
        ("hybrid 0.5", replace(IWMR, budget=Hybrid(0.5))),
    ],
}  # fmt: skip


def main() -> None:
    asked = arguments(groups=tuple(GROUPS))
    torch.set_num_threads(1)
    loaded = load("efficientnet_lite0")
    for group in [asked.group] if asked.group else GROUPS:
        table = evaluate(
            GROUPS[group], development(asked.data, loaded), loaded.model, METRICS,
            forward=from_onnx(asked.forward) if asked.forward else None, layer=loaded.layer,
            out=asked.run / group, engine=Local(asked.workers),
            progress=lambda name, done, total: print(f"{done}/{total} {name}", flush=True),
        )  # fmt: skip
        table.save(asked.run / group)


if __name__ == "__main__":
    main()
