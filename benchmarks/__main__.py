"""``python -m benchmarks [operator] [pipeline] [imports] [metrics] [page] [evaluation]``: all if none is named."""

import sys

from benchmarks import evaluation, imports, metrics, operator, page, pipeline

BENCHMARKS = {
    "operator": operator.main,
    "pipeline": pipeline.main,
    "imports": imports.main,
    "metrics": metrics.main,
    "page": page.main,
    "evaluation": evaluation.main,
}

for name in sys.argv[1:] or BENCHMARKS:
    BENCHMARKS[name]()
