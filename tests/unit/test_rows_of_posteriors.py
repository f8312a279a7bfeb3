"""Where the number of rows is declared, nothing public follows the number of records."""

import re

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms import MECHANISMS, PosteriorMechanism
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.schema.rows import MOST_VALUES
from dpbayes.stan.families import FAMILIES

SETTINGS = dpb.SamplerSettings(chains=2, warmup=60, draws=20, seed=3)
COLUMNS = {
    "earnings": {"type": "continuous", "lower": 0, "upper": 80},
    "ill": {"type": "binary", "levels": ["no", "yes"]},
    "visits": {"type": "count", "upper": 30},
    "party": {"type": "categorical", "levels": ["a", "b", "c"]},
    "health": {"type": "ordinal", "levels": ["bad", "fair", "good"]},
    "wage": {"type": "continuous", "lower": 0, "upper": 80, "atoms": [0]},
    "rooms": {"type": "count", "lower": 1, "upper": 30},
}
POSTERIORS = {
    "censored": dpb.Censored(1),
    "negative": dpb.Censored(1, window="negative"),
    "censored-weighted": dpb.CensoredWeighted(1, weights=dpb.ConstantWeights(0.4)),
    "anchored": dpb.Anchored(1),
    "anchored-none": dpb.Anchored(1, "none"),
    "anchored-histogram": dpb.Anchored(1, "histogram"),
    "modips": dpb.ClampedModips(1),
    "modips-censored": dpb.ClampedModips(1, "censored"),
    "beta-divergence": dpb.BetaDivergence(1),
}
MODELS = [
    ("earnings", "normal"), ("earnings", "beta"), ("earnings", "gamma"), ("earnings", "lognormal"),
    ("ill", "bernoulli"), ("visits", "poisson"), ("visits", "neg_binomial"),
    ("party", "categorical"), ("health", "ordinal"), ("health", "ordinal_probit"),
    ("earnings", "student_t"), ("earnings", "truncated_normal"),
    ("earnings", "truncated_lognormal"), ("wage", "histogram"),
    ("rooms", "zero_truncated_poisson"), ("rooms", "zero_truncated_neg_binomial"),
    ("visits", "hurdle_poisson"), ("visits", "hurdle_neg_binomial"),
    ("visits", "zero_inflated_poisson"), ("visits", "zero_inflated_neg_binomial"),
    ("wage", "semicontinuous_lognormal"), ("wage", "semicontinuous_gamma"),
    ("wage", "semicontinuous_beta"), ("wage", "semicontinuous_truncated_normal"),
    ("earnings", "mixture"), ("earnings", "mixture_lognormal"),
    ("earnings", "weibull"), ("earnings", "exponential"),
    ("Surv(earnings, ill)", "survival_weibull"), ("Surv(earnings, ill)", "survival_exponential"),
    ("Surv(earnings, ill)", "survival_lognormal"),
]  # fmt: skip


def schema(rows, *names):
    chosen = {name: COLUMNS[name] for name in names or COLUMNS}
    return dpb.Schema.from_dict({"rows": rows, "columns": chosen})


def table(n):
    rng = np.random.default_rng(n)
    return pd.DataFrame(
        {
            "earnings": rng.gamma(2, 10, n).clip(0, 80),
            "ill": rng.choice(["no", "yes"], n),
            "visits": rng.poisson(3, n),
            "party": rng.choice(["a", "b", "c"], n),
            "health": rng.choice(["bad", "fair", "good"], n),
            "wage": rng.choice([0.0, 3.0, 7.0], n),
            "rooms": 1 + rng.poisson(2, n),
        }
    )


def test_every_family_and_posterior_is_covered():
    assert {family for _, family in MODELS} == set(FAMILIES)
    named = {name for name, kind in MECHANISMS.items() if issubclass(kind, PosteriorMechanism)}
    without_claim = {"unweighted", "weighted", "weighted-e"}
    assert {m.name for m in POSTERIORS.values()} == named - without_claim | {"modips"}


def public(on, stages):
    """All that a posterior's fit knows besides the records."""
    # Of each part, in its shape. Equal records are a row with a count.
    private = {"n", "y", "X", "Z", "group", "weights", "anchor", "multiplicity"}
    entries = on.plain._data.entries
    points = on.blank.random_points(3, seed=1)["posterior"].data_vars
    return {
        "problem": on.problem(),
        "stages": [stage.to_dict() for stage in stages],
        "blank": on.blank._data.entries,
        "data": {k: v for k, v in entries.items() if k.partition("__")[0] not in private},
        "points": {str(k): v.to_numpy().tolist() for k, v in points.items()},
    }


# All mechanisms with few families, and all families with the two kinds of stages.
GIVEN = [
    (mechanism, outcome, family)
    for mechanism in POSTERIORS
    for outcome, family in MODELS
    if (family in ("normal", "bernoulli", "ordinal", "hurdle_poisson")
        or mechanism in ("anchored", "modips-censored"))
    and (mechanism != "beta-divergence" or FAMILIES[family].divergence)
]  # fmt: skip


@pytest.mark.parametrize(("mechanism", "outcome", "family"), GIVEN)
def test_programs_are_given_no_other_number(mechanism, outcome, family):
    mechanism = POSTERIORS[mechanism]
    found = []
    names = [name for name in re.findall(r"\w+", outcome) if name in COLUMNS]
    for n in (0, 20, 21, 400):
        synthesizer = dpb.Synthesizer(
            schema(300, *names), mechanism,
            dpb.Regression(f"{outcome} ~ 1", family), settings=SETTINGS,
        )  # fmt: skip
        on = BoundRecords(synthesizer.task(table(n)))
        found.append(public(on, mechanism.stages(on.problem())))
    assert found[0] == found[1] == found[2] == found[3]


def test_noisy_rows_are_paid_for():
    """A share of epsilon for add/remove, nothing where the number of records is the same."""
    parts = [
        dpb.Synthesizer(dpb.Schema.from_dict({"rows": rows, "columns": {"ill": COLUMNS["ill"]}}),
                        dpb.Laplace(2.0)).guarantee()
        for rows in (100, {"noisy": 0.25})
    ]  # fmt: skip
    assert (parts[0].epsilon, parts[0].epsilon_substitution) == (2.0, 4.0)
    assert parts[1].each.epsilon == 1.5
    assert parts[1].once.epsilon == 0.5
    assert (parts[1].epsilon, parts[1].epsilon_substitution) == (2.0, 3.0)
    assert "the number of rows" in parts[1].once_for


@pytest.mark.statistical
def test_noisy_rows_have_geometric_noise():
    """Mean and spread over 400 draws within 5 standard errors: wrong by chance once in 10^6."""
    found = []
    for seed in range(400):
        synthesizer = dpb.Synthesizer(
            schema({"noisy": 0.5}, "ill"), dpb.Laplace(1.0),
            settings=dpb.SamplerSettings(seed=seed),
        )  # fmt: skip
        found.append(synthesizer.task(table(50)).rows)
    sd = np.sqrt(2 * np.exp(-0.5)) / (1 - np.exp(-0.5))  # of the discrete Laplace at 0.5
    assert abs(np.mean(found) - 50) < 5 * sd / 20
    assert 0.75 * sd < np.std(found) < 1.3 * sd


def test_public_columns_show_the_number_of_records():
    columns = {**COLUMNS, "sex": {"type": "categorical", "levels": ["f", "m"], "public": True}}
    with pytest.raises(dpb.SchemaError, match="shows the number of records"):
        dpb.Schema.from_dict({"rows": 100, "columns": columns})
    fit = dpb.Synthesizer(dpb.Schema.from_dict({"columns": columns}), dpb.Laplace(1.0, bins=2)).fit(
        table(30).assign(sex="f")
    )
    with pytest.raises(dpb.GuaranteeError, match="as many rows as records"):
        fit.sample(rows=31, seed=1)


@pytest.mark.parametrize(
    "rows", [0, -1, 1.5, "many", {"noisy": 1}, {"noisy": "a"}, True, MOST_VALUES + 1]
)
def test_bad_rows(rows):
    with pytest.raises(dpb.SchemaError, match="rows"):
        schema(rows, "ill")


@pytest.mark.parametrize(
    ("rows", "datasets"), [(2**31 - 1, 1), (MOST_VALUES + 1, 1), (MOST_VALUES // 2 + 1, 2), (0, 1)]
)
def test_a_release_that_memory_cannot_hold_is_refused_before_anything_is_drawn(
    tmp_path, rows, datasets
):
    made = schema("public", "ill")
    synthesizer = dpb.Synthesizer(made, dpb.Laplace(1.0, bins=2))
    reason = "100,000,000"
    with pytest.raises(dpb.GuaranteeError, match=reason):
        dpb.Job((synthesizer,), tmp_path / "out", datasets, rows=rows)
    with pytest.raises(dpb.GuaranteeError, match=reason):
        synthesizer.fit(table(30)).sample(datasets, rows=rows)
    if 0 < rows <= MOST_VALUES:
        declared = dpb.Synthesizer(schema(rows, "ill"), dpb.Laplace(1.0, bins=2))
        with pytest.raises(dpb.GuaranteeError, match=reason):
            dpb.Job((declared,), tmp_path / "out", datasets)
    assert list(tmp_path.iterdir()) == []


def test_the_schema_file_says_rows(tmp_path):
    for rows in ("public", 40, {"noisy": 0.1}):
        made = schema(rows, "ill")
        made.to_toml(tmp_path / "schema.toml")
        assert dpb.Schema.from_toml(tmp_path / "schema.toml") == made
