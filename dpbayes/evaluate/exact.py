"""An exact audit: what every answer with noise costs, worked out on the records and neighbours.

Confidential, as ``audit`` is. It can reject a claim and never prove it. It has no error rate: a
mechanism is run on the records and on a neighbour at once, is given the same answers on both, and
the loss of each answer is computed (``questions``). What answers do not pay for has to be the same.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpbayes.core.errors import DpbayesError, GuaranteeError
from dpbayes.core.lazy import pd, xr
from dpbayes.core.threads import one_thread
from dpbayes.engines.draws import stacked
from dpbayes.evaluate.candidates import NeighbourTable, neighbours
from dpbayes.evaluate.copies import lost_by_copies
from dpbayes.evaluate.questions import NONE_LOST, WAYS, Interview, Lost, Way, interview
from dpbayes.mechanisms.base import Fitted, Mechanism, Task
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.tabulated import AnchorTables
from dpbayes.privacy.accounting import Loss, stated
from dpbayes.privacy.guarantee import Adjacency, Guarantee
from dpbayes.privacy.noise import Noise
from dpbayes.synthesis.synthesizer import Synthesizer

NEIGHBOURS = 12  # by default
ALIKE = 3  # neighbours of records that are all alike
SECONDS = 30.0  # after which no other neighbour is begun
MOST_ROWS = 100_000  # of synthetic data, where fewer may be asked for than are declared
ROUNDING = 1e-9  # of a loss beside its claim
UNSEEN = (
    "what other neighbours, and other answers of the noise, would have shown",
    "whether noise has the distribution that was asked for (the package's tests look at that)",
    "errors, time, and choices made by looking at the records",
)
UNSEEN_CHAINS = (
    "how far chains are from exact draws, which of their draws is taken, how rows are made of it, "
    "and points of the parameters not tried"
)


@dataclass(frozen=True)
class ExactAudit:
    """The largest loss of one data set over the neighbours that were tried.

    Attributes:
        guarantee: what is claimed.
        claim: the loss that this part of the claim was made of.
        add_remove, substitution: of the neighbours of either kind, the loss that is the largest
            part of its claim.
        differs: what the first thing is that differs and that no answer pays for; or empty.
        record: the record that did most.
        neighbours: how many were tried.
        part: what of the claim was looked at; empty for all of it.
        questions: that the mechanism asked its noise, at most.
    """

    guarantee: Guarantee
    claim: Loss
    add_remove: Lost
    substitution: Lost
    differs: str
    record: dict[str, Any]
    neighbours: int
    part: str = ""
    questions: int = 0

    @property
    def share(self) -> float:
        """The largest loss as a part of its claim; infinite where something unpaid differs."""
        if self.differs and math.isfinite(self.claim.plain):
            return math.inf
        return max(
            share(self.add_remove, self.claim),
            share(self.substitution, self.claim.substitution()),
        )

    @property
    def violated(self) -> bool:
        """True if a loss exceeds its claim, or if something differs that nothing pays for."""
        return self.share > 1 + ROUNDING

    def __str__(self) -> str:
        claims = [(self.add_remove, self.claim), (self.substitution, self.claim.substitution())]
        spent, nominal = (
            " / ".join(words) for words in zip(*(_said(*c) for c in claims), strict=True)
        )
        what = f", {self.part}" if self.part else ""
        verdict = "EXCEEDED" if self.violated else "not exceeded"
        return (
            f"{self.guarantee.mechanism}{what}: answers cost up to {spent} (add/remove / "
            f"substitution; exact, {self.neighbours} neighbours), claimed {nominal}: {verdict}"
            + (f"; {self.differs}" if self.differs else "")
        )


def share(lost: Lost, claim: Loss) -> float:
    """A loss as a part of its claim: the largest of its epsilon's, Gaussian rho's and whole rho's.

    0 where nothing is claimed.
    """
    if not math.isfinite(claim.plain):
        return 0.0
    pairs = ((lost.plain, claim.plain), (lost.rest, claim.rest), (lost.rho, claim.rho))
    return max((a / b if b else math.inf) if a > 0 else 0.0 for a, b in pairs)


def _said(lost: Lost, claim: Loss) -> tuple[str, str]:
    """What was spent and what is claimed, in the unit of the claim."""
    if not math.isfinite(claim.plain):
        return "-", "no ε"
    if not claim.rest:
        return f"ε = {stated(lost.plain)}", stated(claim.plain)
    both = f"ε = {stated(lost.plain)} and " if claim.plain or lost.plain else ""
    return f"{both}ρ = {stated(lost.rest)}", stated(claim.rest)


class _Run(NamedTuple):
    """What a table led to.

    Attributes:
        rows: the public number of rows.
        fitted, output: the mechanism and its private outputs; or None and what a posterior's noise
            was for.
    """

    rows: int
    fitted: Fitted | None
    output: Any


class _Case(NamedTuple):
    """What is compared: the records, or others, a neighbour, and for how many data sets."""

    base: Task
    neighbour: NeighbourTable
    datasets: int = 1


@one_thread()
def audit_exact(
    synthesizer: Synthesizer[Any],
    records: pd.DataFrame,
    most: int = NEIGHBOURS,
    seed: int = 1,
    seconds: float = SECONDS,
) -> ExactAudit:
    """Give a mechanism the same answers on neighbours, and add up what they cost.

    Of a posterior that chains draw, these are the answers that are noise: a noisy number of rows,
    and tables for an anchor; ``audit`` has the rest. Of one among candidates it is everything.

    Args:
        most: neighbours to try.
        seed: of the answers, and of what is computed from them.
        seconds: after which no other neighbour is begun; one is always tried.
    Raises:
        GuaranteeError: no record, or no neighbour to try.
    """
    synthesizer = synthesizer.with_settings(replace(synthesizer.settings, seed=seed))
    base = synthesizer.task(records, allow_nonconvergence=True)
    if base.records.empty:
        raise GuaranteeError("an audit needs a record to put others in the place of.")
    guarantee, mechanism = synthesizer.guarantee(), synthesizer.mechanism
    paired = guarantee.each.rho > 0 and guarantee.for_datasets(2).draws > 1
    tried = _cases(base, most, pairs=paired)
    if not tried:
        raise GuaranteeError("no record of the declared domain was found that keeps the rules.")
    posterior = isinstance(mechanism, PosteriorMechanism)
    chains = posterior and synthesizer.engine.draw == "chain"
    candidates = posterior and not chains
    claim = guarantee.once if chains else guarantee.loss
    largest: dict[Adjacency, Lost] = {"add-remove": NONE_LOST, "substitution": NONE_LOST}
    worst, worst_share, differs, questions = tried[0].neighbour, -1.0, "", 0
    started, number = time.monotonic(), 0
    for number, case in enumerate(tried, start=1):
        neighbour, several = case.neighbour, case.datasets > 1
        of = guarantee.once.plus(guarantee.each, case.datasets) if several else claim
        of = of if neighbour.adjacency == "add-remove" else of.substitution()
        try:
            found = _compared(synthesizer, case, seed + number, of, chains=chains)
        except DpbayesError:
            if case.base is base:
                raise
            continue  # a mechanism may refuse records that are all alike, on both sides
        now = math.inf if found.differs else share(found.lost, of)
        if several and not found.differs and now > 1 + ROUNDING:
            found = replace(found, differs="two data sets cost more than is claimed for two")
        if candidates and not found.differs and "select" not in found.kinds:
            found = replace(found, differs="no draw was chosen by noise")
        differs = differs or found.differs
        questions = max(questions, 0 if several else len(found.kinds))
        if now > worst_share:
            worst, worst_share = neighbour, now
        if not several and share(found.lost, of) > share(largest[neighbour.adjacency], of):
            largest[neighbour.adjacency] = found.lost
        if time.monotonic() - started > seconds:
            break
    record = {str(k): v for k, v in worst.record.iloc[0].items()}
    spent = largest["add-remove"], largest["substitution"]
    part = "rows and anchors" if chains else ""
    return ExactAudit(guarantee, claim, *spent, differs, record, number, part, questions)


def _cases(base: Task, most: int, *, pairs: bool) -> list[_Case]:
    """Neighbours of the records, and of as many that are all alike; first one of each kind.

    Args:
        pairs: two data sets have private outputs of their own.
    """
    alike = base.of(base.records.iloc[[0] * len(base.records)].reset_index(drop=True))
    own = [_Case(base, n) for n in neighbours(base.schema, base.records, most)]
    others = [_Case(alike, n) for n in neighbours(base.schema, alike.records, ALIKE)]
    first = [*own[:1], *others[:1]]
    twice = [case._replace(datasets=2) for case in first] if pairs else []
    return [*first, *twice, *own[1:ALIKE], *others[1:], *own[ALIKE:]]


def _compared(
    synthesizer: Synthesizer[Any], case: _Case, seed: int, claim: Loss, *, chains: bool
) -> Interview[_Run]:
    """What answers cost on a neighbour, and what differs that they do not pay for."""
    base, neighbour = case.base, case.neighbour

    def along(start: pd.DataFrame, way: Way) -> Interview[_Run]:
        def on(table: pd.DataFrame) -> Callable[[Noise], _Run]:
            if chains:
                return lambda noise: _anchored(synthesizer, base, table, noise)
            return lambda noise: _run(synthesizer, base, table, start, noise, case.datasets)

        found = interview(on(base.records), on(neighbour.table), seed, way)
        if found.results is None:
            return found
        return replace(found, differs=_differs(base, *found.results, seed))

    found = along(neighbour.record, WAYS[0])
    if "poisson" in found.kinds:
        return _with_copies(found, synthesizer.spent, case)
    if "levels" not in found.kinds:
        return found
    # Where a chain goes follows its answers: other ways, from other seeds.
    starts = [one for one in (neighbour.record, neighbour.instead) if len(one)]
    every = [found, *(along(start, way) for start in starts for way in WAYS)]
    differing = [one for one in every if one.differs]
    return max(differing or every, key=lambda one: share(one.lost, claim))


def _with_copies(found: Interview[_Run], mechanism: Mechanism[Any], case: _Case) -> Interview[_Run]:
    """With what copies of records cost in place of what noise on their counts does."""
    first = found.kinds.index("poisson")
    asked = zip(found.kinds[first:], found.losses[first:], strict=True)
    others = [loss for kind, loss in asked if kind not in ("poisson", "counts", "inside")]
    counted = len(found.kinds) - first - len(others) - found.kinds.count("poisson")
    if counted != case.datasets and not found.differs:
        found = replace(found, differs="copies of records are counted more than once")
    copied = lost_by_copies(mechanism, case.base, case.neighbour)
    return replace(found, losses=(*found.losses[:first], *others, *[copied] * case.datasets))


def _task(synthesizer: Synthesizer[Any], base: Task, table: pd.DataFrame, noise: Noise) -> Task:
    rows = base.rows  # held fixed where it is public, and so are all facts that follow it
    if synthesizer.schema.rows.share:
        rows = synthesizer.public_rows(len(table), noise)
    return replace(base.of(table), rows=rows, noise=noise)


def _run(
    synthesizer: Synthesizer[Any],
    base: Task,
    table: pd.DataFrame,
    record: pd.DataFrame,
    noise: Noise,
    datasets: int,
) -> _Run:
    task = _task(synthesizer, base, table, noise)
    fitted = synthesizer.spent.fit(task)
    fitted.begin_at(record)
    return _Run(task.rows, fitted, list(fitted.outputs(datasets, noise)))


def _anchored(synthesizer: Synthesizer[Any], base: Task, table: pd.DataFrame, noise: Noise) -> _Run:
    """The noisy number of rows, and anchors made from noisy tables."""
    task = _task(synthesizer, base, table, noise)
    bound = BoundRecords(task)
    stages = synthesizer.spent.stages(bound.problem())  # type: ignore[attr-defined]  # a posterior
    anchors = [s.anchor.draw(bound, noise) for s in stages if isinstance(s.anchor, AnchorTables)]
    return _Run(task.rows, None, ([stage.to_dict() for stage in stages], anchors))


def _differs(base: Task, a: _Run, b: _Run, seed: int) -> str:
    """What differs between two runs with the same answers; empty if nothing does."""
    if a.rows != b.rows:
        return "the number of rows differs"
    if a.fitted is None or b.fitted is None:
        return "" if same(a.output, b.output) else "anchors differ"
    settings = [
        json.dumps(dict(one.fitted.settings), sort_keys=True, default=str)
        for one in (a, b)
        if one.fitted is not None
    ]
    if settings[0] != settings[1]:
        return "public settings differ"
    if not same(a.output, b.output):
        return "private outputs differ"
    public = any(column.public for column in base.schema.columns.values())
    size = a.rows if public else min(a.rows, MOST_ROWS)
    for outputs in zip(a.output, b.output, strict=True):
        rows = [
            one.fitted.synthetic(output, size, np.random.default_rng([seed, 2]))
            for one, output in zip((a, b), outputs, strict=True)
            if one.fitted is not None
        ]
        if not rows[0].equals(rows[1]):
            return "synthetic rows differ"
    return ""


def same(a: Any, b: Any) -> bool:
    """Two private outputs are equal, whatever they are made of."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        exact = a.dtype.kind != "f"
        return np.array_equal(a, b, equal_nan=not exact)
    if isinstance(a, pd.DataFrame | pd.Series):
        return bool(a.equals(b))
    if isinstance(a, xr.DataTree):
        names = list(a["posterior"].data_vars)
        return all(same(stacked(a, str(n)), stacked(b, str(n))) for n in names)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.compare)
    if isinstance(a, Sequence) and not isinstance(a, str | bytes):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    own = "__eq__" in {name for kind in type(a).__mro__[:-1] for name in vars(kind)}
    if own or callable(a):
        return bool(a == b)
    return a is b or same(vars(a), vars(b))
