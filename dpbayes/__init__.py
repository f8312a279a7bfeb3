"""Bayesian data synthesis with a privacy guarantee, on Stan.

Three nouns: a ``Schema`` (what is public), a mechanism (what is drawn, at what loss), a
``Release`` (what leaves). A model is an input of the mechanisms that need one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpbayes import mechanisms
from dpbayes.core.errors import (
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
from dpbayes.engines import SamplerSettings
from dpbayes.engines.contract import check_contract
from dpbayes.mechanisms import *  # noqa: F403  # its __all__ is the list of mechanisms
from dpbayes.mechanisms.marginals.expected import ExpectedInformation, expected_information
from dpbayes.mechanisms.pegs.public import PublicRecords
from dpbayes.mechanisms.posterior.weights import ConfidentialWeights, ConstantWeights, Reference
from dpbayes.privacy.guarantee import Guarantee
from dpbayes.records.chunks import Chunks
from dpbayes.records.formats import open_records, read_records
from dpbayes.schema import Column, Household, Panel, Schema, Survey
from dpbayes.stan.families import Family, register_family
from dpbayes.stan.model import Program, Regression
from dpbayes.stan.program import StanProgram
from dpbayes.stan.sequence import Sequence
from dpbayes.synthesis.choice import choose_program
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.release import Release
from dpbayes.synthesis.saved_fit import SavedFit, load
from dpbayes.synthesis.synthesizer import Synthesizer
from dpbayes.synthesis.totals import for_total
from dpbayes.synthesis.tuning import tune

if TYPE_CHECKING:
    from dpbayes.evaluate import utility
    from dpbayes.plots import charts
    from dpbayes.publication.gate import publish
    from dpbayes.publication.job import Job
    from dpbayes.publication.ledger import Ledger
    from dpbayes.publication.resolve import resolve

# Slow to import, and not needed by every command: name -> module, or module:name.
_LAZY = {
    "Job": "publication.job:Job",
    "Ledger": "publication.ledger:Ledger",
    "charts": "plots.charts",
    "publish": "publication.gate:publish",
    "resolve": "publication.resolve:resolve",
    "utility": "evaluate.utility",
}

__all__ = [
    # in the order of the flow
    "Column", "Survey", "Household", "Panel", "Schema", "read_records", "open_records", "Chunks",
    "Regression", "Program", "Sequence", "Family", "register_family", "StanProgram",
    "check_contract", "SamplerSettings",
    "ConstantWeights", "Reference", "ConfidentialWeights", "PublicRecords",
    "Guarantee",
    "Synthesizer", "Fit", "load", "SavedFit", "Release", "tune", "choose_program", "for_total",
    "ExpectedInformation", "expected_information", "Job", "Ledger", "publish", "resolve",
    "utility", "charts",
    "DpbayesError", "SchemaError", "DataError", "ProgramError", "EngineError",
    "ConvergenceError", "GuaranteeError", "OutputError", "LedgerError", "BudgetError",
]  # fmt: skip
__all__ += mechanisms.__all__


def __getattr__(name: str) -> Any:
    if name == "__version__":  # of the installed distribution, which is read from its files
        return import_module("importlib.metadata").version("dpbayes")
    if name not in _LAZY:
        raise AttributeError(f"module 'dpbayes' has no attribute {name!r}")
    module, _, attribute = _LAZY[name].partition(":")
    found = import_module(f"dpbayes.{module}")
    return getattr(found, attribute) if attribute else found
