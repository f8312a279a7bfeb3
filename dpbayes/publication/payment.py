"""Payment for a release or a choice: one ledger entry, from its reservation to its end."""

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
    """Ledger entry that is moved from state to state; without a ledger nothing is recorded.

    Attributes:
        ledger: ledger with the account, or None.
        dataset: name of the data set in the ledger.
        note: note for the ledger's history.
        kind: kind of the entry.
        entry: id of the entry; a random name without a ledger.
    """

    ledger: Ledger | None
    dataset: str
    note: str
    kind: Kind = "release"
    entry: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def reminder(self) -> str:
        """Sentence for error messages after the cost has begun to count; empty without a ledger."""
        if self.ledger is None:
            return ""
        return f" The cost counts: entry {self.entry}, `dpbayes ledger resolve`."

    def reserve(self, claim: Guarantee, identity: Identity, out: Path) -> None:
        """Reserve the cost of ``claim``, which counts from here on."""
        if self.ledger is not None:
            self.ledger.reserve(
                self.dataset, claim, identity, self.entry, out.absolute(), self.note, self.kind
            )

    def public(self) -> Mapping[str, Any] | None:
        """Public facts of the entry for guarantee.json; None without a ledger."""
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
        """Move the entry to ``writing``: the cost is not given back from here on."""
        if self.ledger is not None:
            self.ledger.writing(self.entry)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count the cost if the block fails, as the failure may depend on a private draw.

        A signal does not depend on one.
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
        """Give the cost back, if possible."""
        if self.ledger is not None:
            with contextlib.suppress(LedgerError):  # the entry stays reserved, and counts
                self.ledger.void(self.entry)

    def released(self, where: str) -> None:
        """Close the entry, as its output is in place.

        Args:
            where: where the output is, for the error message.
        Raises:
            LedgerError: the ledger could not be written; the cost counts.
        """
        if self.ledger is None:
            return
        try:
            self.ledger.released(self.entry)
        except LedgerError as error:
            raise LedgerError(
                f"{where} and counts, but its entry could not be closed: {error} Run `dpbayes "
                "ledger resolve` later."
            ) from None
