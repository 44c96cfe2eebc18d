"""Statistics on paired numbers, one pair per picture: tests, corrections, effect sizes, intervals, reports."""

from usu.stats.compare import Comparison, Difference, Report, compare, report
from usu.stats.effects import bonferroni, cohens_d, holm, paired_d, win_rate
from usu.stats.resampling import Interval
from usu.stats.signed_rank import Wilcoxon, hodges_lehmann, hodges_lehmann_interval, rank_biserial, wilcoxon

__all__ = [
    "Comparison", "Difference", "Interval", "Report", "Wilcoxon", "bonferroni", "cohens_d", "compare", "hodges_lehmann",
    "hodges_lehmann_interval", "holm", "paired_d", "rank_biserial", "report", "wilcoxon", "win_rate",
]  # fmt: skip
