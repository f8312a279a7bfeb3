"""Account of a data set: its privacy budget, the loss spent, and the cost of a release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpbayes.core.checks import expect
from dpbayes.core.errors import GuaranteeError, LedgerError
from dpbayes.privacy.accounting import (
    NOTHING,
    ROUNDING,
    Budget,
    Composition,
    Loss,
    check_delta,
    stated,
    stated_left,
)
from dpbayes.privacy.guarantee import ADJACENCIES, Adjacency, Guarantee, amount, inside

LARGEST = 1e300  # ε of a budget, to which the database holds, too


@dataclass(frozen=True)
class Account:
    """Data set in a ledger, with its budget and the loss spent.

    Attributes:
        id: number of the data set in the ledger.
        name: name of the data set.
        adjacency: neighbour relation of the budget.
        budget: bound on the total loss of a person, and the total so far, under that adjacency.
        entries: number of ledger entries by state.
        of_record: total loss so far of one record.
        records: largest number of records of a person in any release so far; the loss of a person
            counts so many records in all releases.
        unit: what the releases so far hold for (``Guarantee.whose``); None if none has a cost.
    """

    id: int
    name: str
    adjacency: Adjacency
    budget: Budget
    entries: Mapping[str, int]
    of_record: Loss = NOTHING
    records: int = 1
    unit: str | None = None

    @property
    def spent(self) -> tuple[float, Composition]:
        """ε of the budget that is spent, and the composition rule behind it."""
        return self.budget.share(self.budget.spent)

    @property
    def left(self) -> float:
        """Budget minus ε spent; with δ > 0 a release that costs more by itself may still fit."""
        left = self.budget.epsilon - self.spent[0]
        return left if left > ROUNDING * self.budget.epsilon else 0.0

    def statement(self) -> str:
        """Budget and ε spent and left, as a line for people."""
        spent, rule = self.spent
        how = "losses added up" if rule == "pure" else f"{rule}: by its part of the budget"
        at = f" at δ = {stated(self.budget.delta)} ({how})" if self.budget.delta else ""
        return (
            f"Ledger: data set {self.name!r} has spent ε = {stated(spent)} of "
            f"{stated_left(self.budget.epsilon)} ({self.adjacency}){at}; "
            f"{stated_left(self.left)} is left."
        )

    def for_persons(self, records: int) -> Account:
        """Account in which a person has up to ``records`` records, or more if it has counted more.

        The loss of a person is that of all their records, by group privacy
        (``Guarantee.epsilon_person``).
        """
        records = max(records, self.records)
        spent = self.of_record.scaled(records)
        return replace(self, budget=replace(self.budget, spent=spent), records=records)

    def loss_of_record(self, loss: Loss) -> Loss:
        """Loss of one record under the adjacency of this account."""
        return loss.substitution() if self.adjacency == "substitution" else loss

    def cost(self, claim: Guarantee) -> tuple[Loss, Loss]:
        """Losses of a person under this account's adjacency: paid once, and for each data set."""
        records = max(claim.cluster, self.records)
        once, per_dataset = map(self.loss_of_record, (claim.once, claim.each))
        return once.scaled(records), per_dataset.scaled(records)

    def having_paid(self, loss: Loss) -> Account:
        """Account after a further loss of one record."""
        of_record = self.of_record.plus(self.loss_of_record(loss))
        return replace(self, of_record=of_record).for_persons(self.records)

    def refusal(self, claim: Guarantee) -> str | None:
        """Reason why the budget does not admit a release, and what still fits; None if it does."""
        if self.unit not in (None, claim.whose):
            return (
                f"the releases of data set {self.name!r} so far are for a {self.unit}, and this "
                f"one is for a {claim.whose}: their ε do not add up, and one budget cannot bound "
                "both. Release these records for one of them."
            )
        if claim.cluster > self.records:  # earlier releases then cost a person more, too
            return self.for_persons(claim.cluster).refusal(claim)
        once, per_dataset = self.cost(claim)
        cost = once.plus(per_dataset, claim.draws)
        if self.budget.admits(cost):
            return None
        if cost.rest and not self.budget.delta:
            return (
                f"this release costs {amount(cost)} (zCDP, stated at δ = {stated(claim.delta)}), "
                f"which no ε at δ = 0 covers, and the budget of data set {self.name!r} is for "
                "δ = 0. Leave out `delta`. Only an account that was opened with a δ "
                "(`dpbayes ledger create`) pays for such a release."
            )
        fits = self.budget.largest_count(once, per_dataset, claim.draws) * claim.nested
        factor = self.budget.largest_factor(cost)
        options = [f"{fits} data set(s) at this ε"] if fits else []
        if factor:
            # Scale the loss, not ε: under zCDP ε at a δ is not proportional to the root of ρ.
            reduced = replace(claim, once=claim.once.scaled(factor), each=claim.each.scaled(factor))
            smaller = stated_left(reduced.epsilon_setting)
            options.append(f"`epsilon={smaller}` for {claim.datasets} data set(s)")
        added = self.budget.share(self.budget.spent.plus(cost))[0]
        person = f" for the {self.records} records of a person" if self.records > 1 else ""
        return (
            f"the budget does not admit this release, which costs ε = "
            f"{stated(added - self.spent[0])}{person}. {self.statement()} "
            + (
                "What still fits: " + ", or ".join(options) + "."
                if options
                else "Nothing fits any more."
            )
        )


def check_new(name: str, epsilon: float, delta: float, adjacency: str) -> None:
    """Raise LedgerError or GuaranteeError unless a new account can have these values."""
    # The budget covers many releases: limits on the ε of a single one do not apply.
    if not inside(epsilon, 0, LARGEST):
        raise GuaranteeError(
            f"epsilon = {epsilon!r} must be a number above 0 and below {LARGEST:g}."
        )
    check_delta(delta)
    if adjacency not in ADJACENCIES:
        raise GuaranteeError(f"adjacency = {adjacency!r} must be one of {', '.join(ADJACENCIES)}.")
    expect(name, str, "the name of a data set", "text", LedgerError)
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise LedgerError("the name of a data set must have 1 to 200 characters, all printable.")
