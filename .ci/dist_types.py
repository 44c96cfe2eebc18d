"""A user's file: what a type checker knows of the installed package."""

import numpy as np
import numpy.typing as npt
import torch

import usu


def pixels(coarse: npt.NDArray[np.float64], scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return usu.redistribute(coarse, scores, budget=usu.SoftPrior(0.75))


def why(model: torch.nn.Module, image: torch.Tensor) -> usu.Explanation:
    found = usu.explain(model, image, 3, preset=usu.Settings(parts=30), evaluations=100)
    stable = found.stability
    if isinstance(stable, float) and stable < 0.5:
        found = usu.explain(model, image, 3, evaluations=600)
    return found


def mass(model: torch.nn.Module, image: torch.Tensor) -> float:
    coarse: usu.CoarseMap = usu.gradcam(model, image[None])
    return usu.upsample(coarse, image, model).mass_error
