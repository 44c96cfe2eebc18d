"""The only room that knows every stage: coarse map + picture + model -> segments -> scores -> one redistribution."""

from usu.pipeline.explain import explain
from usu.pipeline.halves import Scored, finer_of, map_of, mass_error_of, scores_of
from usu.pipeline.run import upsample

__all__ = ["Scored", "explain", "finer_of", "map_of", "mass_error_of", "scores_of", "upsample"]
