"""Other libraries and ours on the same pictures and network: python -m benchmarks.peers DATA RESULTS [PICTURES]

Needs grad-cam, torchcam, captum and quantus (pip install 'usu-xai[dev]') and, for XRAI, saliency; what is not there is
left out, and a line says so. DATA is a folder with pictures in ``imagenet``, of which those at odd places are taken.

``peers-pictures.csv``: faithfulness of every map, and the IoU of its highest pixels between two seeds where it is
random. ``peers-cost.csv``: one picture, a process for each method, the second call in each of three, or one call where
it is long: the processor's seconds with one thread, rows that went forward and backward through the network, peak
memory. There everybody runs the same module in torch; one row of ours is the engine ``auto``, with the passes of the
row in torch. For the pictures, ours and RISE are asked by ``auto``, whose outputs are checked against torch.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from experiments.costs import rows_of
from experiments.presets.rivals import last_layers
from experiments.stability.cases import Case, Remembered, agreement, case_of, files_of, pixels_of
from experiments.stability.rivals import integrated_gradients, rise, xrai
from torch import Tensor

import usu
from usu.settings import PRESETS

#: Seconds from which a cost is taken once.
_LONG = 10.0
COST = ("method", "seconds", "least", "most", "runs", "forward", "backward", "megabytes")


def declare_operators() -> None:
    """torchvision built for another torch lacks its operators; only their names are needed."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)


#: The operators vanish with the library object.
_KEPT: list[torch.library.Library] = []


def _smooth(field: Any, case: Case) -> Tensor:
    return usu.interpolate(torch.as_tensor(np.asarray(field)).double(), case.size, "bilinear")


#: The last layers of each resolution, once they were looked for: that is no method's work.
_FOUND: list[str] = []


def _layers(case: Case, levels: int) -> list[Any]:
    modules = dict(case.loaded.model.named_modules())
    if levels == 1:
        return [modules[case.loaded.layer]]
    _FOUND[:] = _FOUND or last_layers(case.loaded.model, case.image)
    return [modules[name] for name in _FOUND[:levels]]


def bilinear(case: Case, seed: int) -> Tensor:
    found = usu.gradcam(case.loaded.model, case.image[None], case.target, layer=case.loaded.layer)
    return _smooth(found.values[0], case)


def ours(preset: str, evaluations: Any, engine: str = "torch") -> Callable[[Case, int], Tensor]:
    """The whole of `usu.explain`: the source, too."""

    def call(case: Case, seed: int) -> Tensor:
        settings = replace(PRESETS[preset], seed=seed, engine=engine)
        settings = settings if evaluations is None else replace(settings, evaluations=evaluations)
        found = usu.explain(
            case.loaded.model, case.image, case.target, layer=case.loaded.layer, preset=settings, picture=case.picture
        )
        return torch.as_tensor(np.asarray(found.pixel_map))

    return call


def grad_cam(name: str) -> Callable[[Case, int], Tensor]:
    def call(case: Case, seed: int) -> Tensor:
        import pytorch_grad_cam
        from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

        layers = _layers(case, 2 if name == "RefineCAM" else 1)
        cam = getattr(pytorch_grad_cam, name)(model=case.loaded.model, target_layers=layers)
        try:
            found = cam(input_tensor=case.image[None], targets=[ClassifierOutputTarget(case.target)])
        finally:
            for own in getattr(cam, "base_cam_per_layer", [cam]):
                own.activations_and_grads.release()
        return torch.as_tensor(np.asarray(found[0])).double()

    return call


def torch_cam(name: str) -> Callable[[Case, int], Tensor]:
    def call(case: Case, seed: int) -> Tensor:
        from torchcam import methods

        torch.manual_seed(seed)
        with getattr(methods, name)(case.loaded.model, _layers(case, 1)[0]) as extract:
            scores = case.loaded.model(case.image[None].clone().requires_grad_())
            (found,) = extract(case.target, scores)
        return _smooth(found.detach()[0], case)

    return call


def _segments(case: Case) -> Tensor:
    settings = PRESETS["soft"]
    return torch.as_tensor(np.asarray(settings.segmenter(case.picture, settings.parts)))


def captum(name: str, seed: int, case: Case) -> Tensor:
    """Occlusion by windows of an eighth of the side; the others on our segments, of which the density is shown."""
    from captum import attr

    torch.manual_seed(seed)
    image, method = case.image[None], getattr(attr, name)(case.loaded.model)
    labels = _segments(case)
    size = torch.bincount(labels.flatten())[labels]
    with torch.no_grad():
        if name == "Occlusion":
            side = case.size[0] // 8
            found = method.attribute(image, (3, side, side), strides=(3, side // 2, side // 2), target=case.target)
            return found[0].sum(0).double()
        more = {"n_samples": 300, "perturbations_per_eval": 4} if name == "KernelShap" else {}
        found = method.attribute(image, target=case.target, feature_mask=labels[None, None], **more)
    return found[0, 0].double() / size


OURS: list[tuple[str, Any]] = [(preset, n) for preset in ("soft", "cell") for n in (60, 300, "auto")]
METHODS: dict[str, Callable[[Case, int], Tensor]] = {
    "Grad-CAM, bilinear": bilinear,
    "usu fast": ours("fast", None),
    **{f"usu {preset}, {n}": ours(preset, n) for preset, n in OURS},
    "usu soft, 300, engine auto": ours("soft", 300, "auto"),
    **{f"pytorch-grad-cam {name}": grad_cam(name) for name in ("GradCAM", "RefineCAM", "ScoreCAM", "AblationCAM")},
    **{f"torchcam {name}": torch_cam(name) for name in ("LayerCAM", "SmoothGradCAMpp")},
    "Captum Occlusion": lambda case, seed: captum("Occlusion", seed, case),
    "Captum FeatureAblation": lambda case, seed: captum("FeatureAblation", seed, case),
    "Captum KernelShap, 300": lambda case, seed: captum("KernelShap", seed, case),
    "Captum IntegratedGradients, 50": lambda case, seed: integrated_gradients(case),
    "XRAI": lambda case, seed: xrai(case),
    "RISE, 4000": lambda case, seed: _rise(case, seed),
}
#: Those with a seed.
RANDOM = [name for name in METHODS if name.startswith(("usu soft", "usu cell"))] + [
    "torchcam SmoothGradCAMpp", "Captum KernelShap, 300", "RISE, 4000",
]  # fmt: skip


def _rise(case: Case, seed: int) -> Tensor:
    with torch.no_grad():
        return rise(case, seed)


def written(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def pictures(data: Path, path: Path, count: int) -> None:
    """Faithfulness and stability; rows that are there already are kept."""
    net, rows = usu.models.load(), rows_of(path)
    quick = {f"usu {preset}, {n}": ours(preset, n, "auto") for preset, n in OURS}
    known = {(row["picture"], row["method"]) for row in rows}
    done = 0
    for file in files_of(data / "imagenet"):
        case = case_of(net, pixels_of(file)) if done < count else None
        if case is None:
            continue
        done += 1
        for name, make in {**METHODS, **quick}.items():
            if (file.stem, name) in known or name.endswith("engine auto"):
                continue
            try:
                maps = [make(case, seed) for seed in range(1 + (name in RANDOM))]
            except ImportError as error:
                print(f"{name} is left out: {error}")
                continue
            found = {key: f"{value:.4f}" for key, value in case.faithful(maps[0]).items()}
            stable = f"{agreement(*maps)[0]:.4f}" if len(maps) > 1 else ""
            rows.append({"picture": file.stem, "method": name, **found, "stability": stable})
            written(path, rows)
            print(*rows[-1].values(), flush=True)


def one_cost(name: str, file: Path) -> dict[str, float]:
    """In this process: the processor's seconds, rows through the network, the peak."""
    torch.set_num_threads(1)
    case = case_of(usu.models.load(), pixels_of(file))
    if case is None:
        raise SystemExit("Grad-CAM finds nothing here.")
    case, spent = replace(case, model=Remembered(case.loaded.model)), {"forward": 0, "backward": 0}

    def count(way: str, rows: int) -> None:
        spent[way] += rows

    def passed(_: Any, inputs: Any, output: Tensor) -> None:
        count("forward", len(output))
        if output.requires_grad:
            output.register_hook(lambda gradient: count("backward", len(gradient)))

    bilinear(case, 0)
    handle, seconds = case.loaded.model.register_forward_hook(passed), 0.0
    for turn in range(2):  # what a library does once, such as import or export, is not in the second turn
        if turn == 0 or seconds < _LONG:
            spent.update(forward=0, backward=0)
            start = time.process_time()
            METHODS[name](case, 0)
            seconds = time.process_time() - start
    handle.remove()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return {"seconds": seconds, **spent, "megabytes": peak / scale}


def costs(data: Path, path: Path) -> None:
    """A process for each; rows that are there already are kept."""
    rows = rows_of(path)
    file = files_of(data / "imagenet")[0]
    for name in METHODS:
        if name in {row["method"] for row in rows}:
            continue
        runs: list[dict[str, float]] = []
        while len(runs) < (1 if runs and runs[0]["seconds"] > _LONG else 3):
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.peers", "--one", name, str(file)]
            told = subprocess.run(
                command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            if told.returncode:
                print(f"{name} is left out: {told.stderr.strip().splitlines()[-1]}")
                break
            runs.append(json.loads(told.stdout.splitlines()[-1]))
        if runs:
            taken = [run["seconds"] for run in runs]
            values = (median(taken), min(taken), max(taken))
            numbers = [f"{value:.3g}" for value in values] + [str(len(runs))]
            numbers += [f"{runs[0][key]:.0f}" for key in ("forward", "backward", "megabytes")]
            if name.endswith("engine auto"):  # another runtime's passes are not seen by hooks
                numbers[4] = next(row["forward"] for row in rows if row["method"] == "usu soft, 300")
            rows.append(dict(zip(COST, [name, *numbers], strict=True)))
            written(path, rows)
            print(*rows[-1].values(), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    declare_operators()
    if sys.argv[1] == "--one":
        print(json.dumps(one_cost(sys.argv[2], Path(sys.argv[3]))))
    else:
        out = Path(sys.argv[2])
        torch.set_num_threads(1)
        costs(Path(sys.argv[1]), out / "peers-cost.csv")
        pictures(Path(sys.argv[1]), out / "peers-pictures.csv", int(sys.argv[3]) if len(sys.argv) > 3 else 6)
