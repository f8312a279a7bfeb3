"""Comparison of anchors: distance of a released draw from the fit, by records, parameters and ε.

Each piece is one data set: a regression on public covariates, with every anchor at every ε. The
distance is the root mean square of a draw of all parameters around the mean of the unclamped
posterior, in the units of that posterior's covariance: 1 without protection, and about 1 / sqrt(α)
if the clamp has no effect. An analyst of one synthetic data set has an error of about as many
standard errors, in addition to the sampling error of its rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd, special, xr
from dpbayes.engines import Engine, SamplerSettings, get_engine
from dpbayes.engines.draws import stacked
from dpbayes.mechanisms import Anchored, Unweighted
from dpbayes.mechanisms.posterior.stage import PublicFacts
from dpbayes.mechanisms.posterior.weights import ConstantWeights
from dpbayes.schema import Schema
from dpbayes.stan.model import Regression
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.runner import Piece, Report, Study, rounded

EPSILONS = (0.1, 0.3, 1.0, 3.0, 5.0)
SOME = (0.3, 1.0, 3.0)  # for cells whose fits take long
ANCHORS: tuple[Literal["none", "two-stage", "histogram"], ...] = ("none", "two-stage", "histogram")
DEFAULT = "default"
RATE_OF, WEIGHT, IDLE = "n ε / p", "α", "idle"
BANDS = (0, 9, 25, 60, 125, 400, np.inf)  # limits of n ε / p
SHARE, RATE = 0.5, 0.4  # means of the covariates
PRECISION = 6.0  # precision of beta outcomes
# Records, parameters, family, ε, and the share of the replicates; the last cells take long.
CELLS: tuple[tuple[int, int, str, tuple[float, ...], float], ...] = (
    *((n, p, "normal", EPSILONS, 1.0) for n in (200, 600, 2000) for p in (2, 6, 12)),
    *((n, 6, family, EPSILONS, 0.5) for n in (600, 2000) for family in ("bernoulli", "beta")),
    (200, 30, "normal", SOME, 0.5),
    (10_000, 2, "normal", EPSILONS, 0.5),
    (600, 30, "normal", SOME, 0.5),
    (10_000, 6, "normal", EPSILONS, 0.5),
    (2000, 30, "normal", SOME, 0.25),
    (10_000, 12, "normal", (0.1, 1.0), 0.25),
    (100_000, 6, "normal", (0.1,), 0.25),
    (10_000, 30, "normal", (0.3, 1.0), 0.25),
)
QUICK = 13  # number of cells, from the first, that are quick


def records(
    n: int, p: int, family: str, rng: np.random.Generator
) -> tuple[pd.DataFrame, Schema, Regression]:
    """Simulate the records of ``population``, without the coefficients."""
    return population(n, p, family, rng)[:3]


def population(
    n: int, p: int, family: str, rng: np.random.Generator
) -> tuple[pd.DataFrame, Schema, Regression, Floats]:
    """Simulate a regression with p parameters: half of the covariates binary, multiple R of 0.65.

    Normal outcomes have an sd of a tenth of the declared range, and their mean at 0.4 of it.

    Returns:
        Records, schema, model, and the true coefficients on the program's scale.
    """
    count = p - (1 if family == "bernoulli" else 2)
    values: dict[str, Floats] = {}
    columns: dict[str, dict[str, object]] = {}
    for k in range(count):
        if k % 2:
            values[f"x{k}"] = rng.beta(2, 3, n)
            columns[f"x{k}"] = {"type": "continuous", "lower": 0, "upper": 1, "public": True}
        else:
            values[f"x{k}"] = (rng.random(n) < SHARE).astype(float)
            columns[f"x{k}"] = {"type": "binary", "levels": ["0", "1"], "public": True}
    slope = rng.normal(size=count)
    spread = np.where(np.arange(count) % 2, 0.2, 0.5)  # sds of the covariates
    mean = np.where(np.arange(count) % 2, RATE, SHARE)
    z = np.column_stack([np.zeros(n), *values.values()])[:, 1:]
    slope /= np.sqrt(((slope * spread) ** 2).sum() or 1.0)
    eta = (z - mean) @ slope
    frame = pd.DataFrame({name: values[name] for name in values}, index=range(n))
    for k in range(0, count, 2):
        frame[f"x{k}"] = frame[f"x{k}"].astype(int).astype(str)
    if family == "bernoulli":
        frame["y"] = np.where(rng.random(n) < special.expit(eta - 0.7), "yes", "no")
        columns["y"] = {"type": "binary", "levels": ["no", "yes"]}
        steep = 1.0
    else:
        noise = rng.normal(size=n) * (np.sqrt(1 - 0.65**2) if count else 1.0)
        y, steep = 0.4 + (0.65 * eta + noise) / 10, 0.065
        if family == "beta":
            steep = 0.6
            share = special.expit(0.6 * eta - 1)
            y = rng.beta(share * PRECISION, (1 - share) * PRECISION)
        frame["y"] = 100 * np.clip(y, 1e-6, 1 - 1e-6)
        columns["y"] = {"type": "continuous", "lower": 0, "upper": 100}
    formula = "y ~ " + (" + ".join(values) or "1")
    return frame, Schema.from_dict({"columns": columns}), Regression(formula, family), steep * slope


@functools.cache
def _engine() -> Engine:
    """Share one engine, so that each program is compiled once."""
    return get_engine("embedded")


def run(
    seed: np.random.SeedSequence, n: int, p: int, family: str, epsilons: Sequence[float]
) -> pd.DataFrame:
    """Run one data set: a row for each ε and anchor, the default included."""
    rng = np.random.default_rng(seed)
    frame, schema, model = records(n, p, family, rng)
    settings = SamplerSettings(
        chains=2, warmup=200, draws=100, seed=int(rng.integers(2**31)), parallel_chains=1
    )
    base = Synthesizer(schema, Unweighted(), model, engine=_engine(), settings=settings)
    long = base.with_settings(SamplerSettings(draws=500, seed=settings.seed, parallel_chains=1))
    target = points_of(long.fit(frame, allow_nonconvergence=True).fitted.draws)
    rows = []
    for epsilon in epsilons:
        mechanisms: dict[str, Anchored] = {
            name: Anchored(epsilon, name, adjacency="add-remove") for name in ANCHORS
        }
        if default(n, p, family, epsilon)[0] == "none":  # with the ε that the claim leaves
            mechanisms[DEFAULT] = Anchored(epsilon, adjacency="add-remove")
        for name, mechanism in mechanisms.items():
            fit = base.with_mechanism(mechanism).fit(frame, allow_nonconvergence=True).fitted
            distance = distance_of(points_of(fit.draws), target)
            rows.append((epsilon, name, distance, fit.n_censored / n))
    columns = ["epsilon", "anchor", "distance", "clamped"]
    return pd.DataFrame(rows, columns=columns).assign(n=n, p=p, family=family)


@functools.cache
def default(n: int, p: int, family: str, epsilon: float) -> tuple[str, float]:
    """Anchor that the default selects, and the weight α of a record under it."""
    _, schema, model = records(2, p, family, np.random.default_rng(1))
    problem, mechanism = (
        PublicFacts.of(model.on(schema), n),
        Anchored(epsilon, adjacency="add-remove"),
    )
    anchor, weights = mechanism.taken(problem), mechanism.stages(problem)[-1].weights
    assert isinstance(anchor, str)
    assert isinstance(weights, ConstantWeights)
    return anchor, weights.alpha


def points_of(draws: xr.DataTree) -> Floats:
    """Transform parameters to scales on which posteriors are nearly normal, shape (draws, p)."""
    variables = draws["posterior"].data_vars
    logs = [np.log(stacked(draws, name)) for name in ("lambda", "phi") if name in variables]
    plain = [
        stacked(draws, name)
        for name in ("intercept", "coefficient", "log_sigma")
        if name in variables
    ]
    return np.hstack([np.reshape(values, (len(values), -1)) for values in (*plain, *logs)])


def distance_of(points: Floats, target: Floats) -> float:
    """Root mean square distance per parameter, in the metric of the target's covariance."""
    inverse = np.linalg.inv(np.atleast_2d(np.cov(target.T)))
    away = points - target.mean(axis=0)
    return float(np.sqrt(np.einsum("si,ij,sj->s", away, inverse, away).mean() / points.shape[1]))


def _logs(rows: pd.DataFrame) -> pd.DataFrame:
    """Log distances: rows are data sets and ε, columns are the anchors and the default."""
    keys = ["family", "p", "n", "epsilon", "piece"]
    wide = rows.assign(log=np.log(rows["distance"])).pivot(
        index=keys, columns="anchor", values="log"
    )
    table = wide.reset_index()
    cells = zip(table["n"], table["p"], table["family"], table["epsilon"], strict=True)
    table["taken"], table[WEIGHT] = zip(*(default(*cell) for cell in cells), strict=True)
    drawn = table.reindex(columns=[DEFAULT])[DEFAULT]
    for name in set(table["taken"]) - {"none"}:
        drawn = drawn.where(table["taken"] != name, table[name])
    return table.assign(**{DEFAULT: drawn, RATE_OF: table["n"] * table["epsilon"] / table["p"]})


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Geometric mean distance over data sets by cell and anchor, and the default's anchor."""
    groups = _logs(rows).groupby(["family", "p", "n", "epsilon", RATE_OF, "taken"])
    means = groups[[*ANCHORS, DEFAULT]].mean().apply(np.exp)
    return means.assign(**{"data sets": groups.size()}).reset_index()


def bands(rows: pd.DataFrame) -> pd.DataFrame:
    """Ratio of each anchor's distance to the default's, by bands of n ε / p.

    Geometric means over data sets, each with the mean over its cells, and standard errors of the
    logarithm. ``idle`` is the ratio of the default's distance to 1 / sqrt(α), that of a clamp
    without effect.
    """
    logs = _logs(rows)
    edges = pd.cut(logs[RATE_OF], BANDS, right=False).astype(str)
    discrete = np.where(logs["family"] == "bernoulli", "levels", "continuous")
    band_rows = []
    for (outcome, band), part in logs.groupby([discrete, edges]):
        ratio = part[list(ANCHORS)].sub(part[DEFAULT], axis=0)
        by_piece = ratio.groupby(part["piece"]).mean()
        row: dict[str, object] = {"outcome": outcome, "band": band, "data sets": len(by_piece)}
        row["least"] = part[RATE_OF].min()
        by_piece[IDLE] = (part[DEFAULT] + np.log(part[WEIGHT]) / 2).groupby(part["piece"]).mean()
        for name in by_piece:
            row[str(name)] = np.exp(by_piece[name].mean())
            row[f"{name} se"] = by_piece[name].sem()
        band_rows.append(row)
    return pd.DataFrame(band_rows).sort_values(["outcome", "least"], ignore_index=True)


def report(rows: pd.DataFrame) -> Report:
    """Report distances by cell, and the anchors relative to the default by n ε / p."""
    cells, by_band = table(rows), bands(rows)
    text = (
        "Distance of a released draw from the unclamped posterior's mean, in its sds (geometric "
        f"mean over data sets), ε of one data set, add/remove\n\n{rounded(cells, 2)}\n\n"
        "Times the default's distance, with standard errors of the logarithm\n\n"
        f"{rounded(by_band, 2)}"
    )
    return Report(text, {"anchors": cells, "bands": by_band})


def pieces(replicates: int) -> list[Piece]:
    """One piece per data set: all rounds of the quick cells, then of the others."""
    return [
        {"n": n, "p": p, "family": family, "epsilons": list(epsilons)}
        for cells in (CELLS[:QUICK], CELLS[QUICK:])
        for number in range(replicates)
        for n, p, family, epsilons, part in cells
        if number < np.ceil(part * replicates)
    ]


STUDY = Study(
    "anchors",
    "which anchor is nearest to the fit, n = 200 to 100,000, 2 to 30 parameters, five ε",
    6,
    pieces,
    run,
    report,
)
