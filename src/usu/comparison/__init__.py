"""Who is better than the reference, by how much, and how sure: the report on a table of measurements."""

from usu.comparison.compare import compare, report
from usu.comparison.result import Comparison, Report, Row

__all__ = ["Comparison", "Report", "Row", "compare", "report"]
