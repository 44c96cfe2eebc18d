"""usu: turn a coarse attribution map into a pixel map by redistributing its mass, not by interpolating it."""

from usu import potentials
from usu.audit import AuditReport, audit
from usu.error_maps import alpha_beta_errors, mass_imbalance
from usu.interpolate import interpolate
from usu.redistribute import Hybrid, SoftIWMR, SoftPrior, cell_budgets, redistribute

__all__ = [
    "AuditReport",
    "Hybrid",
    "SoftIWMR",
    "SoftPrior",
    "alpha_beta_errors",
    "audit",
    "cell_budgets",
    "interpolate",
    "mass_imbalance",
    "potentials",
    "redistribute",
]
