"""Choose among Stan programs with a part of the budget (Liu, algorithm 1, line 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from dpbayes.engines import SamplerSettings
from dpbayes.engines.contract import contract_defaults
from dpbayes.errors import GuaranteeError
from dpbayes.mechanisms import Unweighted
from dpbayes.mechanisms.base import Window
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import Adjacency, check_epsilon
from dpbayes.privacy.noise import Noise, SecureNoise, scale_for
from dpbayes.synthesizer import Synthesizer

# Long enough for a thousand near-independent draws of a prior.
POINTS = SamplerSettings(warmup=500, draws=250, seed=1)
WINDOW = (-4.0, 4.0)


@dataclass(frozen=True)
class Choice:
    """A program chosen privately.

    Attributes:
        index: of the candidate. Private output: it may be told once it is paid for.
        synthesizer: the candidate, whose guarantee now includes what the choice cost.
        scores: of all candidates; confidential.
    """

    index: int
    synthesizer: Synthesizer
    scores: tuple[float, ...]


def choose_program(
    candidates: Sequence[Synthesizer],
    records: pd.DataFrame,
    epsilon: float,
    *,
    reference: pd.DataFrame | None = None,
    window: Window = WINDOW,
    adjacency: Adjacency = "add-remove",
    noise: Noise | None = None,
) -> Choice:
    """Choose a program by the exponential mechanism on a clamped log evidence.

    The score of a program is log mean_s exp sum_i clip(f_i(θ_s), window), over public points θ_s:
    draws of its prior, or of its posterior given public reference records.

    Sensitivity: one record more or less changes the exponent of every θ_s by a term inside the
    window, and so the score: differences between scores change by at most its width w.

    Guarantee: strict, epsilon for ``adjacency``, paid once for all data sets: P(program)
    proportional to exp(score epsilon / w) is w-bounded-range at scale w / epsilon, by the argument
    of ``Censored``; a changed record costs twice as much.

    Args:
        candidates: synthesizers of the same schema and outcome; families or programs differ.
        records: n confidential rows.
        epsilon: for the choice.
        reference: public records, paid for elsewhere; without them points come from the priors,
            which are often too wide to tell programs apart.
        window: public; log-likelihoods outside count as its ends.
        noise: for studies; by default of a release.
    Raises:
        GuaranteeError: fewer than two candidates, other outcomes, or a bad number.
    """
    check_epsilon(epsilon)
    if len(candidates) < 2:
        raise GuaranteeError(f"{len(candidates)} candidate(s): a choice needs at least two.")
    first = candidates[0]
    for other in candidates[1:]:
        same = other.schema.to_dict() == first.schema.to_dict()
        if not same or other.formula.outcome != first.formula.outcome:
            raise GuaranteeError("candidates must have the same schema and the same outcome.")
    low, high = window
    if not -np.inf < low < high < np.inf:
        raise GuaranteeError(f"window = {window!r} must be two finite numbers, the smaller first.")
    scores = tuple(_score(candidate, records, reference, window) for candidate in candidates)
    width = high - low
    cost = 2 * width if adjacency == "substitution" else width
    # The middle of the window is common to all scores of n records and cancels.
    index = (noise or SecureNoise()).select(np.array(scores), scale_for(cost, epsilon))
    loss = choice_loss(epsilon, adjacency)
    return Choice(index, candidates[index].having_paid(loss, "the choice of a program"), scores)


def choice_loss(epsilon: float, adjacency: Adjacency) -> Loss:
    """What ``choose_program`` costs when a record is added or removed."""
    check_epsilon(epsilon)
    return Loss.bounded_range(epsilon / 2 if adjacency == "substitution" else epsilon)


def _score(
    candidate: Synthesizer, records: pd.DataFrame, reference: pd.DataFrame | None, window: Window
) -> float:
    plain = candidate.with_mechanism(Unweighted())
    bound = plain.bind(records)
    if reference is None:
        n = len(records)
        changes = {**contract_defaults(n), "weights": np.zeros(n)}
        points = bound.rebind(**changes).sample(POINTS)
    else:
        points = plain.with_settings(POINTS).fit(reference, allow_nonconvergence=True).draws
    # A point at which a density is not defined counts as the lower end for that record.
    sums = [np.clip(np.nan_to_num(f, nan=window[0]), *window).sum() for f in bound.log_lik(points)]
    return float(logsumexp(sums) - np.log(len(sums)))
