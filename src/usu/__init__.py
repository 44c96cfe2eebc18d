"""usu: turn a coarse attribution map into a pixel map by redistributing its mass, not by interpolating it."""

from usu import forward, metrics, perturb, potentials, score, segment, stats, upsamplers
from usu.audit import AuditReport, audit
from usu.bench import Sample, evaluate
from usu.error_maps import alpha_beta_errors, mass_imbalance
from usu.interpolate import interpolate
from usu.pipeline import explain, upsample
from usu.presets import PRESETS, Settings
from usu.redistribute import Hybrid, SoftIWMR, SoftPrior, cell_budgets, redistribute
from usu.refine import StopReason, boundary_segments, heterogeneity, merge, mixing
from usu.results import Explanation, Upsampled
from usu.sources import (
    CoarseMap,
    attention_rollout,
    gradcam,
    gradient_attention,
    hirescam,
    layercam,
    pyramid,
    reshape_transform,
)

__all__ = [
    "PRESETS",
    "AuditReport",
    "CoarseMap",
    "Explanation",
    "Hybrid",
    "Sample",
    "Settings",
    "SoftIWMR",
    "SoftPrior",
    "StopReason",
    "Upsampled",
    "alpha_beta_errors",
    "attention_rollout",
    "audit",
    "boundary_segments",
    "cell_budgets",
    "evaluate",
    "explain",
    "forward",
    "gradcam",
    "gradient_attention",
    "heterogeneity",
    "hirescam",
    "interpolate",
    "layercam",
    "mass_imbalance",
    "merge",
    "metrics",
    "mixing",
    "perturb",
    "potentials",
    "pyramid",
    "redistribute",
    "reshape_transform",
    "score",
    "segment",
    "stats",
    "upsample",
    "upsamplers",
]
