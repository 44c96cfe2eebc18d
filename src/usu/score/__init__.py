"""Segments and a model in, one raw effect per segment out; one way of scoring per file."""

from usu.score.delete import delete
from usu.score.gradient import gradient
from usu.score.groups import Scores
from usu.score.locality import needed
from usu.score.sampled import sampled

__all__ = ["Scores", "delete", "gradient", "needed", "sampled"]
