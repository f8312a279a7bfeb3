"""Valid inference from released data, using the release and public facts only."""

from dpbayes.inference.analysis import analyse, read_release, share_posterior
from dpbayes.inference.combining import RULES, Combined, combine
from dpbayes.inference.counts import CountsPosterior, from_clamped_draws, from_synthetic_counts
from dpbayes.inference.normal import NormalPosterior, from_normal_draws

__all__ = [
    "RULES",
    "Combined",
    "CountsPosterior",
    "NormalPosterior",
    "analyse",
    "combine",
    "from_clamped_draws",
    "from_normal_draws",
    "from_synthetic_counts",
    "read_release",
    "share_posterior",
]
