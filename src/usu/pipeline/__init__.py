"""The only room that knows every stage: coarse map + picture + model -> segments -> scores -> one redistribution."""

from usu.pipeline.explain import explain, explain_many
from usu.pipeline.halves import Scored, finer_of, map_of, mass_error_of, scores_of
from usu.pipeline.run import upsample
from usu.pipeline.sanity import Sanity, sanity

__all__ = [
    "Sanity", "Scored", "explain", "explain_many", "finer_of", "map_of", "mass_error_of", "sanity", "scores_of",
    "upsample",
]  # fmt: skip
