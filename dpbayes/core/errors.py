"""Errors. Each message names the argument or column, the value at fault, and the remedy."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from typing import Self


class DpbayesError(Exception):
    """Base of all errors that a user can mend.

    Attributes:
        said: original message of Stan or a database, which may repeat values of records.
            Confidential, and no part of the error's own message.
    """

    said = ""

    def saying(self, said: str, who: str = "Stan") -> Self:
        """Attach the original message of Stan or a database, and mention it in the error's own.

        Args:
            said: the original message; empty text changes nothing.
            who: its author.
        """
        self.said = said.strip()
        if self.said:
            self.args = (
                f"{self} {who}'s reason may hold values of records: `show_values=True` shows it "
                "(in Python, the error's attribute said).",
            )
        return self


class SchemaError(DpbayesError):
    """The schema is wrong or incomplete."""


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
    """A Monte Carlo study has impossible settings, or all its runs failed."""


class InferenceError(DpbayesError):
    """Estimates cannot be combined, or a model does not fit a release."""


@contextlib.contextmanager
def refused(
    kind: type[DpbayesError], message: str, but: type[BaseException] = DpbayesError
) -> Iterator[None]:
    """Replace any error that bad input raises in the block by one of dpbayes.

    Readers, codecs and parsers raise errors of any type, even panics of Rust, which are no
    Exception. Their messages are dropped, as they may repeat values; the error's type is named.

    Args:
        kind: type of the error that is raised.
        message: what is wrong and what to do, without the final full stop.
        but: errors that pass unchanged, besides those of dpbayes and those that end a program.
    """
    try:
        yield
    except (DpbayesError, but, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise kind(f"{message} ({type(error).__name__}).") from None


def listed(words: Iterable[object], most: int) -> str:
    """List up to ``most`` words with commas, and the number of the others."""
    words = list(words)
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(map(str, words[:most])) + more


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return " (did you mean 'marginals'?)" if a known name is close to this one, or ""."""
    close = difflib.get_close_matches(str(name), [str(each) for each in known], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
