"""``python -m benchmarks [NAME ...]``: those of these names, or all."""

import sys

from benchmarks import batches, command, evaluation, imports, metrics, operator, page, pipeline, shared

BENCHMARKS = {
    "operator": operator.main,
    "pipeline": pipeline.main,
    "batches": batches.main,
    "imports": imports.main,
    "command": command.main,
    "metrics": metrics.main,
    "shared": shared.main,
    "page": page.main,
    "evaluation": evaluation.main,
}

for name in sys.argv[1:] or BENCHMARKS:
    BENCHMARKS[name]()
