"""A data set's account: its budget, what was spent, and what a release would cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpbayes.core.errors import GuaranteeError, LedgerError
from dpbayes.privacy.accounting import (
    NOTHING,
    Budget,
    Composition,
    Loss,
    check_delta,
    compose,
    stated,
    stated_left,
)
from dpbayes.privacy.guarantee import ADJACENCIES, Adjacency, Guarantee, amount


@dataclass(frozen=True)
class Account:
    """A data set with its budget and what was spent.

    Attributes:
        name: of the data set.
        adjacency: the neighbour relation that the budget is for.
        budget: bound and total so far of a person, by that adjacency.
        entries: number of entries by state.
        of_record: total so far of one record.
        records: how many of a person there are at most, by any release so far. What a person lost
            by earlier ones is of as many.
    """

    id: int
    name: str
    adjacency: Adjacency
    budget: Budget
    entries: Mapping[str, int]
    of_record: Loss = NOTHING
    records: int = 1

    @property
    def spent(self) -> tuple[float, Composition]:
        """Epsilon spent, and the rule that gave it."""
        return compose([(self.budget.spent, 1)], self.budget.delta)

    @property
    def left(self) -> float:
        """Budget less what was spent; with δ > 0 later releases may fit that cost more alone."""
        return max(0.0, self.budget.epsilon - self.spent[0])

    def statement(self) -> str:
        """One line for people."""
        spent, rule = self.spent
        at = f" at δ = {stated(self.budget.delta)} ({rule})" if self.budget.delta else ""
        return (
            f"Ledger: data set {self.name!r} has spent ε = {stated(spent)} of "
            f"{stated_left(self.budget.epsilon)} ({self.adjacency}){at}; "
            f"{stated_left(self.left)} is left."
        )

    def for_persons(self, records: int) -> Account:
        """The account where a person has up to so many records, or more if it knows of more.

        A person loses what these lose together, by group privacy (``Guarantee.epsilon_person``).
        """
        records = max(records, self.records)
        spent = self.of_record.scaled(records)
        return replace(self, budget=replace(self.budget, spent=spent), records=records)

    def loss_of_record(self, loss: Loss) -> Loss:
        """A loss under this account's adjacency."""
        return loss.substitution() if self.adjacency == "substitution" else loss

    def cost(self, claim: Guarantee) -> tuple[Loss, Loss]:
        """Losses of one person under this account's adjacency: once, and for each data set."""
        records = max(claim.cluster, self.records)
        once, each = map(self.loss_of_record, (claim.once, claim.each))
        return once.scaled(records), each.scaled(records)

    def having_paid(self, loss: Loss) -> Account:
        """The account after a loss of one record."""
        of_record = self.of_record.plus(self.loss_of_record(loss))
        return replace(self, of_record=of_record).for_persons(self.records)

    def refusal(self, claim: Guarantee) -> str | None:
        """Why the budget does not admit a release, with what still fits; None if it does."""
        if claim.cluster > self.records:  # earlier releases cost a person more, too
            return self.for_persons(claim.cluster).refusal(claim)
        once, each = self.cost(claim)
        cost = once.plus(each, claim.draws)
        if self.budget.admits(cost):
            return None
        if cost.rest and not self.budget.delta:
            return (
                f"this release costs {amount(cost)} (zCDP, stated at δ = {stated(claim.delta)}), "
                f"which no ε at δ = 0 covers, and the budget of data set {self.name!r} is for "
                "δ = 0. Leave out --delta. Only an account that was opened with a δ (`dpbayes "
                "ledger create --delta`) pays for such a release."
            )
        fits = self.budget.largest_count(once, each, claim.draws) * claim.nested
        factor = self.budget.largest_factor(cost)
        more = [f"{fits} data set(s) at this ε"] if fits else []
        if factor:
            # Not a multiple of epsilon: at a δ it is no multiple of the root of ρ.
            less = replace(claim, once=claim.once.scaled(factor), each=claim.each.scaled(factor))
            smaller = stated_left(less.epsilon_setting)
            more.append(f"--epsilon {smaller} for {claim.datasets} data set(s)")
        person = f" for the {self.records} records of a person" if self.records > 1 else ""
        return (
            f"the budget does not admit this release, which costs ε = "
            f"{stated(compose([(cost, 1)], self.budget.delta)[0])}{person}. {self.statement()} "
            + ("What still fits: " + ", or ".join(more) + "." if more else "Nothing fits any more.")
        )


def check_new(name: str, epsilon: float, delta: float, adjacency: str) -> None:
    """Raise LedgerError or GuaranteeError for a data set that no ledger can have."""
    # Of many releases together: the bounds on a single one are not for it.
    if not 0 < epsilon < math.inf:
        raise GuaranteeError(f"epsilon = {epsilon!r} must be a finite number above 0.")
    check_delta(delta)
    if adjacency not in ADJACENCIES:
        raise GuaranteeError(f"adjacency = {adjacency!r} must be one of {', '.join(ADJACENCIES)}.")
    if not name.strip() or len(name) > 200:
        raise LedgerError("the name of a data set must have 1 to 200 characters.")
