"""``python -m benchmarks [operator] [pipeline] [imports] [metrics]``: all of them if none is named."""

import sys

from benchmarks import imports, metrics, operator, pipeline

BENCHMARKS = {
    "operator": operator.main,
    "pipeline": pipeline.main,
    "imports": imports.main,
    "metrics": metrics.main,
}

for name in sys.argv[1:] or BENCHMARKS:
    BENCHMARKS[name]()
