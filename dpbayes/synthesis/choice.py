"""Private choice among Stan programs with a part of the budget (Liu, algorithm 1, line 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpbayes.core.errors import GuaranteeError, ProgramError
from dpbayes.core.frames import Frame
from dpbayes.core.lazy import pd, special
from dpbayes.engines import SamplerSettings
from dpbayes.mechanisms import Unweighted
from dpbayes.mechanisms.posterior.fit import PosteriorFit
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.stage import Window
from dpbayes.mechanisms.posterior.weights import check_disjoint
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import (
    PUBLIC_INPUTS,
    SECRET_NOISE,
    Adjacency,
    Guarantee,
    check_epsilon,
)
from dpbayes.privacy.noise import Noise, SecureNoise
from dpbayes.privacy.statistic import scale_for
from dpbayes.records.chunks import Table
from dpbayes.records.overlap import TableSketch
from dpbayes.schema import Rows
from dpbayes.stan.proof.check import each_by_itself
from dpbayes.synthesis.synthesizer import Synthesizer, findings_of, require_synthesizers

# Long enough for a thousand near-independent draws of a prior.
POINTS = SamplerSettings(warmup=500, draws=250, seed=1)
WINDOW = (-4.0, 4.0)
# Number of rows from which a program's scales are derived if that of the records is noisy: any
# public number will do.
ROWS = 1000
CHOICE = "the choice of a program"


@dataclass(frozen=True)
class Choice:
    """A program chosen privately.

    Attributes:
        index: index of the chosen candidate; a private output, which epsilon pays for.
        synthesizer: the chosen candidate, whose guarantee includes the cost of the choice.
        scores: scores of all candidates; confidential.
    """

    index: int
    synthesizer: Synthesizer[PosteriorFit]
    scores: tuple[float, ...]


def choose_program(
    candidates: Sequence[Synthesizer[PosteriorFit]],
    records: pd.DataFrame,
    epsilon: float,
    *,
    reference: pd.DataFrame | None = None,
    window: Window = WINDOW,
) -> Choice:
    """Choose a program by the exponential mechanism on a clamped log evidence.

    The score of a program is log mean_s exp sum_i clip(f_i(θ_s), window), over public points θ_s:
    draws of its prior, or of its posterior given public reference records. Here f_i is relative to
    a uniform distribution over the declared domain, as programs have outcomes in different units.

    Sensitivity: adding or removing a record changes the exponent at every θ_s by a term inside the
    window, and the score by a value inside it: differences between scores change by at most its
    width w.

    Guarantee: strict, epsilon for the candidates' neighbours, paid once for all data sets:
    P(program) proportional to exp(score epsilon / w) is w-bounded-range at scale w / epsilon, by
    the argument of ``Censored``; a changed record costs twice as much.

    The choice is drawn immediately, whether or not anything is released afterwards: with a ledger,
    use ``Job(choose_epsilon=...)``, which reserves its cost first.

    Source: liu-2016, algorithm 1.

    Args:
        candidates: synthesizers of the same schema, outcome and mechanism; families or programs
            differ.
        records: n confidential rows.
        epsilon: the cost of the choice, for a person and for the neighbours that the candidates'
            own epsilon is for.
        reference: public records; without them points come from the priors,
            which are often too wide to distinguish programs.
        window: the public window; log-likelihoods outside it count as its ends.
    Raises:
        GuaranteeError: fewer than two candidates, other outcomes, the records as their own
            reference, or a bad number.
        ProgramError: a candidate's program is a user's and is not proved to keep the contract.
    """
    scores = score_programs(candidates, records, reference=reference, window=window)
    part, adjacency = of_record(candidates[0], epsilon)
    index = draw_choice(scores, part, adjacency, window=window)
    loss = choice_loss(part, adjacency)
    return Choice(index, candidates[index].having_paid(loss, CHOICE), scores)


def of_record(candidate: Synthesizer[Any], epsilon: float) -> tuple[float, Adjacency]:
    """Epsilon of one record, and its neighbour relation, where a person pays ``epsilon``."""
    claim = candidate.guarantee()
    return check_epsilon(epsilon) / claim.cluster, claim.adjacency


def score_programs(
    candidates: Sequence[Synthesizer[PosteriorFit]],
    records: Frame | Table,
    *,
    reference: pd.DataFrame | None = None,
    window: Window = WINDOW,
) -> tuple[float, ...]:
    """Compute the scores of all candidates (see ``choose_program``). Confidential."""
    check_candidates(candidates)
    low, high = window
    if not -np.inf < low < high < np.inf:
        raise GuaranteeError(f"window = {window!r} must be two finite numbers, the smaller first.")
    table = candidates[0].table(records)
    for candidate in candidates:  # a choice is paid for, and the chosen one must not be refused
        candidate.rehearse(table)
    if reference is not None:
        known = table.schema.without_weights
        check_disjoint(TableSketch.of(known(table.schema.validate(reference))), known(table.frame))
    return tuple(_score(candidate, table, reference, window) for candidate in candidates)


def draw_choice(
    scores: Sequence[float],
    epsilon: float,
    adjacency: Adjacency,
    *,
    window: Window = WINDOW,
    noise: Noise | None = None,
) -> int:
    """Draw the index of the chosen candidate, the private output that epsilon pays for.

    Args:
        epsilon, adjacency: of one record, as ``of_record`` gives them.
    """
    check_epsilon(epsilon)
    width = window[1] - window[0]
    cost = 2 * width if adjacency == "substitution" else width
    # The middle of the window is common to all scores of n records and cancels.
    return (noise or SecureNoise()).select(np.array(scores), scale_for(cost, epsilon))


def check_candidates(candidates: Sequence[Synthesizer[PosteriorFit]]) -> None:
    """Raise unless the candidates are two or more models of one outcome, with proved programs.

    The choice claims a strict guarantee whatever mechanism follows. A user's assertion cannot
    replace a proof here: the guarantee of the chosen candidate would not record it for the others.

    Raises:
        GuaranteeError: the candidates are not comparable.
        ProgramError: a user's program is not proved to keep the contract.
    """
    require_synthesizers(candidates)
    if len(candidates) < 2:
        raise GuaranteeError(f"{len(candidates)} candidate(s): a choice needs at least two.")
    schemas = [candidate.schema.to_dict() for candidate in candidates]
    outcomes = [candidate.model and candidate.model.outcomes for candidate in candidates]
    if None in outcomes:
        raise GuaranteeError(
            "candidates differ in their model, and one of these has none: take a mechanism that "
            "draws from a model."
        )
    if any(schema != schemas[0] for schema in schemas) or len(set(outcomes)) > 1:
        raise GuaranteeError("candidates must have the same schema and the same outcome.")
    if len({repr(candidate.mechanism) for candidate in candidates}) > 1:
        raise GuaranteeError("candidates must have the same mechanism: they differ in their model.")
    if len({candidate.paid for candidate in candidates}) > 1:
        raise GuaranteeError("candidates must have paid for the same before.")
    for candidate in candidates:
        model, findings = candidate.model, findings_of(candidate.model)
        if model is not None and findings:
            raise ProgramError(
                f"program {model.program.name!r} is not proved to keep the contract: "
                f"{findings[0]} A private choice takes programs that are proved."
            )
        if model is not None and not each_by_itself(model.program):
            if len(model.columns) > 1:
                raise ProgramError(
                    "sequences with programs of your own are not compared by a private choice, "
                    "which evaluates records in blocks. Choose for each column by itself."
                )
            raise ProgramError(
                f"program {model.program.name!r} puts public covariates of several records "
                "together: its records cannot be evaluated in blocks, as a private choice does."
            )
    models = [candidate.model and candidate.model.identity() for candidate in candidates]
    if any(model in models[:k] for k, model in enumerate(models)):
        raise GuaranteeError("two candidates have the same model: a choice between them costs ε.")


def choice_loss(epsilon: float, adjacency: Adjacency) -> Loss:
    """Privacy loss of ``choose_program``."""
    check_epsilon(epsilon)
    return Loss.bounded_range(epsilon / 2 if adjacency == "substitution" else epsilon)


def choice_claim(epsilon: float, adjacency: Adjacency) -> Guarantee:
    """The claim for the choice alone, whatever is released afterwards."""
    loss = choice_loss(epsilon, adjacency)
    return Guarantee("choice", loss, "strict", (PUBLIC_INPUTS, SECRET_NOISE), adjacency=adjacency)


def _score(
    candidate: Synthesizer[PosteriorFit],
    table: Table,
    reference: pd.DataFrame | None,
    window: Window,
) -> float:
    plain = _with_public_rows(candidate).with_mechanism(Unweighted())
    if plain.engine.draw != "chain":  # points of the prior are public: any engine will do
        plain = plain.with_engine("embedded")
    on = BoundRecords(plain.task(table))
    # The engine for points evaluates records in blocks of one size: no record has another last bit
    # beside other records, which a user's program could magnify.
    scored = BoundRecords(plain.with_engine("candidates").task(table))
    if reference is None:
        points = on.blank.rebind(weights=np.zeros(on.task.rows)).sample(POINTS)
    else:
        task = plain.with_settings(POINTS).task(reference, allow_nonconvergence=True)
        points = BoundRecords(task).unweighted_released.draws
    # A point at which a density is not defined counts as the lower end for that record.
    # The record that stands in for an empty table counts as none.
    records = scored.task.records if scored.present else scored.model.constant_record()
    log_uniform = np.sum([c.log_uniform_at(records) for c in scored.model.columns], axis=0)
    # A term is one record's own: records with equal program data may differ in their units.
    kind = scored.kinds.each_record(np.arange(scored.kinds.size))
    terms, counts = np.unique(np.stack([kind, log_uniform]), axis=1, return_counts=True)
    kind, log_uniform = terms[0].astype(np.int64), terms[1]
    counted = counts * scored.counted[kind]
    log_liks = (np.nan_to_num(f[kind] - log_uniform, nan=window[0]) for f in scored.log_lik(points))
    sums = [counted @ np.clip(f, *window) for f in log_liks]
    return float(special.logsumexp(sums) - np.log(len(sums)))


def _with_public_rows(candidate: Synthesizer[PosteriorFit]) -> Synthesizer[PosteriorFit]:
    """The candidate with a declared number of rows in place of a noisy one, which would cost."""
    if not candidate.schema.rows.share:
        return candidate
    schema = replace(candidate.schema, rows=Rows("declared", ROWS))
    return Synthesizer(
        schema,
        candidate.mechanism,
        candidate.model,
        engine=candidate.engine,
        settings=candidate.settings,
    )
