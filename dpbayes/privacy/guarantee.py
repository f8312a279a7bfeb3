"""Privacy guarantee of a release: epsilon, its basis and assumptions, as numbers and in words."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from dpbayes.core.checks import is_number
from dpbayes.core.errors import GuaranteeError
from dpbayes.privacy.accounting import NOTHING, Composition, Loss, check_delta, compose, stated

Basis = Literal["strict", "asymptotic", "none"]
Adjacency = Literal["add-remove", "substitution"]
BASES = ("strict", "asymptotic", "none")  # from the strongest
ADJACENCIES = ("add-remove", "substitution")
MOST_NAME = 60  # characters of an identifier in the text of a claim
MOST_DATASETS = 100_000  # largest number of data sets in one release
EPSILONS = (1e-3, 50.0)  # smallest and largest epsilon of one data set

EXACT_DRAW = (
    "each synthetic data set uses one exact draw of the posterior; MCMC draws are approximate, and "
    "their unknown distance from the posterior is not part of epsilon"
)
CANDIDATE_DRAW = (
    "each synthetic data set uses one of a set of public points, chosen by OpenDP with probability "
    "proportional to the posterior there: no chain has to converge, and there is no seed"
)
PUBLIC_INPUTS = (
    "column bounds and levels, covariates, group labels, priors and the mechanism's settings are "
    "public or were fixed without looking at the confidential records"
)
SURVEY = (
    "the population, the largest sampling weight and the design effect were fixed without looking "
    "at the confidential records, whose weights are cut to the largest"
)
PROPER_PRIOR = "the prior is proper and does not depend on confidential columns"
REFERENCE = (
    "the reference records behind weights or anchor are public (no ε covers what is used of them) "
    "and are chosen without looking at the confidential records"
)
SECRET_NOISE = (
    "OpenDP draws the noise exactly and from the operating system's secret random numbers; how "
    "long it takes is not observed"
)
SECRET_DRAWS = (
    "draws are exact in whole numbers, from the operating system's secret random numbers; how long "
    "they take is not observed"
)
SECRET_CHAINS = "the seeds of the chains stay secret; Stan's generator is not cryptographic"
NEAR_INDEPENDENT = (
    "all draws from one fit, of this release and of others, come from one set of chains, and count "
    "as independent of each other: a release has no more of them than the chains' effective sample "
    "size"
)
POSTERIOR = (PUBLIC_INPUTS, PROPER_PRIOR)  # assumptions behind every draw from a posterior
# How a data set's parameters are drawn; DRAWS has the assumptions that follow. Outputs other than
# posterior draws state the source of their random numbers among their own assumptions.
Draw = Literal["chain", "candidates"]
RowsKind = Literal["public", "declared", "noisy"]
ROWS: dict[RowsKind, str] = {
    "public": "the number of records may be told: it is public",
    "declared": "the number of rows was declared without looking at the confidential records",
    "noisy": "the number of rows is that of the records with noise, which a part of ε paid for",
}
MEMBERS = {"household": "member", "person": "wave"}  # what the rows of such a record are
UNCHECKED_CHAINS = "the chains had converged: it was asked that no check should say otherwise"
DRAWS: dict[Draw | None, tuple[str, ...]] = {
    "chain": (EXACT_DRAW, NEAR_INDEPENDENT, SECRET_CHAINS),
    "candidates": (CANDIDATE_DRAW, SECRET_NOISE),
    None: (),
}


def inside(value: object, low: float, high: float) -> bool:
    """True for a number strictly between ``low`` and ``high``; False for anything else.

    A boolean is not a number here.
    """
    return is_number(value) and low < value < high


def check_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` as a float; raise GuaranteeError unless it lies in ``EPSILONS``."""
    low, high = EPSILONS
    if not is_number(epsilon) or not low <= epsilon <= high:
        raise GuaranteeError(
            f"epsilon = {_typed(epsilon)} must be a number from {low:g} to {high:g}. With less, "
            "noise would hide any data set that fits in memory; with more, one record could change "
            "a probability by a factor above 10^21, which protects nobody."
        )
    return float(epsilon)


def _typed(value: object) -> str:
    """Format a value as the user typed it: without the rounding digits of a computed number."""
    text = repr(value)
    return f"{value:.12g}" if isinstance(value, float) and len(text) > 14 else text


@dataclass(frozen=True)
class Guarantee:
    """Privacy guarantee of a release: the loss, its basis and the assumptions behind it.

    Source: hu-williams-savitsky, definition 1; liu-2016, definition 1; bowen-liu-2020,
    definition 2.1; eq. 2.1; charest-2011, eq. 1; park-ghosh-2014, section 2.2.

    Attributes:
        mechanism: name of the mechanism.
        each: loss of one data set when one record is added or removed; infinite without a claim.
        basis: ``strict``, a theorem for every data set under the assumptions; ``asymptotic``, as
            n grows, with no finite-sample bound; ``none``.
        more: further assumptions, which the code cannot check (``assumptions`` has them all).
        draw: how parameters are drawn from a posterior, or None where there is none.
        once: loss paid once, whatever the number of data sets, for ``once_for``.
        adjacency: the neighbour relation that the user's epsilon is meant for; by default that
            which the release protects (``holds_for``).
        weights: where the record weights come from: ``constant``, ``reference``, ``confidential``.
        datasets: number of synthetic data sets that epsilon pays for.
        nested: data sets made from each private draw; only the first of them costs.
        delta: δ at which ε is stated: 0 for pure ε-DP; otherwise losses compose by the smaller of
            pure and zCDP. A mechanism's own claim has the δ that its epsilon is meant for.
        rows: how the number of records becomes public (``schema.Rows``).
        parts: sentences on the components of a data set's loss, or on what has no claim.
        cluster: declared largest number of records of one person.
        unit: what a record is, in words: a ``household`` or ``person`` of up to ``members`` rows,
            or a record.
        members: declared largest number of rows of one such record.
        by: identifier whose rows are one such record.
        guessed: schema entries that were read off records and that nobody has confirmed.

    Examples:
        >>> import dpbayes as dpb
        >>> claim = dpb.Anchored(epsilon=5).guarantee()
        >>> claim.basis, claim.epsilon, claim.epsilon_substitution
        ('strict', 2.5, 5.0)
        >>> claim.for_datasets(3).lines()[0]
        'ε = 13.5 when one record is changed (δ = 0).'
    """

    mechanism: str
    each: Loss
    basis: Basis
    more: tuple[str, ...]
    draw: Draw | None = None
    once: Loss = NOTHING
    adjacency: Adjacency = "substitution"
    weights: str = "constant"
    once_for: str = "drawing anchors"
    datasets: int = 1
    nested: int = 1
    delta: float = 0.0
    rows: RowsKind = "public"
    parts: str = ""
    cluster: int = 1
    unit: str = "record"
    members: int = 1
    by: str = ""
    guessed: str = ""

    @property
    def holds_for(self) -> Adjacency:
        """Neighbour relation under which the published output is protected.

        If the number of records is public, data sets of different size can be told apart. Then
        neighbours have the same number of records and differ in one record's confidential values.
        """
        return "substitution" if self.rows == "public" else "add-remove"

    @property
    def whose(self) -> str:
        """What ε is for, in words: losses of records of different identifiers do not add up."""
        if self.unit == "record":
            return self.unit
        by = self.by
        if len(by) > MOST_NAME:  # the hash tells apart what is cut off
            by = f"{by:.{MOST_NAME}}…{hashlib.sha256(by.encode()).hexdigest()[:12]}"
        return f"{self.unit} by {by}"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the claim that the code cannot check, each once."""
        rows = ROWS[self.rows]
        if self.unit != "record":
            rows = rows.replace("the number of rows", f"the number of {self.unit}s")
            rows = rows.replace("records", f"{self.unit}s")
        sentences = (*DRAWS[self.draw], *self.more, rows)
        # An anchor and a choice among points state the same assumption about noise.
        return tuple(dict.fromkeys(sentences))

    @property
    def draws(self) -> int:
        """Number of private draws that are paid for."""
        return -(-self.datasets // self.nested)  # rounded up

    @property
    def epsilon(self) -> float:
        """Total ε when one record is added or removed."""
        return self._total()[0]

    @property
    def epsilon_substitution(self) -> float:
        """Total ε when one record's confidential values change; n and public columns stay fixed."""
        return self._substitution()[0]

    @property
    def epsilon_person(self) -> float:
        """Total ε when all records of one person change under the relation ``holds_for``.

        Group privacy gives it: k records cost k times epsilon, and k**2 times rho (Bun & Steinke,
        2016, proposition 27).
        """
        return self._of_person(self.holds_for)

    @property
    def epsilon_member(self) -> float:
        """Total ε when one row of a unit of several rows is gained, lost or changed.

        That changes its unit, or adds or removes it, where it is the only row and n is not public.
        """
        if self.holds_for == "substitution":
            return self.epsilon_substitution
        return max(self.epsilon, self.epsilon_substitution)

    @property
    def asked(self) -> float:
        """Total ε of a person for the relation ``adjacency``, for which the user set epsilon."""
        return self._of_person(self.adjacency)

    def _of_person(self, neighbours: Adjacency) -> float:
        losses = [(self.once, 1), (self.each, self.draws)]
        if neighbours == "substitution":  # first, as group privacy scales this relation's loss
            losses = [(loss.substitution(), count) for loss, count in losses]
        return compose([(loss.scaled(self.cluster), m) for loss, m in losses], self.delta)[0]

    @property
    def epsilon_setting(self) -> float:
        """The epsilon that the mechanism is set to: of one data set, as ``asked``."""
        return replace(self, datasets=1).asked

    @property
    def composition(self) -> Composition:
        """Composition rule that gives the epsilon under ``adjacency``."""
        chosen = self._total() if self.adjacency == "add-remove" else self._substitution()
        return chosen[1]

    @property
    def loss(self) -> Loss:
        """Loss of all data sets together."""
        return self.once.plus(self.each, self.draws)

    def _total(self) -> tuple[float, Composition]:
        return compose([(self.loss, 1)], self.delta)

    def _substitution(self) -> tuple[float, Composition]:
        return compose([(self.loss.substitution(), 1)], self.delta)

    def for_datasets(self, m: int, delta: float | None = None) -> Guarantee:
        """Return the guarantee of m data sets.

        Args:
            m: number of data sets, from 1 to ``MOST_DATASETS``.
            delta: δ at which ε is stated; by default that of this guarantee.
        Raises:
            GuaranteeError: m or delta is out of range, or there is no ε at this delta.
        """
        if isinstance(m, bool) or not isinstance(m, int) or m < 1:
            raise GuaranteeError(f"datasets = {m!r} must be a whole number, at least 1.")
        if m > MOST_DATASETS:
            raise GuaranteeError(f"datasets = {m:,} must be at most {MOST_DATASETS:,}.")
        at = self.delta if delta is None else check_delta(delta)
        if not at and self.loss.rest:
            raise GuaranteeError(
                f"delta = {delta!r}: mechanism {self.mechanism!r} has no ε at δ = 0, as its noise "
                f"is Gaussian. Leave delta out, for its own {stated(self.delta)}; or leave it out "
                "of the mechanism's settings, for pure ε."
            )
        return replace(self, datasets=m, delta=at)

    def require(self, accept: Basis) -> None:
        """Raise GuaranteeError if the basis is weaker than what is accepted."""
        if accept not in BASES:
            raise GuaranteeError(f"accept = {accept!r} must be one of {', '.join(BASES)}.")
        if self.guessed and accept != "none":
            raise GuaranteeError(
                f"the schema has guesses left: {self.guessed}. What is read off the records is a "
                "disclosure that nothing has paid for: confirm or replace each from public "
                "knowledge and take it out of the column's list `guessed`, or say that no "
                'guarantee will do: `accept="none"`.'
            )
        if BASES.index(self.basis) > BASES.index(accept):
            reason = (
                "gives no differential privacy"
                if self.basis == "none"
                else "is private only asymptotically, with no ε for a finite number of records"
            )
            raise GuaranteeError(
                f"mechanism {self.mechanism!r} (weights: {self.weights}) {reason}. Choose a strict "
                "mechanism (censored, anchored), or say that the weaker claim will do: "
                f'`accept="{self.basis}"`.'
            )

    def with_guesses(self, guessed: str) -> Guarantee:
        """Withdraw the claim if schema entries were read off records; unchanged if none were."""
        if not guessed:
            return self
        return replace(self, guessed=guessed, basis="none", each=Loss.pure(math.inf))

    def assuming(self, *assumptions: str) -> Guarantee:
        """Return the guarantee with further assumptions."""
        return replace(self, more=(*self.more, *assumptions))

    @property
    def holding(self) -> float:
        """Total ε under the neighbour relation ``holds_for``."""
        return self.epsilon if self.holds_for == "add-remove" else self.epsilon_substitution

    def drawn_by(self, draw: Draw) -> Guarantee:
        """Return the guarantee for another way of drawing parameters; unchanged without draws."""
        return self if self.draw is None else replace(self, draw=draw)

    def having_paid(self, loss: Loss, purpose: str) -> Guarantee:
        """Return the guarantee with a further loss that is paid once, for ``purpose``."""
        purposes = f"{self.once_for} and {purpose}" if self.once.epsilon else purpose
        return replace(self, once=self.once.plus(loss), once_for=purposes)

    def to_dict(self) -> dict[str, Any]:
        """Return all entries for JSON; an infinite epsilon, which JSON lacks, becomes None."""
        return {
            "mechanism": self.mechanism,
            "basis": self.basis,
            "asked": _or_none(self.asked),
            "epsilon": _or_none(self.epsilon),
            "epsilon_substitution": _or_none(self.epsilon_substitution),
            "delta": self.delta,
            "adjacency": self.adjacency,
            "holds_for": self.holds_for,
            "rows": self.rows,
            "composition": self.composition,
            **self._of_persons(),
            "datasets": self.datasets,
            "draws": self.draws,
            "epsilon_each": _or_none(self.each.epsilon),
            "epsilon_once": _or_none(self.once.epsilon),
            "rho": _or_none(self.loss.rho),
            "rho_substitution": _or_none(self.loss.substitution().rho),
            "weights": self.weights,
            "assumptions": list(self.assumptions),
            "statement": self.paragraph(),
        }

    def _of_persons(self) -> dict[str, Any]:
        if self.members > 1:
            return {
                "unit": self.unit,
                "members_per_unit": self.members,
                "epsilon_member": _or_none(self.epsilon_member),
            }
        if self.cluster == 1:
            return {}
        return {
            "records_per_person": self.cluster,
            "epsilon_person": _or_none(self.epsilon_person),
        }

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def __str__(self) -> str:
        """Return the claim in one line."""
        return f"{self.mechanism}: {self._claim()}"

    def _claim(self) -> str:
        if self.basis == "none":
            return "no differential privacy"
        sets = f", {self.datasets} data sets" if self.datasets > 1 else ""
        if not math.isfinite(self.holding):
            return f"asymptotic only, no ε promised for a finite number of records{sets}"
        numbers = f"{self._both()}{self._at_delta()}{sets}"
        if self.basis == "asymptotic":
            return f"target {numbers}; asymptotic, not ε-DP"
        how = {"candidates": "among public points", "chain": "for an exact draw", None: ""}
        kind = "(ε, δ)" if self.delta else "ε"
        return f"{numbers}; strict {kind}-DP {how[self.draw]}".rstrip()

    def _both(self) -> str:
        """State ε for both neighbour relations, that of ``holds_for`` first."""
        epsilon, changed = stated(self.epsilon), stated(self.epsilon_substitution)
        if self.holds_for == "add-remove":
            record = f"{epsilon} (add/remove), {changed} (substitution)"
        else:
            record = f"{changed} (substitution), {epsilon} (add/remove, a bound on the draw at a "
            record += "fixed n)"
        if self.cluster == 1:
            return f"ε = {record}"
        person = stated(self.epsilon_person)
        return f"ε = {person} (all records of a person, up to {self.cluster}); one record: {record}"

    def _at_delta(self) -> str:
        return f" at δ = {stated(self.delta)}" if self.delta else ""

    def lines(self) -> tuple[str, str, str]:
        """Summarise the guarantee in three lines for the screen, ε first; see ``paragraph``."""
        if self.basis == "none":
            first = "No differential privacy."
        elif not math.isfinite(self.holding):
            first = "No ε for a finite number of records."
        else:
            first = f"ε = {stated(self.epsilon_person)} when {self._change()}"
            first += f" (δ = {stated(self.delta)})"
            first += "." if self.basis == "strict" else ", as a target that holds asymptotically."
        addition = ""
        if self.basis == "strict" and self.holds_for == "substitution":
            addition = (
                f"; at a fixed number of {self.unit}s one more or less is "
                f"ε = {stated(self.epsilon)}"
            )
        if self.basis == "strict" and self.members > 1:
            member = MEMBERS[self.unit]
            member = (
                f"one {member}" if self.holds_for == "add-remove" else f"one of several {member}s"
            )
            addition += f"; for {member} it is ε = {stated(self.epsilon_member)} at most"
        if self.basis == "strict" and self.cluster > 1:
            addition = f"; for one record it is ε = {stated(self.holding)}{addition}"
        sets = "1 data set" if self.datasets == 1 else f"{self.datasets} data sets"
        how = {"candidates": ", among public points", "chain": ", for an exact draw", None: ""}
        second = f"{self.basis.capitalize()}{how[self.draw]}: {sets} by {self.mechanism}{addition}."
        third = f"It rests on {len(self.assumptions)} assumptions, listed in guarantee.json."
        return first, second, third

    def _change(self) -> str:
        """State how neighbours differ, as a clause."""
        change = "added or removed" if self.holds_for == "add-remove" else "changed"
        if self.cluster == 1:
            return f"one {self.unit}{self._of_members()} is {change}"
        return f"all records of one person, at most {self.cluster}, are {change}"

    def paragraph(self) -> str:
        """State the guarantee in full, for readers of the release."""
        if self.guessed:
            return (
                f"The synthesizer {self.mechanism!r} gives no differential privacy guarantee here: "
                "its schema was read off records that may be the confidential ones, and not "
                f"confirmed from public knowledge ({self.guessed})."
            )
        if self.basis == "none":
            return (
                f"The synthesizer {self.mechanism!r} gives no differential privacy guarantee: the "
                "parameters were drawn without a bound on what one record can do."
                + (f" {self.parts}" if self.parts else "")
            )
        sets = "data set" if self.datasets == 1 else "data sets"
        opening = f"{self.datasets} synthetic {sets} by the mechanism {self.mechanism!r}. "
        if self.basis == "strict":
            claim = self._strict_claim()
            if self.once.epsilon and not self.each.rho:
                claim += f"It is paid once, for {self.once_for}, however many data sets there are. "
            elif self.once.epsilon:
                paid_once, per_draw = map(amount, (self.once, self.each))
                claim += f"Of it {paid_once} (add/remove) is paid once, for {self.once_for}, and "
                claim += f"{per_draw} per private draw. "
            if self.loss.rest:
                claim += (
                    f"It is ρ-zCDP (zero-concentrated) with {amount(self.loss)} (add/remove), "
                    f"{stated(self.loss.substitution().rho)} (substitution): these numbers add up "
                    "over releases, and ε at a δ follows from their sum. "
                )
                if self.cluster > 1:  # group privacy
                    claim += f"They are of one record; of a person, {self.cluster**2} times that. "
            if self.draws < self.datasets:
                claim += f"The data sets come from {self.draws} private draw(s). "
            claim += f"{self.parts} " if self.parts else ""
        elif math.isfinite(self.epsilon):
            claim = (
                f"The target is ε = {stated(self.epsilon)} (one record added or removed; "
                f"{stated(self.epsilon_substitution)} for one record changed). It is met "
                "asymptotically as the number of records grows; for a finite number of records no "
                "ε is guaranteed. "
            )
        else:
            claim = (
                "The guarantee is asymptotic as the number of records grows; for a finite number "
                "of records no ε is guaranteed, and the ε found on these records is confidential. "
            )
        return opening + claim + "This assumes that " + "; that ".join(self.assumptions) + "."

    def _strict_claim(self) -> str:
        private = "The release is differentially private with ε ="
        person = ""
        if self.cluster > 1:
            person = f"{private} {stated(self.epsilon_person)} when {self._change()} "
            person += f"(δ = {stated(self.delta)}). "
            private = "For single records it is so with ε ="
        if self.holds_for == "add-remove":
            of = self._of_members()
            return (
                f"{person}{private} {stated(self.epsilon)} when one {self.unit}{of} is added or "
                f"removed, and with ε = {stated(self.epsilon_substitution)} when one {self.unit}'s "
                f"confidential values are changed (δ = {stated(self.delta)}). {self._member()}"
            )
        return (
            f"{person}{private} {stated(self.epsilon_substitution)} when one {self.unit}'s "
            f"confidential values are changed (δ = {stated(self.delta)}); it tells the number of "
            f"{self.unit}s. With that number, and what follows it, held fixed, one {self.unit} "
            f"added or removed moves what is drawn by at most ε = {stated(self.epsilon)}. "
            f"{self._member()}"
        )

    def _of_members(self) -> str:
        """State how many rows a record has, behind what it is."""
        if self.members == 1:
            return ""
        linking = "with" if self.unit == "person" else "of"
        return f" {linking} up to {self.members} {MEMBERS[self.unit]}s"

    def _member(self) -> str:
        """State what holds for one row of a record that has several."""
        if self.members == 1:
            return ""
        member = stated(self.epsilon_member)
        if self.unit == "person":
            alone = "A person's only wave, gained or lost, adds or removes the person. "
            if self.holds_for == "substitution":
                alone = "A person's only wave, gained or lost, changes the number of persons. "
            return (
                "One wave that a person of several gains or loses, or that is changed, changes "
                f"that person: for single waves ε is at most {member}; one that is taken for "
                f"another person's changes two. {alone}"
            )
        alone = f" Who joins or leaves without others adds or removes a {self.unit}. "
        if self.holds_for == "substitution":
            alone = f" Who joins or leaves without others changes the number of {self.unit}s. "
        return (
            f"One member who joins or leaves a {self.unit} of others, or is changed in it, changes "
            f"that {self.unit}: for single members ε is at most {member}; who moves from one to "
            f"another changes two. {alone.strip()}"
        )


def amount(loss: Loss) -> str:
    """State a loss: its ε, or its ρ where there is no ε at δ = 0."""
    return f"ρ = {stated(loss.rho)}" if loss.rest else f"ε = {stated(loss.epsilon)}"


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
