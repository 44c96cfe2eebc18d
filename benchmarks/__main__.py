"""``python -m benchmarks``: every benchmark, one after the other."""

from benchmarks import operator

operator.main()
