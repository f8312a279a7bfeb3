"""Exact audit: the privacy loss of every noisy answer, computed on the records and on neighbours.

The result is confidential. It can reject a claim and never prove it. It has no error rate: a
mechanism runs on the records and on a neighbour at once, gets the same noisy answers on both, and
the loss of each answer is computed (``questions``). All else that the runs produce must be equal.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpbayes.core.errors import DataError, DpbayesError, GuaranteeError
from dpbayes.core.lazy import pd, xr
from dpbayes.core.threads import one_thread
from dpbayes.engines.draws import stacked
from dpbayes.evaluate.candidates import NeighbourTable, alike, neighbours
from dpbayes.evaluate.copies import lost_by_copies
from dpbayes.evaluate.questions import NONE_LOST, WAYS, Interview, Lost, Way, interview
from dpbayes.mechanisms.base import Fitted, Mechanism, Task
from dpbayes.mechanisms.posterior import tabulated
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.stage import AnchorTables
from dpbayes.privacy.accounting import Loss, stated
from dpbayes.privacy.guarantee import Adjacency, Guarantee
from dpbayes.privacy.noise import Noise
from dpbayes.schema import Schema
from dpbayes.synthesis.synthesizer import Synthesizer

NEIGHBOURS = 12  # that are tried by default
ALIKE = 3  # neighbours of a table whose records are all equal
AWAY = 4  # neighbours of a table of equal records at a corner of the domain
SECONDS = 30.0  # after which no other neighbour is started
MOST_ROWS = 100_000  # synthetic rows to compare, if there are no public columns
ROUNDING = 1e-9  # relative error allowed in a loss, compared with its claim
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
    """Largest loss of one data set over the neighbours that were tried.

    Attributes:
        guarantee: the claim of the mechanism.
        claim: the claimed loss of the part that was audited.
        add_remove, substitution: for each kind of neighbour, the loss that is the largest share of
            its claim.
        differs: the first difference that no answer accounts for; empty if there is none.
        record: the record with the largest effect.
        neighbours: number of neighbours tried.
        part: the audited part of the claim; empty for all of it.
        questions: largest number of noisy answers that the mechanism asked for.
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
        """Largest loss as a share of its claim; infinite for a difference that no answer covers."""
        if self.differs and math.isfinite(self.claim.plain):
            return math.inf
        return max(
            share(self.add_remove, self.claim),
            share(self.substitution, self.claim.substitution()),
        )

    @property
    def violated(self) -> bool:
        """True if a loss exceeds its claim, or if something differs that no answer covers."""
        return self.share > 1 + ROUNDING

    def __str__(self) -> str:
        claims = [(self.add_remove, self.claim), (self.substitution, self.claim.substitution())]
        spent, nominal = (
            " / ".join(words) for words in zip(*(_said(*c) for c in claims), strict=True)
        )
        part = f", {self.part}" if self.part else ""
        verdict = "EXCEEDED" if self.violated else "not exceeded"
        return (
            f"{self.guarantee.mechanism}{part}: answers cost up to {spent} (add/remove / "
            f"substitution; exact, {self.neighbours} neighbours), claimed {nominal}: {verdict}"
            + (f"; {self.differs}" if self.differs else "")
        )


def share(lost: Lost, claim: Loss) -> float:
    """Largest share of the claim that a loss uses: of epsilon, of Gaussian rho, or of total rho.

    0 if nothing is claimed.
    """
    if not math.isfinite(claim.plain):
        return 0.0
    pairs = ((lost.plain, claim.plain), (lost.rest, claim.rest), (lost.rho, claim.rho))
    return max((a / b if b else math.inf) if a > 0 else 0.0 for a, b in pairs)


def _said(lost: Lost, claim: Loss) -> tuple[str, str]:
    """Format the loss and the claim, in the unit of the claim."""
    if not math.isfinite(claim.plain):
        return "-", "no ε"
    if not claim.rest:
        return f"ε = {stated(lost.plain)}", stated(claim.plain)
    pure_part = f"ε = {stated(lost.plain)} and " if claim.plain or lost.plain else ""
    return f"{pure_part}ρ = {stated(lost.rest)}", stated(claim.rest)


class _Run(NamedTuple):
    """Result of a run on one table.

    Attributes:
        rows: the public number of rows.
        settings: public settings of a release of a single data set, and of one of several.
        drawn_by: the fitted mechanism as a release has it, which drew the outputs; None for chains.
        output: its private outputs; for chains the stages and anchors that noise was used for.
    """

    rows: int
    settings: tuple[str, ...]
    drawn_by: Fitted[Any] | None
    output: Any


class _Case(NamedTuple):
    """A comparison of private outputs on a base table and on its neighbour.

    Attributes:
        base, neighbour: the two tables.
        datasets: number of private outputs.
        alone: they are drawn as for a release of a single data set.
    """

    base: Task
    neighbour: NeighbourTable
    datasets: int = 1
    alone: bool = False


@one_thread()
def audit_exact(
    synthesizer: Synthesizer[Any],
    records: pd.DataFrame,
    most: int = NEIGHBOURS,
    seed: int = 1,
    seconds: float = SECONDS,
) -> ExactAudit:
    """Give a mechanism the same noisy answers on neighbouring tables, and add up their losses.

    For a posterior that chains draw from, only the noisy answers are audited: a noisy number of
    rows, and tables for an anchor; ``audit`` covers the rest. For draws among candidate points
    everything is audited.

    Args:
        most: largest number of neighbours to try.
        seed: seed of the answers, and of all that is computed from them.
        seconds: time after which no other neighbour is started; one of each kind is always tried.
    Raises:
        GuaranteeError: no record, or no neighbour to try.
    """
    synthesizer = synthesizer.with_settings(replace(synthesizer.settings, seed=seed))
    base = synthesizer.task(records, allow_nonconvergence=True)
    if base.records.empty:
        raise GuaranteeError("an audit needs a record to replace, and there are none.")
    guarantee, mechanism = synthesizer.guarantee(), synthesizer.mechanism
    paired = guarantee.each.rho > 0 and guarantee.for_datasets(2).draws > 1
    tried = _cases(base, most, pairs=paired)
    kinds = {case.neighbour.adjacency for case in tried}
    if not tried:
        raise GuaranteeError("no record of the declared domain was found that keeps the rules.")
    posterior = mechanism.draws_posterior
    chains = posterior and synthesizer.engine.draw == "chain"
    candidates = posterior and not chains
    claim = guarantee.once if chains else guarantee.loss
    largest: dict[Adjacency, Lost] = {"add-remove": NONE_LOST, "substitution": NONE_LOST}
    worst, worst_share, differs, questions = tried[0].neighbour, -1.0, "", 0
    started, number = time.monotonic(), 0
    for number, case in enumerate(tried, start=1):
        neighbour, several = case.neighbour, case.datasets > 1
        case_claim = guarantee.once.plus(guarantee.each, case.datasets) if several else claim
        case_claim = (
            case_claim if neighbour.adjacency == "add-remove" else case_claim.substitution()
        )
        try:
            answers = _compared(synthesizer, case, seed + number, case_claim, chains=chains)
        except DpbayesError:
            if case.base is base:
                raise
            continue  # a mechanism may refuse records that are all equal, on both sides
        case_share = math.inf if answers.differs else share(answers.lost, case_claim)
        if several and not answers.differs and case_share > 1 + ROUNDING:
            answers = replace(answers, differs="two data sets cost more than is claimed for two")
        if candidates and not answers.differs and "select" not in answers.kinds:
            answers = replace(answers, differs="no draw was chosen by noise")
        differs = differs or answers.differs
        questions = max(questions, 0 if several else len(answers.kinds))
        if case_share > worst_share:
            worst, worst_share = neighbour, case_share
        if not several and share(answers.lost, case_claim) > share(
            largest[neighbour.adjacency], case_claim
        ):
            largest[neighbour.adjacency] = answers.lost
        kinds.discard(neighbour.adjacency)
        if time.monotonic() - started > seconds and not kinds:
            break
    record = {str(k): v for k, v in worst.record.iloc[0].items()}
    spent = largest["add-remove"], largest["substitution"]
    part = "rows and anchors" if chains else ""
    return ExactAudit(guarantee, claim, *spent, differs, record, number, part, questions)


def _cases(base: Task, most: int, *, pairs: bool) -> list[_Case]:
    """Neighbours of the records, and of tables of equal records; one of each kind comes first.

    Equal records are the first one, and two at corners of the domain: a squared distance between
    records is largest, and a count reaches n, where all others are at one end.

    Args:
        pairs: also compare two data sets, if each has a private output of its own.
    """
    own_cases = [_Case(base, n) for n in neighbours(base.schema, base.records, most)]
    changed = [c.neighbour.record for c in own_cases if c.neighbour.adjacency == "substitution"]
    alike_cases, *corner_cases = (
        _of_equal(base, record, number)
        for record, number in (
            (base.records, ALIKE),
            *((r, AWAY) for r in _corners(base.schema, changed)),
        )
    )
    kinds = {case.neighbour.adjacency: case for case in reversed(own_cases)}
    leading = [*reversed(kinds.values()), *alike_cases[:1]]
    twice = [case._replace(datasets=2) for case in leading] if pairs else []
    others = [case for case in own_cases if not any(case is first for first in leading)]
    first, last = (
        [case for cases in corner_cases for case in cases[part]]
        for part in (slice(ALIKE), slice(ALIKE, None))
    )
    few = [*first, *others[:ALIKE], *alike_cases[1:]]
    cases = [*leading, *twice, *few, *others[ALIKE:], *last]
    return [case._replace(alone=k % 2 == 1) for k, case in enumerate(cases)]


def _corners(schema: Schema, changed: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Records at two corners, each with the levels of the other if the rules allow that.

    So each is a neighbour's record away from the other in its numbers, and in the same cell.
    """
    if schema.unit is not None:
        return list(changed[:2])
    levels = [column.name for column in schema.confidential() if column.levels]
    records = []
    for record, other in zip(changed[:2], reversed(changed[:2]), strict=True):
        try:
            mixed = record.assign(**{name: other[name].array for name in levels})
            records.append(schema.validate(mixed))
        except DataError:
            records.append(record)
    return records


def _of_equal(base: Task, records: pd.DataFrame, most: int) -> list[_Case]:
    """Neighbours of a table that has the first of the records as often as ``base`` has records."""
    equal = base.of(alike(base.schema, records, base.schema.units(base.records)))
    return [_Case(equal, n) for n in neighbours(base.schema, equal.records, most)]


def _compared(
    synthesizer: Synthesizer[Any], case: _Case, seed: int, claim: Loss, *, chains: bool
) -> Interview[_Run]:
    """Compute the losses on a neighbour, and the first difference that they do not cover."""
    base, neighbour = case.base, case.neighbour

    def along(start: pd.DataFrame, way: Way) -> Interview[_Run]:
        def on(table: pd.DataFrame) -> Callable[[Noise], _Run]:
            if chains:
                return lambda noise: _anchored(synthesizer, base, table, noise)
            return lambda noise: _run(synthesizer, case, table, start, noise)

        answers = interview(on(base.records), on(neighbour.table), seed, way)
        if answers.results is None:
            return answers
        return replace(answers, differs=_differs(base, *answers.results, seed))

    answers = along(neighbour.record, WAYS[0])
    if "poisson" in answers.kinds:
        return _with_copies(answers, synthesizer.spent, case)
    if "levels" not in answers.kinds:
        return answers
    # The path of a chain depends on its answers: try all ways to answer, from each start.
    starts = [start for start in (neighbour.record, neighbour.instead) if len(start)]
    runs = [answers, *(along(start, way) for start in starts for way in WAYS)]
    differing = [run for run in runs if run.differs]
    return max(differing or runs, key=lambda run: share(run.lost, claim))


def _with_copies(
    answers: Interview[_Run], mechanism: Mechanism[Any], case: _Case
) -> Interview[_Run]:
    """Replace the losses of noisy bootstrap counts by the loss that includes random copies."""
    start = answers.kinds.index("poisson")
    pairs = zip(answers.kinds[start:], answers.losses[start:], strict=True)
    other_losses = [loss for kind, loss in pairs if kind not in ("poisson", "counts", "inside")]
    counted = len(answers.kinds) - start - len(other_losses) - answers.kinds.count("poisson")
    if counted != case.datasets and not answers.differs:
        answers = replace(answers, differs="copies of records are counted more than once")
    copied = lost_by_copies(mechanism, case.base, case.neighbour)
    return replace(
        answers, losses=(*answers.losses[:start], *other_losses, *[copied] * case.datasets)
    )


def _task(synthesizer: Synthesizer[Any], base: Task, table: pd.DataFrame, noise: Noise) -> Task:
    rows = base.rows  # a public number of rows stays fixed, and all facts that depend on it
    if synthesizer.schema.rows.share:
        rows = synthesizer.public_rows(synthesizer.schema.units(table), noise)
    return replace(base.of(table), rows=rows, sealed_noise=noise)


def _run(
    synthesizer: Synthesizer[Any],
    case: _Case,
    table: pd.DataFrame,
    record: pd.DataFrame,
    noise: Noise,
) -> _Run:
    """Fit the mechanism to one side of a comparison, and draw its private outputs.

    Chains begin at ``record``, in which the two sides differ: such a start would reveal most.
    """
    task = _task(synthesizer, case.base, table, noise)
    mechanism = synthesizer.spent
    fitted = mechanism.fit(task)
    fitted.begin_at(record)
    # A release of several data sets may make them otherwise than a single one.
    several = max(2, mechanism.datasets_of(None))
    forms = fitted.for_datasets(1), fitted.for_datasets(several)
    drawn_by = forms[0 if case.alone else 1]
    outputs = list(drawn_by.draw_outputs(case.datasets, noise))
    return _Run(task.rows, tuple(_settings(form.settings) for form in forms), drawn_by, outputs)


def _anchored(synthesizer: Synthesizer[Any], base: Task, table: pd.DataFrame, noise: Noise) -> _Run:
    """The noisy number of rows, and anchors made from noisy tables."""
    task = _task(synthesizer, base, table, noise)
    bound = BoundRecords(task)
    stages = synthesizer.spent.stages(bound.problem())  # type: ignore[attr-defined]  # a posterior
    anchors = [
        tabulated.draw_anchor(s.anchor, bound, noise)
        for s in stages
        if isinstance(s.anchor, AnchorTables)
    ]
    return _Run(task.rows, (), None, ([stage.to_dict() for stage in stages], anchors))


def _differs(base: Task, a: _Run, b: _Run, seed: int) -> str:
    """First difference between two runs with the same answers; empty if there is none."""
    if a.rows != b.rows:
        return "the number of rows differs"
    if not same(a.output, b.output):
        return "private outputs differ" if a.drawn_by else "anchors differ"
    if a.settings != b.settings:
        return "public settings differ"
    if a.drawn_by is None or b.drawn_by is None:
        return ""
    public = any(column.public for column in base.schema.columns.values())
    size = a.rows if public else min(a.rows, MOST_ROWS)
    for output, other_output in zip(a.output, b.output, strict=True):
        shown = _shown(a.drawn_by, output, size, seed)
        other_shown = _shown(b.drawn_by, other_output, size, seed)
        for what, value in shown.items():
            if not same(value, other_shown[what]):
                return f"{what} differ"
    return ""


def _settings(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True, default=str)


def _shown(fitted: Fitted[Any], output: Any, rows: int, seed: int) -> dict[str, Any]:
    """All that a release shows of a private output, by its name in messages."""
    return {
        "settings that follow from an answer": _settings(fitted.told(output)),
        "synthetic rows": fitted.synthetic(output, rows, np.random.default_rng([seed, 2])),
        "posterior draws": fitted.posterior_of(output),
    }


def same(a: object, b: object) -> bool:
    """Return True if two private outputs are equal, whatever their types."""
    if type(a) is not type(b):
        return False
    return _equal(a, b)


def _equal(a: Any, b: Any) -> bool:
    """Whether two values of one type are equal."""
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
