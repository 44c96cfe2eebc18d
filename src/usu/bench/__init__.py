"""Evidence: pictures x upsamplers x metrics, with the controls that tell a gain from an artefact."""

from usu.bench.contenders import CONTROLS, GUIDED, PLAIN, Guided, Made, Plain, ScoresAlone, contenders
from usu.bench.evaluate import DEFAULT_METRICS, evaluate
from usu.bench.sample import PictureFile, Sample
from usu.bench.table import Row, Table, read_table

__all__ = [
    "CONTROLS", "DEFAULT_METRICS", "GUIDED", "PLAIN", "Guided", "Made", "PictureFile", "Plain", "Row", "Sample",
    "ScoresAlone", "Table", "contenders", "evaluate", "read_table",
]  # fmt: skip
