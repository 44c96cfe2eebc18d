"""usu: turn a coarse attribution map into a pixel map by redistributing its mass, not by interpolating it."""

from usu import potentials
from usu.redistribute import Hybrid, SoftIWMR, SoftPrior, cell_budgets, redistribute

__all__ = ["Hybrid", "SoftIWMR", "SoftPrior", "cell_budgets", "potentials", "redistribute"]
