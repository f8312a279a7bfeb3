"""Payment for a release or a choice: one ledger entry, from its reservation to its end."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dpbayes.core.errors import LedgerError
from dpbayes.core.interrupts import uninterrupted
from dpbayes.privacy.guarantee import Guarantee
from dpbayes.publication.account import Account
from dpbayes.publication.ledger import Kind, Ledger
from dpbayes.publication.output import Work, as_output_error
from dpbayes.records.overlap import Identity

MAYBE_RECORDED = (
    "Nothing was drawn. If the entry was recorded all the same, its cost counts until `dpbayes "
    "ledger resolve` gives it back."
)


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
        """Reserve the cost of ``claim``, which counts from here on.

        The folder ``out`` is marked first as one for which nothing has been drawn: only with the
        mark does ``resolve`` give the cost back.
        """
        if self.ledger is None:
            return
        work = Work(out, self.entry)
        with as_output_error(out, "Nothing was reserved."):
            work.mark_undrawn()
        try:
            self.ledger.reserve(
                self.dataset, claim, identity, self.entry, out.absolute(), self.note, self.kind
            )
        except BaseException as error:
            # The database may have failed after it recorded the entry. The mark stays as long as
            # it may be there: ``resolve`` gives the cost back by it.
            if self.void(out):
                raise
            try:
                recorded = bool((self.ledger.history()["id"] == self.entry).any())
            except LedgerError as unknown:
                raise LedgerError(f"{error} {MAYBE_RECORDED}") from unknown
            if not recorded:
                with contextlib.suppress(OSError):
                    work.unmark()
            raise

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

    def unmark(self, out: Path) -> None:
        """Remove the mark of ``reserve``, before noise is drawn.

        A backup of the ledger, in which the entry is reserved, may be restored later.
        """
        if self.ledger is not None:
            with as_output_error(out, "Nothing was drawn."):
                Work(out, self.entry).unmark()

    def void(self, out: Path) -> bool:
        """Give the cost back and remove the mark, as nothing was drawn; False if it still counts.

        The ledger may have recorded the step to ``writing`` although its answer was lost.
        """
        if self.ledger is None:
            return True
        try:
            self.ledger.void(self.entry, writing=True)
        except LedgerError:
            return False
        with contextlib.suppress(OSError):  # a mark of a void entry says nothing
            Work(out, self.entry).unmark()
        return True

    def lost(self) -> None:
        """Close the entry without an output, if possible; its cost counts."""
        if self.ledger is not None:
            with contextlib.suppress(LedgerError):  # the entry stays in writing, and counts
                self.ledger.lost(self.entry)

    def released(self, where: str) -> Account | None:
        """Close the entry, as its output is in place.

        Args:
            where: where the output is, for the error message.

        Returns:
            Account with the entry; None without a ledger.
        Raises:
            LedgerError: the ledger could not be written; the cost counts.
        """
        if self.ledger is None:
            return None
        try:
            return self.ledger.released(self.entry)
        except LedgerError as error:
            raise LedgerError(
                f"{where} and counts, but its entry could not be closed; run `dpbayes ledger "
                f"resolve` later: {error}"
            ) from None


@dataclass
class Bill:
    """What a release owes: reserved when it is known, and spent before the first noise is drawn.

    Attributes:
        payment: the ledger entry.
        owed: guarantee of all data sets.
        identity: computes the identity of the records.
        out: folder of the release.
        state: how far the payment is; ``written`` once files of the release may exist.
        account: account after the release; None before, and without a ledger.
    """

    payment: Payment
    owed: Guarantee
    identity: Callable[[], Identity]
    out: Path
    state: Literal["open", "reserved", "spent", "written"] = "open"
    account: Account | None = None

    @property
    def reminder(self) -> str:
        """Sentence for error messages once the cost counts; empty before, or without a ledger."""
        return self.payment.reminder if self.state in ("spent", "written") else ""

    def reserve(self) -> None:
        """Reserve the cost, unless that was done.

        Raises:
            BudgetError, LedgerError: nothing was recorded.
        """
        if self.state == "open":
            identity = self.identity()
            with uninterrupted():
                self.payment.reserve(self.owed, identity, self.out)
                self.state = "reserved"

    def spend(self) -> None:
        """Reserve the cost and spend it, unless that was done. Call it before any private draw.

        Whatever is drawn afterwards, and however the run ends because of it, the cost counts: time,
        memory and errors may all depend on what was drawn.
        """
        self.reserve()
        if self.state == "reserved":
            with uninterrupted():
                self.payment.writing()
                self.payment.unmark(self.out)
                self.state = "spent"

    @contextlib.contextmanager
    def settled(self, say: Callable[[str], None]) -> Iterator[None]:
        """Settle the bill if the block fails: give the cost back, or say that it counts.

        Once files may exist, the entry is left as it is: ``resolve`` decides.
        """
        try:
            yield
        except BaseException:
            with uninterrupted(look=False):
                if self.state != "written":
                    Work(self.out, self.payment.entry).discard()
                if self.state == "reserved":
                    if not self.payment.void(self.out):
                        say(f"Nothing was drawn.{self.payment.reminder}")
                elif self.state == "spent":
                    self.payment.lost()
                    if self.payment.ledger is not None:
                        say(
                            "The run ended after private noise had been drawn for it: its cost "
                            f"counts (ledger entry {self.payment.entry})."
                        )
            raise
