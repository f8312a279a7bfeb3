"""Intervals from data sets of one noisy measurement: what they cover."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.inference import combine
from dpbayes.schema import Rows

pytestmark = pytest.mark.statistical

N, SETS, RUNS = 1000, 5, 60
SCHEMA = dpb.Schema.from_dict(
    {
        "rows": "public",
        "columns": {
            "x": {"type": "count", "lower": 0, "upper": 20},
            "y": {"type": "continuous", "lower": 0, "upper": 40},
            "z": {"type": "binary", "levels": ["no", "yes"]},
        },
    }
)
SLOPES = (0.5, 3.0)  # of y in x and z


def population(n, rng):
    x = rng.binomial(20, 0.45, n)
    z = rng.random(n) < 1 / (1 + np.exp(0.4 * (x - 9)))
    y = 12 + SLOPES[0] * x + SLOPES[1] * z + rng.normal(0, 3, n)
    return pd.DataFrame({"x": x, "y": np.clip(y, 0, 40), "z": np.where(z, "yes", "no")})


def estimates(data):
    """Share of z, means of x and y, slopes: estimates and variances."""
    x, y = (data[name].to_numpy(dtype=float) for name in "xy")
    z = (data["z"] == "yes").to_numpy(dtype=float)
    design = np.column_stack([np.ones_like(x), x, z])
    slopes, *_ = np.linalg.lstsq(design, y)
    rest = y - design @ slopes
    inverse = np.linalg.inv(design.T @ design)
    variance = np.diag(inverse) * (rest @ rest) / (len(y) - 3)
    means = [z.mean(), x.mean(), y.mean()]
    of_means = [v.var() / len(y) for v in (z, x, y)]
    return [*means, *slopes[1:]], [*of_means, *variance[1:]]


@pytest.mark.parametrize(
    "mechanism",
    [
        dpb.Marginals(1.0, draw="posterior", adjacency="add-remove"),
        dpb.Marginals(1.0, "substitution", draw="posterior", delta=1e-6),
    ],
    ids=["geometric", "gaussian"],
)
@pytest.mark.parametrize("rows", ["public", "noisy", 2 * N])
def test_coverage(mechanism, rows):
    """Of 95 % intervals, 60 runs of five quantities at ε = 1, whether n is public or not.

    With coverage .95 a count of 60 is below 51 once in 1,350 times, and one of five in 270; they
    covered .93 to .98 in 150 other runs of twice as many rows, with five data sets as here. With
    .75 a count is 51 or more with probability .05, with .70 with .006. Shares of a number of rows
    taken for n covered 0 to 73 %.
    """
    assert bool(mechanism.delta) == (mechanism.rho(SCHEMA) is not None)
    schema = replace(SCHEMA, rows=Rows.parse(rows))
    truth = np.array(estimates(population(400_000, np.random.default_rng(1)))[0])
    covered = np.zeros(5)
    for run in range(RUNS):
        records = population(N, np.random.default_rng([2, run]))
        fit = dpb.Synthesizer(schema, mechanism).fit(records)
        found = [estimates(data) for data in fit.sample(SETS, seed=run).datasets]
        low, high = combine(*zip(*found, strict=True), "reiter2002").interval()
        covered += (low <= truth) & (truth <= high)
    assert (covered >= 51).all(), covered
