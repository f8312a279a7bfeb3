"""What is agreed on before a release: how much of a fit, at which cost, and who pays."""

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
    "to you (--ledger, --account)."
)
UNACCOUNTED = (
    "no ledger accounts for this release: whatever else is released about the same records adds "
    "its ε to this one, and the publisher keeps the sum"
)


@dataclass(frozen=True)
class Terms:
    """How much of a fit is released, and which account pays.

    Attributes:
        datasets, accept, delta, rows: as in ``Fit.sample``.
        ledger: account for the release in it, as one of data set ``dataset``.
        note: for the ledger's history.
        file_format: of the data sets' files.
        owed: what the release's entry pays for, of one data set; by default all of the fit's
            guarantee. It is less where a part has an entry of its own.
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
        """A new entry for the release."""
        return Payment(self.ledger, self.dataset, self.note)


def require_secret_seed(settings: SamplerSettings) -> None:
    """Raise GuaranteeError if a seed was chosen: who knows it can repeat the draws."""
    if settings.seed is not None:
        raise GuaranteeError(
            "a seed is for studies and tests, because whoever knows it can repeat the draws of the "
            "fit: leave it out of SamplerSettings, and a secret one is taken from the operating "
            "system. What a study needs of a seeded fit is fit.sample(), which publishes nothing."
        )
