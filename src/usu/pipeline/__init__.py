"""The only room that knows every stage: coarse map + picture + model -> segments -> scores -> one redistribution.

`usu.pipeline.sanity` is loaded by whoever asks for it: it needs metrics and segmenters that nothing else here does.
"""

from usu.pipeline.explain import explain, explain_many
from usu.pipeline.halves import Scored, finer_of, map_of, scores_of
from usu.pipeline.run import mass_error_of, upsample

__all__ = ["Scored", "explain", "explain_many", "finer_of", "map_of", "mass_error_of", "scores_of", "upsample"]
