"""Terms of a release: number of data sets, guarantee, and the account that pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpbayes.core.errors import GuaranteeError
from dpbayes.engines import SamplerSettings
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.payment import Payment
from dpbayes.records.formats.catalog import CSV

Say = Callable[[str], None]

NO_LEDGER = (
    "No ledger accounts for this release: adding up what is released about these records is left "
    "to you (`ledger`, `dataset`)."
)
OTHER_NEIGHBOURS = (
    "The budget of the account is for other neighbours (`adjacency`) than the ε of this release: "
    "what the release costs there is another number than its headline. A changed record is one "
    "removed and one added, so its ε is the larger one, often about twice that of the other."
)
UNACCOUNTED = (
    "no ledger accounts for this release: whatever else is released about the same records adds "
    "its ε to this one, and the publisher keeps the sum"
)


@dataclass(frozen=True)
class Terms:
    """Terms of a release: what is drawn from a fit, and which account pays.

    Attributes:
        datasets, accept, delta, rows: as in ``Fit.sample``.
        ledger: ledger with the account, or None.
        dataset: name of the data set in the ledger.
        note: note for the ledger's history.
        file_format: format of the data sets.
        owed: guarantee of one data set that the release's entry pays for; by default that of the
            fit. It is smaller if a private choice has an entry of its own.
    """

    datasets: int = 1
    accept: Basis = "strict"
    delta: float | None = None
    rows: int | None = None
    ledger: Ledger | None = None
    dataset: str = ""
    note: str = ""
    file_format: str = CSV
    owed: Guarantee | None = None

    def payment(self) -> Payment:
        """New ledger entry for the release."""
        return Payment(self.ledger, self.dataset, self.note)


def require_secret_seed(settings: SamplerSettings) -> None:
    """Raise GuaranteeError if a seed was set: whoever knows it can repeat the draws."""
    if settings.seed is not None:
        raise GuaranteeError(
            "a seed is for studies and tests, because whoever knows it can repeat the draws of the "
            "fit: leave it out of SamplerSettings, and a secret one is taken from the operating "
            "system. What a study needs of a seeded fit is fit.sample(), which publishes nothing."
        )
