"""One entry in the ledger, from its reservation to its end."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpbayes.core.errors import LedgerError
from dpbayes.privacy.guarantee import Guarantee
from dpbayes.publication.ledger import Kind, Ledger
from dpbayes.records.overlap import Identity


@dataclass(frozen=True)
class Payment:
    """An entry step by step; without a ledger nothing is kept.

    Attributes:
        ledger: account for it there, as one of data set ``dataset``.
        note: for the ledger's history.
        kind: what is paid for.
        entry: its id; a random name without a ledger.
    """

    ledger: Ledger | None
    dataset: str
    note: str
    kind: Kind = "release"
    entry: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def reminder(self) -> str:
        """For errors after the cost has begun to count."""
        if self.ledger is None:
            return ""
        return f" The cost counts: entry {self.entry}, `dpbayes ledger resolve`."

    def reserve(self, claim: Guarantee, identity: Identity, out: Path) -> None:
        """The cost of ``claim`` counts from here on."""
        if self.ledger is not None:
            self.ledger.reserve(
                self.dataset, claim, identity, self.entry, out.absolute(), self.note, self.kind
            )

    def public(self) -> Mapping[str, Any] | None:
        """What a release says of it."""
        if self.ledger is None:
            return None
        account = self.ledger.account(self.dataset)
        return {
            "entry": self.entry,
            "budget_epsilon": account.budget.epsilon,
            "budget_delta": account.budget.delta,
            "budget_adjacency": account.adjacency,
        }

    def writing(self) -> None:
        """It is not given back from here on."""
        if self.ledger is not None:
            self.ledger.writing(self.entry)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """What fails in here may follow from a private draw: the cost counts from then on.

        Signals follow from none.
        """
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            if self.ledger is not None:
                self.ledger.writing(self.entry)
                self.ledger.lost(self.entry)
            raise

    def void(self) -> None:
        """Give it back, if possible."""
        if self.ledger is not None:
            with contextlib.suppress(LedgerError):  # then it stays reserved, and counts
                self.ledger.void(self.entry)

    def released(self, where: str) -> None:
        """What was paid for is ``where`` its readers find it."""
        if self.ledger is None:
            return
        try:
            self.ledger.released(self.entry)
        except LedgerError as error:
            raise LedgerError(
                f"{where} and counts, but its entry could not be closed: {error} Run `dpbayes "
                "ledger resolve` later."
            ) from None
