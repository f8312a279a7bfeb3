"""Coverage of 95% intervals from m releases by a clamped or tempered posterior.

Each release is one draw θ* of the synthesizer's posterior, or n synthetic records from it. The
truth is drawn from the analyst's prior, so an exact posterior covers 95% whatever the mechanism
does. It is compared with the analysis of one data set as if it were real, and with rule ``modips``.
"""

from __future__ import annotations

import functools

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.core.lazy import pd, special, stats
from dpbayes.inference.combining import combine
from dpbayes.inference.counts import CountsPosterior, clamped_density, from_clamped_draws
from dpbayes.inference.normal import from_normal_draws
from dpbayes.mechanisms import Anchored
from dpbayes.mechanisms.posterior.stage import PublicFacts, Stage
from dpbayes.mechanisms.posterior.weights import ConstantWeights
from studies.runner import Report, in_one_piece, rounded

N = 100
RUNS = 1000
GRID = 1501
SYNTHESIS_PRIOR = (0.0, 2.5)  # of the logit, as in family bernoulli


def run(runs: int = RUNS, seed: int = 1) -> pd.DataFrame:
    """Simulate coverage with its standard error, by case and number of data sets."""
    rows = []
    seeds = iter(np.random.SeedSequence(seed).spawn(20))
    for m in (1, 5):
        for epsilon in (1.0, 3.0):
            for name, weight in (("censored", 1.0), ("anchored, none", min(1.0, epsilon / 6))):
                coverages = _binary(epsilon, weight, m, runs, np.random.default_rng(next(seeds)))
                rows.append((f"binary, {name}, ε = {epsilon:g}", m, *coverages))
            coverages = _two_stage(epsilon, m, runs, np.random.default_rng(next(seeds)))
            rows.append((f"binary, anchored, ε = {epsilon:g}", m, *coverages, np.nan, np.nan))
        for weight in (0.1, 1.0):
            coverages = _normal(weight, m, runs, np.random.default_rng(next(seeds)))
            rows.append((f"normal, weight {weight:g}", m, *coverages))
    columns = ["case", "m", "as if real", "rule modips", "model, data", "model, draws"]
    table = pd.DataFrame(rows, columns=columns)
    table["se at 0.95"] = np.sqrt(0.95 * 0.05 / runs)
    return table


def _binary(
    epsilon: float, weight: float, m: int, runs: int, rng: np.random.Generator
) -> tuple[float, ...]:
    """Coverage for a single stage with window [-ε, 0] and a constant weight."""
    p = rng.uniform(size=runs)
    x = rng.binomial(N, p)
    window = (-epsilon, 0.0)
    logit = np.linspace(-15, 15, GRID)
    table = np.column_stack([x, N - x])
    theta = _draw(logit, clamped_density(table, logit, weight, window, SYNTHESIS_PRIOR), m, rng)
    counts = rng.binomial(N, theta)
    model = functools.partial(
        from_clamped_draws, N, weight=weight, window=window, synthesis_prior=SYNTHESIS_PRIOR
    )
    return (*_rules(counts, p), _model(model(counts=counts), p), _model(model(draws=theta), p))


def _two_stage(epsilon: float, m: int, runs: int, rng: np.random.Generator) -> tuple[float, float]:
    """Coverage for an anchor drawn in a first stage, which the release hides."""
    problem = PublicFacts(rows=N, parameters=2, discrete=True)
    anchor_stage, final_stage = Anchored(epsilon, "two-stage", adjacency="add-remove").stages(
        problem
    )
    p = rng.uniform(size=runs)
    x = rng.binomial(N, p)
    table = np.column_stack([x, N - x])
    logit = np.linspace(-15, 15, GRID)
    density = clamped_density(
        table, logit, _alpha(anchor_stage), anchor_stage.window, SYNTHESIS_PRIOR
    )
    anchor = np.asarray(special.logit(_draw(logit, density, 1, rng)))
    density = stats.norm.logpdf(logit, *SYNTHESIS_PRIOR)
    for sign, count in ((1, x), (-1, N - x)):
        ratio = special.log_expit(sign * logit) - special.log_expit(sign * anchor)
        density = density + count[:, None] * np.clip(
            _alpha(final_stage) * ratio, *final_stage.window
        )
    return _rules(rng.binomial(N, _draw(logit, density, m, rng)), p)


def _alpha(stage: Stage) -> float:
    assert isinstance(stage.weights, ConstantWeights)
    return stage.weights.alpha


def _draw(logit: Floats, density: Floats, m: int, rng: np.random.Generator) -> Floats:
    """Draw m values of θ for each row of log densities on a grid, by inversion, shape (rows, m)."""
    cumulative = np.cumsum(
        np.exp(density - special.logsumexp(density, axis=1, keepdims=True)), axis=1
    )
    u = rng.uniform(size=(len(density), m))
    places = np.stack([np.searchsorted(c, row) for c, row in zip(cumulative, u, strict=True)])
    jitter = rng.uniform(-0.5, 0.5, places.shape) * (logit[1] - logit[0])
    return np.asarray(special.expit(logit[np.minimum(places, GRID - 1)] + jitter))


def _normal(weight: float, m: int, runs: int, rng: np.random.Generator) -> tuple[float, ...]:
    prior = (0.0, 1.0)
    truth = rng.normal(*prior, runs)
    centre = rng.normal(truth, N**-0.5)
    spread = 1 / (weight * N + 1)
    theta = rng.normal(spread * weight * N * centre, spread**0.5, (m, runs))
    records = rng.normal(theta, 1.0, (N, m, runs))
    q, v = records.mean(axis=0), records.var(axis=0, ddof=1) / N
    covered = []
    for values, size in ((q, N), (theta, None)):
        ends = [
            from_normal_draws(
                column, N, 1.0, size=size, weight=weight, synthesis_prior=prior, prior=prior
            ).interval()
            for column in values.T
        ]
        low, high = np.array(ends).T
        covered.append(float(np.mean((low <= truth) & (truth <= high))))
    return (float(_wald(q[0], v[0], truth).mean()), _modips(q, v, truth), *covered)


def _rules(counts: Ints, p: Floats) -> tuple[float, float]:
    q = counts.T / N
    v = q * (1 - q) / N
    return float(_wald(q[0], v[0], p).mean()), _modips(q, v, p)


def _model(posterior: CountsPosterior, p: Floats) -> float:
    total = posterior.parameters.sum(axis=1)
    a = posterior.parameters[:, 0]
    ranks = np.sum(posterior.weights * stats.beta.cdf(p[:, None], a, total - a), axis=1)
    return float(np.mean((ranks > 0.025) & (ranks < 0.975)))


def _wald(q: Floats, v: Floats, truth: Floats) -> Mask:
    return np.asarray(np.abs(q - truth) <= stats.norm.ppf(0.975) * np.sqrt(v))


def _modips(q: Floats, v: Floats, truth: Floats) -> float:
    if len(q) < 2:
        return float("nan")
    low, high = combine(q, v).interval()
    return float(np.mean((low <= truth) & (truth <= high)))


def report(found: pd.DataFrame) -> Report:
    """Report one table of coverages."""
    shown = rounded(found.drop(columns="piece").set_index(["case", "m"]))
    text = f"Coverage of 95% intervals after m releases, n = {N}\n\n{shown}"
    return Report(text, {"known-draws": found})


STUDY = in_one_piece(
    "known-draws",
    "coverage after releases by clamped posteriors",
    RUNS,
    run,
    report,
)
