"""usu: turn a coarse attribution map into a pixel map by redistributing its mass, not by interpolating it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from usu import errors as errors

if TYPE_CHECKING:
    from usu import forward as forward
    from usu import metrics as metrics
    from usu import models as models
    from usu import score as score
    from usu import segment as segment
    from usu import stats as stats
    from usu import upsamplers as upsamplers
    from usu.auditor import AuditReport as AuditReport
    from usu.auditor import audit as audit
    from usu.bench import Sample as Sample
    from usu.bench.evaluate import evaluate as evaluate
    from usu.forward import fills as fills
    from usu.metrics.mass import alpha_beta_errors as alpha_beta_errors
    from usu.metrics.mass import mass_imbalance as mass_imbalance
    from usu.operator import potentials as potentials
    from usu.operator.budgets import Hybrid as Hybrid
    from usu.operator.budgets import SoftIWMR as SoftIWMR
    from usu.operator.budgets import SoftPrior as SoftPrior
    from usu.operator.interpolate import interpolate as interpolate
    from usu.operator.redistribute import cell_budgets as cell_budgets
    from usu.operator.redistribute import redistribute as redistribute
    from usu.pipeline import explain_many as explain_many
    from usu.pipeline import upsample as upsample
    from usu.pipeline.explain import explain as explain
    from usu.pipeline.sanity import Sanity as Sanity
    from usu.pipeline.sanity import sanity as sanity
    from usu.refine import StopReason as StopReason
    from usu.refine import boundary_segments as boundary_segments
    from usu.refine import merge as merge
    from usu.refine.fields import heterogeneity as heterogeneity
    from usu.refine.fields import mixing as mixing
    from usu.results import Contrast as Contrast
    from usu.results import Explanation as Explanation
    from usu.results import Region as Region
    from usu.results import Upsampled as Upsampled
    from usu.results import load as load
    from usu.results.contrast import contrast as contrast
    from usu.settings import PRESETS as PRESETS
    from usu.settings import Settings as Settings
    from usu.sources import CoarseMap as CoarseMap
    from usu.sources import attention_rollout as attention_rollout
    from usu.sources import gradcam as gradcam
    from usu.sources import gradient_attention as gradient_attention
    from usu.sources import hirescam as hirescam
    from usu.sources import layercam as layercam
    from usu.sources import reshape_transform as reshape_transform

#: The public names by the module they come from, loaded when they are first asked for: `usu --help` needs no torch.
_FROM = {
    "usu": "forward metrics models score segment stats upsamplers",
    "usu.auditor": "AuditReport audit",
    "usu.bench": "Sample evaluate",
    "usu.forward": "fills",
    "usu.metrics.mass": "alpha_beta_errors mass_imbalance",
    "usu.operator": "potentials",
    "usu.operator.budgets": "Hybrid SoftIWMR SoftPrior",
    "usu.operator.interpolate": "interpolate",
    "usu.operator.redistribute": "cell_budgets redistribute",
    "usu.pipeline": "explain explain_many upsample",
    "usu.pipeline.sanity": "Sanity sanity",
    "usu.refine": "StopReason boundary_segments heterogeneity merge mixing",
    "usu.results": "Contrast Explanation Region Upsampled contrast load",
    "usu.settings": "PRESETS Settings",
    "usu.sources": "CoarseMap attention_rollout gradcam gradient_attention hirescam layercam reshape_transform",
}
_HOME = {name: home for home, names in _FROM.items() for name in names.split()}
_MODULES = ("fills", "potentials", *_FROM["usu"].split())

__all__ = sorted(["__version__", *_HOME], key=lambda name: (not name.isupper(), not name[0].isupper(), name))


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
