"""Errors. Each message names the argument or column, what was found, and the remedy."""

import contextlib
from collections.abc import Iterator
from typing import Self


class DpbayesError(Exception):
    """Base of all errors that a user can mend.

    Attributes:
        said: what a Stan program or a database said of it in its own words, which may hold values
            of records. Confidential, and no part of the message.
    """

    said = ""

    def saying(self, said: str, who: str = "Stan") -> Self:
        """The same, with others' own words beside a message that says where they are."""
        self.said = said.strip()
        if self.said:
            self.args = (
                f"{self} {who}'s reason may hold values of records: --show-values shows it (in "
                "Python, the error's attribute `said`).",
            )
        return self


class SchemaError(DpbayesError):
    """The schema is wrong or says too little."""


class DataError(DpbayesError):
    """The records do not fit the schema or the model."""


class ProgramError(DpbayesError):
    """A Stan program does not compile or breaks the contract of stan_models/README.md."""


class EngineError(DpbayesError):
    """An engine is missing or failed."""


class ConvergenceError(DpbayesError):
    """The chains have not converged, so the draws are not draws of the posterior."""


class GuaranteeError(DpbayesError):
    """A privacy parameter is out of range, or a guarantee was asked for that does not hold."""


class OutputError(DpbayesError):
    """The output directory cannot be used."""


class LedgerError(DpbayesError):
    """The privacy ledger cannot be used, or an entry is not in the state that was asked for."""


class BudgetError(LedgerError):
    """A release would spend more than what is left of the budget."""


class StudyError(DpbayesError):
    """A Monte Carlo study is asked for what it cannot do, or all of it failed."""


class InferenceError(DpbayesError):
    """Estimates that cannot be combined, or a model that does not fit a release."""


@contextlib.contextmanager
def refused(
    kind: type[DpbayesError], message: str, but: type[BaseException] = DpbayesError
) -> Iterator[None]:
    """Turn whatever the block raises over bad input into an error of ours.

    Readers, codecs and parsers raise what they like, panics of Rust too, which are no Exception.
    Their words are dropped, as they may repeat values; the name of the error is kept.

    Args:
        message: what is wrong and what to do, without the point at its end.
        but: errors that are left as they are, beside ours and those that end a program.
    """
    try:
        yield
    except (DpbayesError, but, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise kind(f"{message} ({type(error).__name__}).") from None
