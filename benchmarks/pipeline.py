"""`usu.upsample` against bare forward passes of the same engine, and ONNX Runtime against eager torch."""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnxruntime
import torch
from skimage import data
from torch import Tensor

import usu
from usu.models import Loaded, load

#: As a batch is usually passed through a model, and as our engine passes it: in chunks that fit the caches.
PLAIN, CHUNKED = "eager torch in batches of 16", "eager torch in our chunks"
EVALUATIONS = 300


def best(call: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of a few runs: what the code takes, without what else the machine does."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def fast(loaded: Loaded, image: Tensor) -> None:
    """Preset ``fast`` beside Grad-CAM with bilinear upsampling, in turns: ours, and pytorch-grad-cam's."""
    print("\n## preset fast beside Grad-CAM and bilinear\n")
    for told, layer, plain in (
        ("ours, layer chosen", None, lambda: _smooth(loaded.model, image, None)),
        ("ours, layer named", loaded.layer, lambda: _smooth(loaded.model, image, loaded.layer)),
        ("pytorch-grad-cam's, layer named", loaded.layer, _pytorch_grad_cam(loaded, image)),
    ):
        whole = partial(usu.explain, loaded.model, image, layer=layer, preset="fast")
        taken = [(best(plain, 1), best(whole, 1)) for _ in range(15)]
        ratio = sorted(theirs / ours for ours, theirs in taken)[7]
        shortest = [min(times) * 1e3 for times in zip(*taken, strict=True)]
        print(
            f"{told}: Grad-CAM {shortest[0]:.1f} ms, fast {shortest[1]:.1f} ms, ratio {ratio:.2f} (median of 15 pairs)"
        )


def _smooth(model: torch.nn.Module, image: Tensor, layer: str | None) -> Tensor:
    return usu.interpolate(usu.gradcam(model, image[None], layer=layer).values, (224, 224))


def _pytorch_grad_cam(loaded: Loaded, image: Tensor) -> Callable[[], object]:
    """The library's own Grad-CAM for the top class. It imports torchvision, which may lack its compiled operators."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # declared already, by a torchvision that works
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from pytorch_grad_cam import GradCAM

    layers = [loaded.model.get_submodule(loaded.layer)]

    def call() -> object:
        with GradCAM(model=loaded.model, target_layers=layers) as cam:  # its hooks must not be there when we are timed
            return cam(input_tensor=image[None], targets=None)

    return call


def main() -> None:
    loaded = load()
    image, _ = loaded.prepare(data.chelsea())
    fast(loaded, image)
    source = usu.gradcam(loaded.model, image[None], layer=loaded.layer)
    coarse, target = source.values[0], source.targets[0]
    engine = usu.forward.engine(loaded.model, target)
    batch = image.expand(64, -1, -1, -1)

    def bare() -> object:
        return engine.evaluate(image, EVALUATIONS, lambda rows: batch[: rows.stop - rows.start])

    def whole() -> object:
        return usu.upsample(coarse, image, loaded.model, target, evaluations=EVALUATIONS)

    bare()
    passes, upsampled = best(bare), best(whole)
    print("\n## upsample with 300 evaluations, EfficientNet-Lite0, 224 x 224\n")
    print(f"bare passes {passes:.2f} s, upsample {upsampled:.2f} s, ratio {upsampled / passes:.3f}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lite0.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                loaded.model, (image[None],), str(path), dynamo=False, input_names=["image"],
                dynamic_axes={"image": {0: "batch"}},
            )  # fmt: skip
        segments = usu.segment.Slic(smoothing=1.0)(
            image.permute(1, 2, 0).sub(image.min()).div(5).clamp(0, 1).numpy(), 100
        )
        timings, scores = {}, {}
        for name, model, settings in (
            (PLAIN, loaded.model, {"channels_last": False, "chunk": 16}),
            (CHUNKED, loaded.model, {"channels_last": False}),
            ("eager torch, channels last", loaded.model, {"channels_last": True}),
            ("ONNX Runtime, all threads in one pass", usu.forward.from_onnx(onnxruntime.InferenceSession(path)), {}),
            ("ONNX Runtime, passes side by side", usu.forward.from_onnx(path), {}),
        ):
            asked = usu.forward.engine(model, target, **settings)
            run = partial(usu.score.sampled, asked, image, segments, evaluations=EVALUATIONS)
            scores[name] = run().values
            timings[name] = best(run)
    print("\n## sampled scores, 300 evaluations\n")
    reference = scores[PLAIN]
    for name, taken in timings.items():
        error = float((scores[name] - reference).abs().max() / reference.abs().max())
        print(
            f"{name}: {taken / EVALUATIONS * 1e3:.1f} ms a picture; {timings[PLAIN] / taken:.1f} x as fast as {PLAIN}, "
            f"{timings[CHUNKED] / taken:.1f} x as fast as {CHUNKED}; scores differ by {error:.0e}"
        )
