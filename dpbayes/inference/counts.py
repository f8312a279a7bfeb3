"""Posterior of cell probabilities from released counts, under a model of the mechanism.

The confidential counts x are summed out exactly: given x the posterior of p is a Dirichlet, so the
posterior given the release is a finite mixture of Dirichlets, with a weight for every possible x.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import InferenceError
from dpbayes.core.lazy import optimize, special, stats, xr
from dpbayes.engines import SamplerSettings, get_engine
from dpbayes.stan.program import StanProgram

MOST_COUNTS = 2_000_000  # largest number of possible x times cells held in memory
NEGLIGIBLE = 1e-14  # weight below which a mixture component is left out of intervals
GRID = 4001  # points of the quadrature over the logit of a released probability


@dataclass(frozen=True)
class CountsPosterior:
    """Posterior of the cell probabilities: a mixture of Dirichlet distributions.

    Attributes:
        weights: probabilities of the R possible confidential counts, shape (..., R); sum to 1.
        parameters: parameters of the Dirichlet distributions, shape (R, K).
        model: data for ``stan_models/inference/synthetic_counts.stan``; None if it does not apply.
    """

    weights: Floats
    parameters: Floats
    model: Mapping[str, Any] | None = None

    @property
    def mean(self) -> Floats:
        """Posterior means, shape (..., K)."""
        return np.asarray(self.weights @ self._means())

    @property
    def variance(self) -> Floats:
        """Posterior variances, shape (..., K)."""
        total = self.parameters.sum(axis=1, keepdims=True)
        means = self._means()
        second_moments = means * (self.parameters + 1) / (total + 1)
        return np.asarray(self.weights @ second_moments - (self.weights @ means) ** 2)

    @property
    def sd(self) -> Floats:
        """Posterior standard deviations, shape (..., K)."""
        return np.sqrt(self.variance)

    def cdf(self, p: float, cell: int = 0) -> Floats:
        """Posterior probability that p_cell <= p, shape (...)."""
        a = self.parameters[:, cell]
        parts = stats.beta.cdf(p, a, self.parameters.sum(axis=1) - a)
        return np.asarray(self.weights @ parts)

    def interval(self, level: float = 0.95, cell: int = 0) -> tuple[float, float]:
        """Central credible interval of one cell's probability, for a single release."""
        if not 0 < level < 1:
            raise InferenceError(f"level = {level!r} must lie in (0, 1), for example 0.95.")
        if self.weights.ndim > 1:
            raise InferenceError("interval() takes one release at a time.")
        relevant = self.weights > NEGLIGIBLE
        mixture = CountsPosterior(self.weights[relevant], self.parameters[relevant])

        def quantile(q: float) -> float:
            return float(
                optimize.brentq(lambda p: float(mixture.cdf(p, cell)) - q, 0, 1, xtol=1e-10)
            )

        return quantile((1 - level) / 2), quantile((1 + level) / 2)

    def sample(self, size: int, seed: int | None = None) -> Floats:
        """Draw independently from the posterior of a single release, shape (size, K)."""
        if self.weights.ndim > 1:
            raise InferenceError("sample() takes one release at a time.")
        rng = np.random.default_rng(seed)
        chosen = rng.choice(len(self.weights), size=size, p=self.weights / self.weights.sum())
        gamma = rng.gamma(self.parameters[chosen])
        return np.asarray(gamma / gamma.sum(axis=1, keepdims=True))

    def sample_with_stan(
        self, settings: SamplerSettings | None = None, engine: str = "embedded"
    ) -> xr.DataTree:
        """Sample this posterior with Stan: a start for models with other priors."""
        if self.model is None:
            raise InferenceError("this posterior has no Stan program.")
        program = StanProgram.for_inference("synthetic_counts")
        bound = get_engine(engine).compile(program).bind(self.model)
        return bound.sample(settings or SamplerSettings())

    def _means(self) -> Floats:
        return np.asarray(self.parameters / self.parameters.sum(axis=1, keepdims=True))


def from_synthetic_counts(
    synthetic: ArrayLike,
    noise: ArrayLike,
    n: int | Mapping[int, float],
    *,
    prior: ArrayLike = 1.0,
    weight: float = 1.0,
) -> CountsPosterior:
    """Posterior of p from counts of the multinomial-Dirichlet (two cells: beta-binomial) mechanism.

    p ~ Dirichlet(prior), x ~ Multinomial(n, p), and for each data set m: p_m ~ Dirichlet(noise +
    weight x), synthetic_m ~ Multinomial(., p_m). The paper has two cells and samples x; here x is
    summed out, and n may be unknown.

    Source: charest-2011, section 4.

    Args:
        synthetic: released counts, shape (M, K), or (..., M, K) for many releases at once.
        noise: the synthesizer's prior α, one number or K of them.
        n: number of confidential records, or its prior as {n: probability}.
        prior: the analyst's Dirichlet prior, one number or K of them.
        weight: power by which the synthesizer tempers the likelihood of the confidential counts.
    Raises:
        InferenceError: invalid counts, parameters at or below 0, or too many possible x.
    """
    counts = _counts(synthetic)
    K = counts.shape[-1]
    alpha, gamma = (_positive(v, K, name) for v, name in ((noise, "noise"), (prior, "prior")))
    if not 0 < weight < math.inf:
        raise InferenceError(f"weight = {weight!r} must be a finite number above 0.")
    x, log_prior = _possible(n, K)
    shapes = alpha + weight * x  # (R, K)
    total = shapes.sum(axis=1)
    log_weight = log_prior + _log_marginal(x, gamma)
    # Loop over data sets m and cells k, so that arrays only span all releases (...) and all x (R).
    log_lik = np.zeros((*counts.shape[:-2], len(x)))
    for m in range(counts.shape[-2]):
        dataset = counts[..., m, None, :]
        log_lik = log_lik + special.gammaln(total) - special.gammaln(total + dataset.sum(axis=-1))
        for k in range(K):
            log_lik += special.gammaln(shapes[:, k] + dataset[..., k]) - special.gammaln(
                shapes[:, k]
            )
    model = None
    if counts.ndim == 2:
        model = {
            "K": K, "M": len(counts), "n": len(x), "x": x, "log_prior_x": log_prior,
            "synthetic": counts, "noise": alpha, "weight": float(weight), "prior": gamma,
        }  # fmt: skip
    return CountsPosterior(_normalise(log_weight + log_lik), gamma + x, model)


def from_clamped_draws(
    n: int,
    *,
    draws: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    size: int | None = None,
    weight: float = 1.0,
    window: tuple[float, float] = (-math.inf, math.inf),
    synthesis_prior: tuple[float, float] = (0.0, 2.5),
    prior: tuple[float, float] = (1.0, 1.0),
) -> CountsPosterior:
    """Posterior of a share p from the clamped bernoulli synthesizer without covariates.

    x ~ Binomial(n, p); the synthesizer draws logit θ_j from Normal(synthesis_prior) times
    exp(x c(log θ) + (n - x) c(log(1 - θ))), c(f) = clip(weight f, window), once for each data set;
    a data set is ``size`` records of Bernoulli(θ_j). The draws share x, which is summed out; the
    clamped posterior is normalised by quadrature for every x. Cell 0 of the result is p.

    Args:
        n: number of confidential records.
        draws: θ_j, if they are released (m known draws), shape (..., m), in (0, 1); or
        counts: counts of ones in each data set of ``size`` records (by default n), shape (..., m).
        weight, window: settings of the mechanism, such as 1 and (-ε, 0) for ``censored``.
        synthesis_prior: mean and sd of the synthesizer's normal prior of the logit.
        prior: the analyst's beta prior of p.
    """
    if (draws is None) == (counts is None):
        raise InferenceError("give either draws or counts, and not both.")
    low, high = window
    if not (low < high and 0 < weight < math.inf and synthesis_prior[1] > 0):
        raise InferenceError(
            f"weight = {weight!r} and the prior's sd {synthesis_prior[1]!r} must be above 0, and "
            f"the window {window!r} must go from low to high."
        )
    gamma = _positive(prior, 2, "prior")
    x, log_prior = _possible(n, 2)

    def density(logit: Floats) -> Floats:
        return clamped_density(x, logit, weight, window, synthesis_prior)

    grid = np.linspace(-30.0, 30.0, GRID)
    mass = density(grid) + math.log(grid[1] - grid[0])  # (R, G)
    log_norm = special.logsumexp(mass, axis=1)[:, None]
    if draws is not None:
        theta = _probabilities(draws)
        log_density = density((np.log(theta) - np.log1p(-theta)).ravel()) - log_norm
        log_lik = log_density.T.reshape(*theta.shape, len(x)).sum(axis=-2)
    else:
        size = n if size is None else size
        ones = _counts_up_to(size, counts)
        log_lik = _log_binomial(size, grid, np.exp(mass - log_norm)).T[ones].sum(axis=-2)
    log_weight = log_prior + _log_marginal(x, gamma) + log_lik
    return CountsPosterior(_normalise(log_weight), gamma + x)


def clamped_density(
    x: Floats,
    logit: Floats,
    weight: float,
    window: tuple[float, float],
    synthesis_prior: tuple[float, float],
) -> Floats:
    """Log density of the synthesizer's posterior of logit θ, up to a constant that depends on x.

    Args:
        x: confidential counts of ones and zeros, shape (R, 2).
        logit: shape (G,).
    Returns:
        shape (R, G).
    """
    return np.asarray(
        stats.norm.logpdf(logit, *synthesis_prior)
        + x[:, :1] * np.clip(weight * special.log_expit(logit), *window)
        + x[:, 1:] * np.clip(weight * special.log_expit(-logit), *window)
    )


def _log_binomial(size: int, logit: Floats, posterior: Floats) -> Floats:
    """Log probability of every count of ones among ``size`` records.

    It holds up to a constant that depends on the count only.

    Args:
        logit: values of logit θ, shape (G,).
        posterior: probabilities of these values, shape (R, G).
    Returns:
        shape (R, size + 1).
    """
    ones = np.arange(size + 1.0)[:, None]
    terms = ones * special.log_expit(logit) + (size - ones) * special.log_expit(-logit)
    terms -= terms.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(posterior @ np.exp(terms).T))


def _probabilities(draws: ArrayLike) -> Floats:
    theta = np.atleast_1d(np.asarray(draws, dtype=float))
    if not theta.size or not ((theta > 0) & (theta < 1)).all():
        raise InferenceError("draws must be probabilities strictly between 0 and 1.")
    return theta


def _counts_up_to(size: int, counts: ArrayLike | None) -> Ints:
    ones = np.atleast_1d(np.asarray(counts))
    if not ones.size or (ones < 0).any() or (ones > size).any() or (ones != ones.round()).any():
        raise InferenceError(f"counts must be whole numbers from 0 to size = {size}.")
    return ones.astype(np.int64)


def _possible(n: int | Mapping[int, float], K: int) -> tuple[Floats, Floats]:
    """Return every possible x, shape (R, K), and the log prior of its total, shape (R,)."""
    prior = dict(n) if isinstance(n, Mapping) else {n: 1.0}
    rows = 0
    for total, probability in prior.items():
        if isinstance(total, bool) or not isinstance(total, int | np.integer) or total < 1:
            raise InferenceError(f"n = {total!r} must be a whole number, at least 1.")
        if not probability > 0 or not math.isfinite(probability):
            raise InferenceError(f"the prior of n = {total} must be above 0, not {probability!r}.")
        rows += math.comb(int(total) + K - 1, K - 1)
    if rows * K > MOST_COUNTS:
        raise InferenceError(
            f"{rows:,} confidential tables of {K} cells are possible, too many to sum over. "
            "Merge cells, narrow the prior of n, or use rule 'modips' on several data sets."
        )
    parts, logs = [], []
    for total, probability in prior.items():
        table = _compositions(int(total), K)
        parts.append(table)
        logs.append(np.full(len(table), math.log(probability)))
    return np.concatenate(parts), np.concatenate(logs)


def _compositions(total: int, K: int) -> Floats:
    """All vectors of K counts that sum to ``total``; with two cells, the first descends."""
    if K == 2:
        first_cell = np.arange(total, -1, -1.0)
        return np.column_stack([first_cell, total - first_cell])
    # Stars and bars: positions of K - 1 bars.
    bars = np.array(list(itertools.combinations(range(total + K - 1), K - 1)), dtype=float)
    edges = np.column_stack([np.full(len(bars), -1.0), bars, np.full(len(bars), total + K - 1.0)])
    return np.diff(edges, axis=1) - 1


def _log_marginal(x: Floats, gamma: Floats) -> Floats:
    """Log Dirichlet-multinomial probability of x, shape (R,)."""
    n, g = x.sum(axis=1), gamma.sum()
    return np.asarray(
        special.gammaln(n + 1)
        - special.gammaln(x + 1).sum(axis=1)
        + special.gammaln(g)
        - special.gammaln(n + g)
        + (special.gammaln(x + gamma) - special.gammaln(gamma)).sum(axis=1)
    )


def _normalise(log_weight: Floats) -> Floats:
    return np.asarray(np.exp(log_weight - special.logsumexp(log_weight, axis=-1, keepdims=True)))


def _counts(values: ArrayLike) -> Floats:
    counts = np.asarray(values, dtype=float)
    if counts.ndim < 2 or counts.shape[-1] < 2 or not counts.size:
        raise InferenceError(
            f"synthetic counts have shape {counts.shape}; expected data sets x cells, with at "
            "least two cells: [[30, 70]] for 30 ones among 100."
        )
    if not np.isfinite(counts).all() or (counts < 0).any() or (counts != counts.round()).any():
        raise InferenceError("synthetic counts must be whole numbers, 0 or above.")
    return counts


def _positive(values: ArrayLike, K: int, name: str) -> Floats:
    array = np.asarray(values, dtype=float)
    if array.shape not in ((), (K,)) or not np.isfinite(array).all() or (array <= 0).any():
        raise InferenceError(f"{name} = {values!r}: expected one number above 0, or {K} of them.")
    return np.array(np.broadcast_to(array, (K,)))
