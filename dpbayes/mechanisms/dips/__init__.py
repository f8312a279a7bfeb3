"""Mechanisms without a Stan program: tables, urns and conjugate models."""

from dpbayes.mechanisms.dips.base import Dips, Prepared
from dpbayes.mechanisms.dips.histograms import EmpiricalBootstrap, Laplace, PerturbedHistogram
from dpbayes.mechanisms.dips.modips import MODELS, ClampedModips, Modips
from dpbayes.mechanisms.dips.urns import (
    BetaBinomial,
    BetaBinomialMR,
    MultinomialDirichlet,
    SmoothedHistogram,
)

__all__ = [
    "MODELS", "BetaBinomial", "BetaBinomialMR", "ClampedModips", "Dips", "EmpiricalBootstrap",
    "Laplace", "Modips", "MultinomialDirichlet", "PerturbedHistogram", "Prepared",
    "SmoothedHistogram",
]  # fmt: skip
