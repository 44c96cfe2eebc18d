"""Statistics on paired numbers, one pair per picture: tests, corrections, effect sizes, intervals."""

from usu.stats.compare import compare, report
from usu.stats.comparison import Comparison, Report, Row
from usu.stats.effects import cohens_d, paired_d, win_rate
from usu.stats.families import bonferroni, holm
from usu.stats.resampling import Interval, bootstrap
from usu.stats.signed_rank import Wilcoxon, hodges_lehmann, hodges_lehmann_interval, rank_biserial, wilcoxon

__all__ = [
    "Comparison",
    "Interval",
    "Report",
    "Row",
    "Wilcoxon",
    "bonferroni",
    "bootstrap",
    "cohens_d",
    "compare",
    "hodges_lehmann",
    "hodges_lehmann_interval",
    "holm",
    "paired_d",
    "rank_biserial",
    "report",
    "wilcoxon",
    "win_rate",
]
