"""Other methods, from their own packages: each makes a pixel map of a case, or None where it cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from experiments.presets.rivals import last_layers
from experiments.stability.cases import SETTINGS, Case
from torch import Tensor, nn
from torch.nn import functional

import usu
from usu.forward import fills

#: Evaluations of RISE, and pictures of it at a time.
MASKS, BATCH = 4000, 8


def layercam(case: Case) -> Tensor:
    """One forward and one backward pass, of the layer one resolution finer than Grad-CAM's."""
    layers = last_layers(case.loaded.model, case.image)  # type: ignore[arg-type]
    layer = layers[1] if len(layers) > 1 else layers[0]
    found = usu.layercam(case.loaded.model, case.image[None], case.target, layer=layer).values[0]
    return usu.interpolate(found.double(), case.size, "bilinear")


#: Approximators of shapiq: its KernelSHAP; and the best of nine at even places of the embedded network, the
#: faithful Banzhaf regression at 300 evaluations and ProxySPEX, gradient-boosted trees, at 100 (10 pictures).
SHAPIQ = ("KernelSHAP", "FBII", "ProxySPEX")


def shapiq_map(case: Case, approximator: str, evaluations: int, seed: int) -> Tensor | None:
    """shapiq on the same segments, log-odds and fill; densities as the map.

    None where ProxySPEX stops with an IndexError: its trees found nothing in so few evaluations.
    """
    from shapiq.approximator import KernelSHAP, ProxySPEX, RegressionFBII

    settings = replace(SETTINGS["soft"], evaluations=evaluations)
    labels = torch.as_tensor(np.asarray(settings.segmenter(case.picture, settings.segments)))
    count = int(labels.max()) + 1
    hidden = fills.filled(case.image, settings.fill)

    def game(coalitions: np.ndarray) -> np.ndarray:
        coalitions, values = np.atleast_2d(coalitions), []
        for begin in range(0, len(coalitions), BATCH):
            keep = torch.as_tensor(coalitions[begin : begin + BATCH], dtype=torch.bool)[:, labels]
            logits = case.model(torch.where(keep[:, None], case.image, hidden)).double()
            rest = logits.clone()
            rest[:, case.target] = -torch.inf
            values.append(logits[:, case.target] - torch.logsumexp(rest, 1))
        return torch.cat(values).numpy()

    made = {
        "KernelSHAP": lambda: KernelSHAP(n=count, pairing_trick=True, random_state=seed),
        "FBII": lambda: RegressionFBII(n=count, max_order=1, pairing_trick=True, random_state=seed),
        "ProxySPEX": lambda: ProxySPEX(n=count, index="SV", max_order=1, random_state=seed),
    }
    try:
        found = made[approximator]().approximate(evaluations, game)
    except IndexError:
        return None
    effects = torch.tensor([float(found[(segment,)]) for segment in range(count)], dtype=torch.float64)
    return (effects / torch.bincount(labels.flatten()))[labels]


def rise(case: Case, seed: int = 0) -> Tensor:
    """4,000 smooth random masks on a 7 x 7 grid, as published; what is hidden is the input's zero."""
    (height, width), grid = case.size, 7
    down, right = -(-height // grid), -(-width // grid)
    dice, total = torch.Generator().manual_seed(seed), torch.zeros(height, width, dtype=torch.float64)
    for _ in range(0, MASKS, BATCH):
        small = (torch.rand(BATCH, 1, grid, grid, generator=dice) < 0.5).float()
        size = ((grid + 1) * down, (grid + 1) * right)
        large = functional.interpolate(small, size=size, mode="bilinear", align_corners=False)
        rows = torch.randint(0, down, (BATCH,), generator=dice).tolist()
        columns = torch.randint(0, right, (BATCH,), generator=dice).tolist()
        shown = torch.stack(
            [one[0, r : r + height, c : c + width] for one, r, c in zip(large, rows, columns, strict=True)]
        )
        chances = case.model.model(case.image[None] * shown[:, None]).softmax(1)[:, case.target]
        total += torch.einsum("n,nhw->hw", chances.double(), shown.double())
    return total


def integrated_gradients(case: Case) -> Tensor:
    """Captum, 50 steps from zero; the sum over colours of the absolute values."""
    from captum.attr import IntegratedGradients

    found = IntegratedGradients(case.loaded.model).attribute(
        case.image[None], target=case.target, n_steps=50, internal_batch_size=10
    )
    return found[0].abs().sum(0).double().detach()


def smoothgrad(case: Case) -> Tensor:
    """Captum, 50 noisy copies, noise of .15 of the range; the sum over colours of the absolute values."""
    from captum.attr import NoiseTunnel, Saliency

    torch.manual_seed(0)
    spread = 0.15 * float(case.image.max() - case.image.min())
    found = NoiseTunnel(Saliency(case.loaded.model)).attribute(
        case.image[None], nt_type="smoothgrad", nt_samples=50, nt_samples_batch_size=10, stdevs=spread,
        target=case.target,
    )  # fmt: skip
    return found[0].abs().sum(0).double().detach()


def guided_gradcam(case: Case) -> Tensor | None:
    """Captum, on the layer of the coarse map."""
    from captum.attr import GuidedGradCam

    modules = dict(case.loaded.model.named_modules())  # type: ignore[attr-defined]
    if not any(isinstance(module, nn.ReLU) for module in modules.values()) or not case.source.layer:
        return None
    found = GuidedGradCam(case.loaded.model, modules[case.source.layer]).attribute(case.image[None], case.target)
    return found[0].abs().sum(0).double().detach()


def xrai(case: Case) -> Tensor:
    """XRAI from the package ``saliency``: integrated gradients from black and white, 100 steps each, over segments."""
    import saliency.core as saliency

    def gradients(images: Any, call_model_args: Any = None, expected_keys: Any = None) -> dict[str, np.ndarray]:
        leaf = torch.as_tensor(np.asarray(images), dtype=torch.float32).permute(0, 3, 1, 2).requires_grad_()
        (slope,) = torch.autograd.grad(case.loaded.model(leaf)[:, case.target].sum(), leaf)
        return {saliency.INPUT_OUTPUT_GRADIENTS: slope.permute(0, 2, 3, 1).numpy()}

    found = saliency.XRAI().GetMask(case.image.permute(1, 2, 0).numpy(), gradients, batch_size=10)
    return torch.as_tensor(np.asarray(found)).double()


#: With what they cost.
RIVALS: dict[str, Callable[[Case], Tensor | None]] = {
    "LayerCAM": layercam,
    "shapiq KernelSHAP": lambda case: shapiq_map(case, "KernelSHAP", 300, 0),
    "integrated gradients": integrated_gradients,
    "SmoothGrad": smoothgrad,
    "Guided Grad-CAM": guided_gradcam,
    "XRAI": xrai,
}
