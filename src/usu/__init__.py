"""usu: turn a coarse attribution map into a pixel map by redistributing its mass, not by interpolating it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from usu import errors as errors

if TYPE_CHECKING:
    from usu import forward, metrics, models, score, segment, stats, upsamplers
    from usu.auditor import AuditReport, audit
    from usu.bench import Sample
    from usu.bench.evaluate import evaluate
    from usu.forward import fills
    from usu.metrics.mass import alpha_beta_errors, mass_imbalance
    from usu.operator import potentials
    from usu.operator.interpolate import interpolate
    from usu.operator.redistribute import Hybrid, SoftIWMR, SoftPrior, cell_budgets, redistribute
    from usu.pipeline import explain_many, upsample
    from usu.pipeline.explain import explain
    from usu.pipeline.sanity import Sanity, sanity
    from usu.refine import StopReason, boundary_segments, merge
    from usu.refine.fields import heterogeneity, mixing
    from usu.results import Explanation, Upsampled, load
    from usu.results.contrast import Contrast, contrast
    from usu.results.region import Region
    from usu.settings import PRESETS, Settings
    from usu.sources import CoarseMap, reshape_transform
    from usu.sources.cams import attention_rollout, gradcam, gradient_attention, hirescam, layercam

__all__ = [
    "PRESETS", "AuditReport", "CoarseMap", "Contrast", "Explanation", "Hybrid", "Region", "Sample", "Sanity",
    "Settings", "SoftIWMR", "SoftPrior", "StopReason", "Upsampled", "__version__", "alpha_beta_errors",
    "attention_rollout", "audit", "boundary_segments", "cell_budgets", "contrast", "evaluate", "explain",
    "explain_many", "fills", "forward", "gradcam", "gradient_attention", "heterogeneity", "hirescam", "interpolate",
    "layercam", "load", "mass_imbalance", "merge", "metrics", "mixing", "models", "potentials", "redistribute",
    "reshape_transform", "sanity", "score", "segment", "stats", "upsample", "upsamplers",
]  # fmt: skip

#: The public names by the module they come from, loaded when they are first asked for: `usu --help` needs no torch.
_FROM = {
    "usu": "forward metrics models score segment stats upsamplers",
    "usu.auditor": "AuditReport audit",
    "usu.bench": "Sample evaluate",
    "usu.forward": "fills",
    "usu.metrics.mass": "alpha_beta_errors mass_imbalance",
    "usu.operator": "potentials",
    "usu.operator.interpolate": "interpolate",
    "usu.operator.redistribute": "Hybrid SoftIWMR SoftPrior cell_budgets redistribute",
    "usu.pipeline": "explain explain_many upsample",
    "usu.pipeline.sanity": "Sanity sanity",
    "usu.refine": "StopReason boundary_segments heterogeneity merge mixing",
    "usu.results": "Explanation Upsampled load",
    "usu.results.contrast": "Contrast contrast",
    "usu.results.region": "Region",
    "usu.settings": "PRESETS Settings",
    "usu.sources": "CoarseMap attention_rollout gradcam gradient_attention hirescam layercam reshape_transform",
}
_HOME = {name: home for home, names in _FROM.items() for name in names.split()}
_MODULES = ("fills", "potentials", *_FROM["usu"].split())


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("usu-xai")
    elif name in _MODULES:
        found = import_module(f"{_HOME[name]}.{name}")
    elif name in _HOME:
        found = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'usu' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
