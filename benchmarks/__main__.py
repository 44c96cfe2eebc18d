"""``python -m benchmarks [operator] [pipeline] [imports]``: all of them if none is named."""

import sys

from benchmarks import imports, operator, pipeline

BENCHMARKS = {"operator": operator.main, "pipeline": pipeline.main, "imports": imports.main}

for name in sys.argv[1:] or BENCHMARKS:
    BENCHMARKS[name]()
