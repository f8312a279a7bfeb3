"""Fits of sequences: every mechanism, what is drawn, what is released, and the audit."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import dpbayes as dpb
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.engines.draws import make_draws, stacked
from dpbayes.engines.recorded import RecordedEngine
from dpbayes.evaluate.audit import audit
from dpbayes.mechanisms.posterior.records import BoundRecords

N = 150
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "sex": {"type": "binary", "levels": ["f", "m"], "public": True},
            "age": {"type": "continuous", "lower": 16, "upper": 90, "digits": 0},
            "smoke": {"type": "binary", "levels": ["no", "yes"]},
            "region": {"type": "categorical", "levels": ["a", "b", "c"]},
        }
    }
)
LEVELS = dpb.Schema({n: replace(c, public=False) for n, c in SCHEMA.columns.items() if n != "age"})
SEQUENCE = dpb.Sequence(
    [
        dpb.Regression("age ~ sex", "normal"),
        dpb.Regression("smoke ~ age + sex", "bernoulli"),
        dpb.Regression("region ~ age + (1 | smoke)", "categorical"),
    ]
)
OF_LEVELS = dpb.Sequence(
    [
        dpb.Regression("smoke ~ 1", "bernoulli"),
        dpb.Regression("sex ~ smoke", "bernoulli"),
        dpb.Regression("region ~ sex", "categorical"),
    ]
)
SETTINGS = dpb.SamplerSettings(chains=2, warmup=150, draws=40, seed=1)
MECHANISMS = [
    dpb.Unweighted(), dpb.Weighted(), dpb.WeightedE(20), dpb.Censored(20), dpb.CensoredWeighted(20),
    dpb.Anchored(5), dpb.Anchored(5, "none"), dpb.BetaDivergence(5),
]  # fmt: skip


def records(n=N, seed=5):
    rng = np.random.default_rng(seed)
    age = rng.integers(16, 91, n)
    smoke = rng.uniform(size=n) < special.expit((age - 50) / 10)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "age": age,
            "smoke": np.where(smoke, "yes", "no"),
            "region": rng.choice(["a", "b", "c"], n),
        }
    )


@pytest.fixture(scope="module")
def plain():
    """The unweighted fit of both sequences, which mechanisms share."""
    found = {}
    for name, schema, sequence in (("all", SCHEMA, SEQUENCE), ("levels", LEVELS, OF_LEVELS)):
        base = dpb.Synthesizer(schema, dpb.Unweighted(), sequence, settings=SETTINGS)
        found[name] = base, base.fit(records(), allow_nonconvergence=True)
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: f"{m.name}-{m!r:.30}")
def test_every_mechanism_of_posteriors_takes_a_sequence(plain, mechanism):
    scored = isinstance(mechanism, dpb.BetaDivergence)
    base, fitted = plain["levels" if scored else "all"]
    fit = base.with_mechanism(mechanism).refit(fitted)
    assert fit.synthesised == tuple(fit.task.model.outcomes)
    release = fit.sample(2, accept="none", seed=2)
    for data in release.datasets:
        assert list(data.columns) == list(base.schema.columns)
        base.schema.validate(data)
        assert len(data) == N
    assert release.guarantee == fit.guarantee.for_datasets(2)
    again = fit.sample(2, accept="none", seed=2)
    pd.testing.assert_frame_equal(release.datasets[1], again.datasets[1])
    low, high = fit.fitted.window
    if np.isfinite(high - low):
        # The window is of the record, not of each of its columns.
        terms = fit.fitted.lipschitz
        assert (terms <= max(-low, high) + 1e-12).all()
        assert high - low <= mechanism.epsilon + 1e-12
    assert set(fit.findings().summary) > {"formula", "lipschitz_bound"}


def test_a_divergence_needs_levels_or_counts_in_every_column(plain):
    base, fitted = plain["all"]
    with pytest.raises(dpb.GuaranteeError, match="needs an outcome with levels or a count"):
        base.with_mechanism(dpb.BetaDivergence(5)).refit(fitted)


def test_the_claim_of_scores_holds_whatever_epsilon(plain):
    """A large epsilon is not used up; then the claim is the window, which does not grow with q."""
    for epsilon in (0.5, 40.0):
        mechanism = dpb.BetaDivergence(epsilon)
        base, fitted = plain["levels"]
        fit = base.with_mechanism(mechanism).refit(fitted)
        (stage,) = fit.fitted.stages
        assert stage.window[1] - stage.window[0] == pytest.approx(mechanism.guarantee().epsilon)
        assert stage.weights.alpha <= 1 / 3


def test_the_log_likelihood_of_a_record_by_scipy(plain):
    """Of all columns, from draws and the confidential covariates."""
    fit = plain["all"][1]
    valid, model = fit.records, fit.task.model
    age, smoke, region = (column.formula for column in model.columns)

    def draws(name):
        return stacked(fit.fitted.draws, name)

    found = np.stack(list(fit.fitted.bound_records.log_lik(fit.fitted.draws)))
    y = (valid["age"].to_numpy(float) - 16) / 74
    code = valid["smoke"].cat.codes.to_numpy()
    for s in (0, 17, 79):
        eta = draws("intercept__age")[s] + age.design(valid).X @ draws("coefficient__age")[s]
        f = stats.norm(eta, draws("sigma__age")[s]).logpdf(y)
        eta = draws("intercept__smoke")[s] + smoke.design(valid).X @ draws("coefficient__smoke")[s]
        f += stats.bernoulli(special.expit(eta)).logpmf(code)
        eta = (
            draws("intercept__region")[s] + region.design(valid).X @ draws("coefficient__region")[s]
        )
        eta = np.column_stack([np.zeros(N), eta + draws("group_effect__region")[s][code]])
        f += special.log_softmax(eta, axis=1)[np.arange(N), valid["region"].cat.codes]
        np.testing.assert_allclose(found[s], f, rtol=1e-10)


def test_columns_are_drawn_given_what_was_drawn():
    """At one point of parameters, exact: smokers are those above 50, regions those of smokers.

    Every relation is a step, so no row can differ; drawn ages are none of the records'.
    """
    sequence = dpb.Sequence(
        [
            dpb.Regression("age ~ 1", "normal"),
            dpb.Regression("smoke ~ I(age > 50)", "bernoulli"),
            dpb.Regression("region ~ smoke", "categorical"),
        ]
    )
    base = dpb.Synthesizer(SCHEMA, dpb.Unweighted(), sequence, settings=SETTINGS)
    on = BoundRecords(base.task(records().assign(age=20, smoke="no", region="a")))
    model = on.model
    point = {
        str(k): stacked(on.plain.random_points(1, 1), str(k))
        for k in on.plain.random_points(1, 1)["posterior"].data_vars
    }

    def steep(column, slopes, at_zero):
        """Intercept and coefficients on the standardised scale of slopes in own units."""
        formula = model.columns[column].formula
        return at_zero + formula.centre @ slopes, np.linalg.solve(formula.basis, slopes)

    intercept, coefficient = steep(1, np.array([200.0]), -100.0)
    point["intercept__smoke"][:] = intercept
    point["coefficient__smoke"][:] = coefficient
    slopes = np.array([[200.0, 0.0]])
    intercept, coefficient = steep(2, slopes, np.array([-100.0, -500.0]))
    point["intercept__region"][:], point["coefficient__region"][:] = intercept, coefficient
    point["intercept__age"][:], point["log_sigma__age"][:] = 0.5, np.log(0.3)
    drawn = make_draws({name: value[None] for name, value in point.items()})
    rng = np.random.default_rng(3)

    def replicate(changes):
        return on.blank.rebind(**changes).y_rep(drawn, 0, int(rng.integers(1000)))

    found = model.draw(model.public(on.task.records, N), replicate)
    assert found["age"].nunique() > 20
    assert ((found["age"] > 50) == (found["smoke"] == "yes")).all()
    assert ((found["smoke"] == "yes") == (found["region"] == "b")).all()
    assert 10 < (found["smoke"] == "yes").sum() < N - 10


def test_what_is_released_holds_no_record(plain):
    """The binding that rows are drawn from is one and the same for other records."""
    base, fitted = plain["all"]
    blank = fitted.fitted.bound_records.blank
    other = base.task(records(seed=6).assign(sex=records()["sex"]))
    assert BoundRecords(other).blank.identity() == blank.identity()


def test_the_program_is_released_with_the_rows(plain):
    fit = plain["all"][1]
    unseeded = replace(fit, task=replace(fit.task, settings=replace(fit.task.settings, seed=None)))
    files = unseeded.sample(accept="none").files()
    assert set(files) == {"synthetic_1.csv", "sequence.stan", "guarantee.json"}
    statement = json.loads(files["guarantee.json"])
    assert (
        dpb.StanProgram("sequence", *[files["sequence.stan"].decode()] * 2).sha256
        == (statement["program"]["sha256"])
    )
    assert [m["formula"] for m in statement["settings"]["model"]] == [
        "age ~ sex", "smoke ~ age + sex", "region ~ age + (1 | smoke)",
    ]  # fmt: skip
    assert statement["settings"]["proved"] is True


def test_coefficients_of_a_column(plain):
    fitted = plain["all"][1].fitted
    found = fitted.coefficients("smoke")
    assert list(found.index) == ["Intercept", "age", "sex[T.m]"]
    assert 0.03 < found["mean"]["age"] < 0.2
    with pytest.raises(dpb.SchemaError, match="must be one of age, smoke, region"):
        fitted.coefficients()
    with pytest.raises(dpb.SchemaError, match="must be one of age, smoke, region"):
        fitted.coefficients("sex")


def test_rows_of_any_number_and_none_public():
    schema = replace(
        LEVELS,
        rows=dpb.Schema.from_dict(
            {"columns": {"x": {"type": "binary", "levels": [0, 1]}}, "rows": 100}
        ).rows,
    )
    base = dpb.Synthesizer(schema, dpb.Anchored(4), OF_LEVELS, settings=SETTINGS)
    fit = base.fit(records(), allow_nonconvergence=True)
    assert len(fit.sample(seed=1).datasets[0]) == 100
    assert len(fit.sample(seed=1, rows=333).datasets[0]) == 333


def test_an_audit_of_all_columns(monkeypatch):
    """Neighbours that differ in both columns, at public points, exactly."""
    monkeypatch.setattr("dpbayes.evaluate.audit.POINTS", 200)
    kept = {n: c for n, c in LEVELS.columns.items() if n != "region"}
    sequence = dpb.Sequence(
        [dpb.Regression("smoke ~ 1", "bernoulli"), dpb.Regression("sex ~ smoke", "bernoulli")]
    )
    engine = CandidatesEngine(200)
    base = dpb.Synthesizer(dpb.Schema(kept), dpb.Censored(2), sequence, engine=engine)
    fit = base.with_settings(SETTINGS).fit(records(40))
    base.schema.validate(fit.sample(seed=3).datasets[0])
    found = audit(fit, candidates=6)
    assert not found.violated
    assert found.add_remove > 0.3 * fit.guarantee.epsilon


def test_recorded_draws_are_of_one_column(plain):
    fit = plain["all"][1]
    draws = fit.fitted.draws
    recording = draws.assign(
        {"log_likelihood": draws["posterior"], "posterior_predictive": draws["posterior"]}
    )
    engine = RecordedEngine(recording)
    base = dpb.Synthesizer(SCHEMA, dpb.Unweighted(), SEQUENCE, engine=engine, settings=SETTINGS)
    with pytest.raises(dpb.EngineError, match="no sequence of them"):
        base.fit(records())
