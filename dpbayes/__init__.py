"""Bayesian data synthesis with a privacy guarantee, on Stan.

schema -> program -> engine -> risk weights -> mechanism (refit) -> guarantee -> ledger -> release
                                                   `-> utility, charts (confidential side)
"""

from importlib import import_module
from typing import Any

from dpbayes.choice import choose_program
from dpbayes.dips import DipsFit, DipsSynthesizer
from dpbayes.engines import SamplerSettings
from dpbayes.engines.contract import check_contract
from dpbayes.errors import (
    BudgetError,
    ConvergenceError,
    DataError,
    DpbayesError,
    EngineError,
    GuaranteeError,
    LedgerError,
    OutputError,
    ProgramError,
    SchemaError,
)
from dpbayes.fit import Fit
from dpbayes.mechanisms import (
    Anchored,
    BetaBinomial,
    BetaBinomialMR,
    BetaDivergence,
    Censored,
    CensoredWeighted,
    ClampedModips,
    EmpiricalBootstrap,
    Laplace,
    Modips,
    MultinomialDirichlet,
    PerturbedHistogram,
    SmoothedHistogram,
    Unweighted,
    Weighted,
    WeightedE,
)
from dpbayes.mechanisms.posterior.weights import ConfidentialWeights, ConstantWeights, Reference
from dpbayes.privacy.guarantee import Guarantee
from dpbayes.release import Release
from dpbayes.schema import Column, Schema, read_records
from dpbayes.stan.program import StanProgram
from dpbayes.synthesizer import Synthesizer
from dpbayes.tuning import tune

__version__ = "0.1.0"

__all__ = [
    # in the order of the flow
    "Column", "Schema", "read_records",
    "StanProgram", "check_contract",
    "SamplerSettings",
    "ConstantWeights", "Reference", "ConfidentialWeights",
    "Unweighted", "Weighted", "WeightedE", "Censored", "CensoredWeighted", "Anchored",
    "BetaDivergence", "ClampedModips",
    "Laplace", "PerturbedHistogram", "EmpiricalBootstrap", "MultinomialDirichlet",
    "SmoothedHistogram", "BetaBinomial", "BetaBinomialMR", "Modips",
    "Guarantee",
    "Synthesizer", "Fit", "DipsSynthesizer", "DipsFit", "Release", "tune",
    "choose_program",
    "Ledger", "publish", "resolve",
    "utility", "charts",
    "DpbayesError", "SchemaError", "DataError", "ProgramError", "EngineError",
    "ConvergenceError", "GuaranteeError", "OutputError", "LedgerError", "BudgetError",
]  # fmt: skip


# Slow to import, and not needed by every command.
_LAZY_MODULES = {"utility": "evaluate.utility", "charts": "report.charts"}
_LAZY = {
    "Ledger": "publication.ledger",
    "resolve": "publication.gate",
    "publish": "publication.gate",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:  # matplotlib is slow to import
        return import_module(f"dpbayes.{_LAZY_MODULES[name]}")
    if name in _LAZY:
        return getattr(import_module(f"dpbayes.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'dpbayes' has no attribute {name!r}")
