"""Families at the edges of their data: a release, whatever the records are."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb

SETTINGS = dpb.SamplerSettings(chains=2, warmup=60, draws=20, seed=3)
COVARIATES = [f"z{k}" for k in range(12)]
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 10},
            "seen": {"type": "binary", "levels": ["no", "yes"]},
            "g": {"type": "categorical", "levels": [*"abcdefgh"], "public": True},
            **{
                name: {"type": "continuous", "lower": 0, "upper": 1, "public": True}
                for name in COVARIATES
            },
        }
    }
)


def table(y, seen):
    """One record a group, and fewer of them than covariates; some declared groups have none."""
    n = len(y)
    z = np.random.default_rng(2).uniform(size=(n, len(COVARIATES)))
    found = {"y": np.asarray(y, dtype=float), "seen": seen, "g": [*"abcdefgh"][:n]}
    return pd.DataFrame({**found, **dict(zip(COVARIATES, z.T, strict=True))})


CASES = {
    "one record": (table([3.0], ["yes"]), "1 + (1 | g)"),
    "all at 0, none seen": (table([0.0] * 6, ["no"] * 6), "1 + (1 | g)"),
    "all at the end, all seen": (table([10.0] * 6, ["yes"] * 6), "z0"),
    "more covariates than records": (
        table([1, 2, 2, 5, 9, 10], ["no", "yes"] * 3), " + ".join(COVARIATES),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("left", "family"),
    [("y", "mixture(components = 3)"), ("y", "weibull"), ("Surv(y, seen)", "survival_lognormal")],
)
@pytest.mark.parametrize("case", CASES)
def test_edges_give_a_release(case, left, family):
    records, right = CASES[case]
    model = dpb.Regression(f"{left} ~ {right}", family)
    synthesizer = dpb.Synthesizer(SCHEMA, dpb.Censored(2.0), model, settings=SETTINGS)
    fit = synthesizer.fit(records, allow_nonconvergence=True)
    (drawn,) = fit.sample(1).datasets
    SCHEMA.validate(drawn.assign(**{c: records[c] for c in records if c not in drawn}))
    assert len(drawn) == len(records)
