"""Evidence: pictures x upsamplers x metrics, with the controls that tell a gain from an artefact."""

from usu.bench.contenders import CONTROLS, GUIDED, PLAIN, Guided, Made, Plain, ScoresAlone, contenders
from usu.bench.datasets import PictureFile, Sample
from usu.bench.engines import Local, Ray
from usu.bench.evaluate import DEFAULT_METRICS, evaluate
from usu.bench.store import Store
from usu.bench.table import Row, Table, read_table
from usu.bench.units import Network

__all__ = [
    "CONTROLS", "DEFAULT_METRICS", "GUIDED", "PLAIN", "Guided", "Local", "Made", "Network", "PictureFile", "Plain",
    "Ray", "Row", "Sample", "ScoresAlone", "Store", "Table", "contenders", "evaluate", "read_table",
]  # fmt: skip
