"""Our `compat="quantus"` forms against Quantus itself: equal definitions, equal values, one run, in turns.

Quantus passes all pictures through the model together, one step at a time; ours takes them one by one, a few steps of a
picture at a time. The passes are the same, so the arithmetic of the machine limits how much faster they can be at all
(the line below the table). Only Quantus' Infidelity makes each of them ``n_perturb_samples`` times (10 unless told
otherwise) for the same number; the last row shows it without.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from skimage import data
from torch.utils.flop_counter import FlopCounterMode

import usu
from usu.metrics import infidelity, pixel_flipping
from usu.models import load

PICTURES = (
    "astronaut", "chelsea", "coffee", "colorwheel", "hubble_deep_field", "immunohistochemistry", "retina", "rocket",
)  # fmt: skip
#: Values per step of pixel flipping: 21 steps. Quantus wants it to divide the number of pixels.
FEATURES = 224 * 32
#: Pixels: 16 patches per picture and sample.
PATCH = 56
REPEATS = 3
TARGET = 10.0
#: Largest difference between the values of Quantus and ours, of the largest value.
AGREE = 1e-4


def in_turns(calls: dict[str, Callable[[], np.ndarray]]) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The shortest of a few runs of each, taken in turns so that a busy moment hits all of them, and what they gave."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    values = {}
    for _ in range(REPEATS):
        for name, call in calls.items():
            start = time.perf_counter()
            values[name] = call()
            taken[name].append(time.perf_counter() - start)
    return {name: min(times) for name, times in taken.items()}, values


def exported(model: torch.nn.Module, image: torch.Tensor, folder: str) -> usu.onnx.OnnxModel:
    """The same network through ONNX Runtime."""
    path = Path(folder) / "network.onnx"
    torch.onnx.export(
        model, (image[None],), str(path), dynamo=False, input_names=["image"], dynamic_axes={"image": {0: "batch"}}
    )
    return usu.forward.from_onnx(path)


def matrix_product(side: int = 2048) -> float:
    """Operations a second of a large matrix product, the best of a few: the arithmetic this machine is good for."""
    square = torch.rand(side, side)
    taken, _ = in_turns({"product": lambda: (square @ square).numpy()})
    return 2 * side**3 / taken["product"]


def ceiling(model: torch.nn.Module, image: torch.Tensor, passes: int, seconds: float) -> str:
    """How much faster the same passes could be at all: through a runtime as quick as a bare product."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(image[None])
    each, best = counter.get_total_flops() / 1e9, matrix_product() / 1e9
    theirs = passes * each / seconds
    return (
        f"PixelFlipping is {passes} passes of {each:.2f}e9 operations. Quantus does {theirs:.0f}e9 of them a second, "
        f"a bare matrix product here {best:.0f}e9. The same passes could be at most {best / theirs:.1f} times as fast."
    )


def main() -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import quantus
    except ImportError:
        print("\n## metrics against Quantus\n\nQuantus is not installed: pip install 'usu-xai[quantus]'")
        return
    loaded = load()
    images = torch.stack([loaded.prepare(getattr(data, name)())[0] for name in PICTURES])
    source = usu.gradcam(loaded.model, images, layer=loaded.layer)
    targets = [int(target) for target in source.targets]
    maps = usu.interpolate(source.values, tuple(images.shape[-2:]), "bilinear").numpy()
    steps = images[0].numel() // FEATURES

    def theirs(metric: Callable[..., object]) -> np.ndarray:
        found = metric(
            loaded.model, images.numpy(), np.array(targets), a_batch=maps[:, None], device="cpu", channel_first=True
        )
        return np.array(found, dtype=float)

    def flipped(model: Callable[[torch.Tensor], object]) -> np.ndarray:
        each = zip(maps, images, targets, strict=True)
        return np.stack([pixel_flipping(m, x, model, y, steps=steps, compat="quantus").curve for m, x, y in each])

    def unfaithful(model: Callable[[torch.Tensor], object]) -> np.ndarray:
        each = zip(maps, images, targets, strict=True)
        return np.array([float(infidelity(m, x, model, y, compat="quantus", patch_sizes=(PATCH,))) for m, x, y in each])

    quiet = {"disable_warnings": True, "display_progressbar": False}
    settings = {"perturb_patch_sizes": [PATCH], **quiet}
    rows = {
        f"PixelFlipping, {steps} steps": (quantus.PixelFlipping(features_in_step=FEATURES, **quiet), flipped),
        f"Infidelity, {(224 // PATCH) ** 2} patches": (quantus.Infidelity(**settings), unfaithful),
        "the same, n_perturb_samples=1": (quantus.Infidelity(n_perturb_samples=1, **settings), unfaithful),
    }
    print(f"\n## metrics against Quantus {quantus.__version__}, EfficientNet-Lite0, {len(PICTURES)} pictures\n")
    print("| metric | Quantus, s | ours, torch, s | ours, ONNX, s | ratio, torch | ratio, ONNX | target | differ by |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnx = exported(loaded.model, images[0], folder)
        for name, (metric, ours) in rows.items():
            calls = {
                "quantus": lambda metric=metric: theirs(metric),
                "torch": lambda ours=ours: ours(loaded.model),
                "onnx": lambda ours=ours: ours(onnx),
            }
            taken, values = in_turns(calls)
            if ours is flipped:
                limit = ceiling(loaded.model, images[0], steps * len(images), taken["quantus"])
            wanted = values["quantus"]
            error = max(float(np.abs(values[way] - wanted).max() / np.abs(wanted).max()) for way in ("torch", "onnx"))
            if error > AGREE:
                raise SystemExit(f"{name}: the values differ by {error:.1e}; a time ratio would mean nothing.")
            ratios = [taken["quantus"] / taken[way] for way in ("torch", "onnx")]
            print(
                f"| {name} | {taken['quantus']:.1f} | {taken['torch']:.1f} | {taken['onnx']:.1f} | {ratios[0]:.1f} "
                f"| {ratios[1]:.1f} | > {TARGET:.0f} | {error:.0e} |",
                flush=True,
            )
    print(f"\n{limit}")
