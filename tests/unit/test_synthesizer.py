"""The flow from records to release, on recorded fits: no sampler, exact expectations."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.recorded import RecordedBinding
from dpbayes.privacy.assumptions import CUSTOM_PROGRAM, PROVED_PROGRAM
from dpbayes.privacy.guarantee import UNCHECKED_CHAINS
from dpbayes.report.tables import comparison_table
from tests.conftest import make_records
from tests.programs import GOOD, UNPROVED, write

N = 60
RNG = np.random.default_rng(5)
BEFORE = RNG.normal(-1, 1, (2000, N))
AFTER = RNG.normal(-1, 1, (2000, N))
# All that a guarantee says. None of it is computed from records; a new entry has to be judged.
PUBLIC = {
    "mechanism", "basis", "asked", "epsilon", "epsilon_substitution", "delta", "adjacency",
    "composition", "datasets", "draws", "epsilon_each", "epsilon_once", "weights", "assumptions",
    "statement", "holds_for", "rows", "rho", "rho_substitution",
}  # fmt: skip


def build(schema, engine, mechanism, formula="y ~ age", **options):
    model = dpb.Regression(formula, "beta")
    return dpb.Synthesizer(schema, mechanism, model, engine=engine, **options)


@pytest.fixture
def fitted(schema, records, recorded_engine):
    def fit(mechanism):
        return build(schema, recorded_engine(BEFORE, AFTER), mechanism).fit(records)

    return fit


def test_unweighted_uses_one_fit(fitted):
    fit = fitted(dpb.Unweighted()).fitted
    np.testing.assert_allclose(fit.lipschitz, np.abs(BEFORE).max(axis=0))
    assert fit.lipschitz_bound == fit.lipschitz_bound_unweighted == np.abs(BEFORE).max()
    assert fit.epsilon_local == 2 * fit.lipschitz_bound
    assert (fit.weights == 1).all()


def test_weighted_measures_risk_before_and_bounds_after(fitted):
    fit = fitted(dpb.Weighted()).fitted
    f = np.abs(BEFORE).max(axis=0)
    alpha = 1 - (f - f.min()) / (f.max() - f.min())
    np.testing.assert_allclose(fit.weights, alpha)
    np.testing.assert_allclose(fit.lipschitz_unweighted, f)
    np.testing.assert_allclose(fit.lipschitz, np.abs(alpha * AFTER).max(axis=0))
    assert (fit.n_censored, fit.n_truncated) == (0, 0)


def test_weighted_e_counts_truncated_records(fitted):
    epsilon = 2.0
    fit, plain = (
        fitted(m).fitted for m in (dpb.WeightedE(epsilon, adjacency="add-remove"), dpb.Weighted())
    )
    over = plain.weights * np.abs(BEFORE).max(axis=0) > epsilon / 2
    assert 0 < fit.n_truncated == over.sum() < N
    assert (fit.weights[over] == 0).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_censored_counts_records_that_leave_the_window(fitted, weighted):
    fit = fitted(
        (dpb.CensoredWeighted if weighted else dpb.Censored)(9.0, adjacency="add-remove")
    ).fitted
    outside = (np.abs(fit.weights * AFTER) > 4.5).any(axis=0)
    assert 0 < fit.n_censored == outside.sum() < N
    assert fit.lipschitz_bound == 4.5
    assert fit.epsilon_local == 9.0


@pytest.fixture
def counted(monkeypatch):
    """Fits that were sampled, in order: False for the unweighted one, True for one with changes."""
    fits = []
    sample = RecordedBinding.sample
    monkeypatch.setattr(
        RecordedBinding, "sample", lambda self, *a: fits.append(self._refit) or sample(self, *a)
    )
    return fits


def test_a_refit_under_another_mechanism_shares_the_unweighted_fit(
    schema, records, recorded_engine, counted
):
    first = build(schema, recorded_engine(BEFORE, AFTER, AFTER), dpb.Weighted())
    a = first.fit(records)
    b = first.with_mechanism(dpb.Censored(4.0, adjacency="add-remove")).refit(a)
    assert a.fitted.unweighted is b.fitted.unweighted
    assert counted == [False, True, True]
    assert (b.mechanism, b.guarantee.epsilon) == (dpb.Censored(4.0, adjacency="add-remove"), 4.0)
    assert b.task.table is a.task.table
    # Fits hold the unweighted fit, not the synthesizer: other records never see these ones'.
    changed = records.assign(y=records["y"] * 0.99)
    with pytest.raises(dpb.EngineError, match=r"2 refit\(s\) recorded, one more asked for"):
        first.fit(changed)
    assert counted == [False, True, True, False, True]


def test_a_refit_draws_by_other_random_numbers(fitted, schema, records):
    """Unless a seed is set, which studies do: the mechanisms' draws are paid for separately."""
    fit = fitted(dpb.Weighted())
    again = build(schema, fit.task.engine, dpb.Unweighted())
    with pytest.raises(dpb.GuaranteeError, match="differs in its mechanism only"):
        again.refit(fit)  # another model object, although alike: nothing is compared by guess
    same = dpb.Synthesizer(schema, dpb.Unweighted(), fit.task.model, engine=fit.task.engine)
    assert same.refit(fit).fitted.seed != fit.fitted.seed


@pytest.mark.parametrize(
    "other",
    [
        lambda s: s.with_settings(dpb.SamplerSettings(draws=50)),
        lambda s: s.with_engine("embedded"),
        lambda s: build(s.schema, s.engine, s.mechanism, "y ~ sex"),
        lambda s: dpb.Synthesizer(s.schema, dpb.Laplace(1.0, adjacency="add-remove")),
    ],
)
def test_a_refit_of_another_synthesizers_fit_is_refused(schema, records, recorded_engine, other):
    synthesizer = build(schema, recorded_engine(BEFORE, AFTER), dpb.Unweighted())
    fit = synthesizer.fit(records)
    with pytest.raises(dpb.GuaranteeError, match="refit takes a fit by a synthesizer that differs"):
        other(synthesizer).refit(fit)


def test_no_unweighted_fit_where_nothing_needs_it(schema, records, recorded_engine, counted):
    fit = build(
        schema, recorded_engine(BEFORE, AFTER), dpb.Censored(4.0, adjacency="add-remove")
    ).fit(records)
    assert fit.fitted.converged
    fit.sample(seed=1)
    assert counted == [True]
    found = fit.fitted.risk_unweighted.sensitivity
    np.testing.assert_array_equal(found, np.abs(BEFORE).max(axis=0))
    assert counted == [True, False]


def test_release_holds_public_columns_and_the_outcome(fitted, records, schema):
    release = fitted(dpb.Censored(1.0, adjacency="add-remove")).sample(datasets=3, seed=1)
    assert release.guarantee.datasets == 3
    assert release.guarantee.epsilon == 3.0
    assert set(release.guarantee.to_dict()) == PUBLIC
    for data in release.datasets:
        assert list(data.columns) == ["y", "age", "sex", "region"]
        assert len(data) == N
        assert data["y"].between(0, 10).all()
        assert sorted(data["age"]) == sorted(records["age"])
        assert data["age"].tolist() != records["age"].tolist()  # shuffled
    assert not release.datasets[0].equals(release.datasets[1])


def test_covariates_stay_with_their_synthetic_outcome(schema, records, recorded_engine):
    """Shuffling moves whole rows: y_rep of record i is released with the covariates of record i."""
    engine = recorded_engine(BEFORE, AFTER)
    fit = build(schema, engine, dpb.Censored(1.0, adjacency="add-remove")).fit(records)
    data = fit.sample(seed=3).datasets[0]
    stored = engine.recordings[1]["posterior_predictive"]["y_rep"].to_numpy().reshape(-1, N)
    index = np.random.default_rng(3).choice(2000, size=1, replace=False)[0]
    y = (10 * stored[index]).round(5)  # the public precision of bounds 0 and 10
    expected = set(zip(y, records["age"], strict=True))
    assert set(zip(data["y"], data["age"], strict=True)) == expected


@pytest.mark.parametrize("datasets", [0, -1, 1.5, True, "2"])
def test_bad_number_of_datasets(fitted, datasets):
    with pytest.raises(dpb.GuaranteeError, match=r"datasets = .* must be a whole number"):
        fitted(dpb.Censored(1.0, adjacency="add-remove")).sample(datasets)


def test_more_datasets_than_draws(fitted):
    with pytest.raises(dpb.GuaranteeError, match="more than the 4000 posterior draws"):
        fitted(dpb.Censored(1.0, adjacency="add-remove")).sample(4001)


def test_bad_construction(schema):
    beta = dpb.Regression("y ~ 1", "beta")
    for mechanism, model, engine, error, message in (
        (dpb.Censored(1, adjacency="add-remove"), None, "embedded", dpb.GuaranteeError,
         "'censored' draws from a posterior and needs a model"),
        (dpb.Laplace(1), beta, "embedded", dpb.GuaranteeError, "leave out the model"),
        (dpb.Censored(1), dpb.Regression("y ~ 1", "betta"), "embedded", dpb.ProgramError,
         "unknown family 'betta'"),
        (dpb.Censored(1), dpb.Regression("y ~ 1", "poisson"), "embedded", dpb.SchemaError,
         "models a count outcome"),
        (dpb.Censored(1), dpb.Regression("y ~ 1", "beta", {"scale": 1}), "embedded",
         dpb.SchemaError, "has no prior 'scale'"),
        (dpb.Censored(1), beta, "jags", dpb.EngineError, "unknown engine 'jags'"),
        (dpb.Censored(1), beta, "recorded", dpb.EngineError, "pass RecordedEngine"),
        (dpb.Censored(1), dpb.Program("none.stan", "y ~ 1"), "embedded", dpb.ProgramError,
         "does not exist"),
        ("censored", beta, "embedded", dpb.GuaranteeError, "expected a mechanism such as"),
        (dpb.Censored(1), "y ~ 1", "embedded", dpb.SchemaError, "a model such as Regression"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            dpb.Synthesizer(schema, mechanism, model, engine=engine)
    with pytest.raises(dpb.SchemaError, match=r"read by Schema.from_toml"):
        dpb.Synthesizer("people.toml", dpb.Marginals(1))
    with pytest.raises(dpb.SchemaError, match=r"'y' is of type dict.*read by Schema.from_dict"):
        dpb.Schema({"y": {"type": "count", "upper": 3}})


def test_a_program_that_nothing_proves_needs_a_word_for_a_strict_claim(schema, tmp_path):
    model = dpb.Program(write(tmp_path, UNPROVED), "y ~ 1")
    for mechanism in (
        dpb.Censored(1, adjacency="add-remove"),
        dpb.Anchored(1, adjacency="add-remove"),
        dpb.CensoredWeighted(1, weights=dpb.ConstantWeights(0.4), adjacency="add-remove"),
    ):
        with pytest.raises(dpb.ProgramError, match=r"not proved .* line 21: .*allow_unproved=True"):
            dpb.Synthesizer(schema, mechanism, model)
        given = dpb.Synthesizer(schema, mechanism, model, allow_unproved=True)
        assert CUSTOM_PROGRAM in given.guarantee().assumptions
        with pytest.raises(dpb.ProgramError, match="not proved"):
            replace(given, allow_unproved=False)
        assert given.with_mechanism(dpb.Weighted()).with_mechanism(mechanism) == given
    claims_nothing = dpb.Synthesizer(schema, dpb.Weighted(), model)
    with pytest.raises(dpb.ProgramError, match="not proved"):
        claims_nothing.with_mechanism(dpb.Censored(1, adjacency="add-remove"))
    proved = dpb.Program(write(tmp_path, GOOD), "y ~ 1")
    assert (
        PROVED_PROGRAM
        in dpb.Synthesizer(schema, dpb.Censored(1, adjacency="add-remove"), proved)
        .guarantee()
        .assumptions
    )


def test_constants_of_a_program_may_be_a_file(schema, tmp_path):
    (tmp_path / "mine.stan").write_text(GOOD)
    (tmp_path / "constants.json").write_text('{"scale": 2.5}')
    for constants in ({"scale": 2.5}, tmp_path / "constants.json"):
        program = dpb.Program(tmp_path / "mine.stan", "y ~ 1", constants)
        model = dpb.Synthesizer(schema, dpb.Censored(1, adjacency="add-remove"), program).model
        assert dict(model.constants) == {"scale": 2.5}
    missing = dpb.Program(tmp_path / "mine.stan", "y ~ 1", tmp_path / "none.json")
    with pytest.raises(dpb.DataError, match="does not exist"):
        dpb.Synthesizer(schema, dpb.Censored(1, adjacency="add-remove"), missing)


@pytest.mark.parametrize(
    "settings",
    [{"chains": 1}, {"chains": 2.5}, {"draws": 0}, {"warmup": -1}, {"seed": -1},
     {"adapt_delta": 1.0}, {"parallel_chains": 0}, {"metric": "unit"}, {"threads_per_chain": 0}],
)  # fmt: skip
def test_bad_sampler_settings(settings):
    with pytest.raises(dpb.EngineError, match=next(iter(settings))):
        dpb.SamplerSettings(**settings)


def test_a_constant_outcome_is_a_table_like_others(schema, records, recorded_engine):
    fit = build(
        schema, recorded_engine(BEFORE, AFTER), dpb.Censored(1, adjacency="add-remove")
    ).fit(records.assign(y=5.0))
    assert len(fit.sample(seed=1).datasets[0]) == N


def test_non_convergence_is_refused_unless_overridden(schema, records, recorded_engine):
    def engine():
        made = recorded_engine(BEFORE, AFTER)
        bad = made.recordings[1]["posterior"]["intercept"]
        bad[0] += 3.0  # one chain elsewhere
        return made

    with pytest.raises(
        dpb.ConvergenceError, match=r"censored fit has not converged: R-hat of inte"
    ):
        build(schema, engine(), dpb.Censored(1, adjacency="add-remove")).fit(records)
    fit = build(schema, engine(), dpb.Censored(1, adjacency="add-remove")).fit(
        records, allow_nonconvergence=True
    )
    assert not fit.fitted.converged
    assert UNCHECKED_CHAINS in fit.sample().guarantee.assumptions
    # The words follow what was asked for, and not what the chains did.
    good = build(schema, recorded_engine(BEFORE, AFTER), dpb.Censored(1, adjacency="add-remove"))
    assert good.fit(records, allow_nonconvergence=True).guarantee == fit.guarantee
    assert UNCHECKED_CHAINS not in good.guarantee().assumptions


def test_recorded_engine_refuses_other_records(schema, recorded_engine):
    with pytest.raises(dpb.EngineError, match="log_lik of 60 records, the data have 50"):
        build(schema, recorded_engine(BEFORE), dpb.Unweighted()).fit(make_records(50))


def test_comparison_table_has_the_layout_of_the_paper(fitted):
    fits = {
        m.name: fitted(m) for m in (dpb.Unweighted(), dpb.Censored(4.0, adjacency="add-remove"))
    }
    table = comparison_table(fits, {n: f.sample(seed=1, accept="none") for n, f in fits.items()})
    assert list(table.columns) == ["Data", "unweighted", "censored"]
    assert list(table.index) == [
        "Lipschitz", "ε = 2Δ", "max-ECDF", "avg-ECDF", "Mean", "Median", "15th Q", "90th Q"
    ]  # fmt: skip
    assert table.loc["Lipschitz", "censored"] == 2.0
    assert np.isnan(table.loc["Lipschitz", "Data"])


def test_a_model_of_another_schema_is_refused():
    """Else a column that was public there would be a covariate here, where it is confidential."""
    columns = {
        name: {"type": "continuous", "lower": 0, "upper": 100, "public": public}
        for name, public in (("y", False), ("x", True))
    }
    before = dpb.Schema.from_dict({"columns": columns})
    now = dpb.Schema.from_dict(
        {"rows": "public", "columns": {**columns, "x": {**columns["x"], "public": False}}}
    )
    old = dpb.Synthesizer(before, dpb.Anchored(1), dpb.Regression("y ~ x", "normal"))
    for mechanism in (dpb.Anchored(1), dpb.Score(1)):
        with pytest.raises(dpb.GuaranteeError, match="made for other columns or rules"):
            dpb.Synthesizer(now, mechanism, old.model)
        with pytest.raises(dpb.GuaranteeError, match="made for other columns or rules"):
            replace(old, schema=now, mechanism=mechanism)
        assert dpb.Synthesizer(before, mechanism, old.model).model is old.model


def test_a_release_is_filled_by_the_fit_that_it_was_made_for():
    schema = dpb.Schema.from_dict({"rows": "public", "columns": {"a": {"type": "binary"}}})
    records = pd.DataFrame({"a": [0, 1] * 20})
    dear, cheap = (dpb.Synthesizer(schema, dpb.Laplace(e)).fit(records) for e in (50, 0.01))
    with pytest.raises(dpb.GuaranteeError, match="made for another fit"):
        dear.filled(cheap.empty_release())
    assert dear.filled(dear.empty_release(2)).guarantee.datasets == 2


def test_a_validated_table_is_taken_as_it_is_and_that_of_another_schema_is_not():
    schema = dpb.Schema({"a": dpb.Column("a", "binary", levels=("no", "yes"))}, rows="public")
    records = pd.DataFrame({"a": ["no", "yes", "no"], "undeclared": [1, 2, 3]})
    synthesizer = dpb.Synthesizer(schema, dpb.Laplace(epsilon=1, adjacency="add-remove"))
    table = synthesizer.table(records)
    assert synthesizer.table(table) is table
    assert synthesizer.fit(table).task.table is table
    assert list(table.original) == ["a", "undeclared"]
    other = dpb.Schema({"a": dpb.Column("a", "binary", levels=("yes", "no"))}, rows="public")
    with pytest.raises(dpb.DataError, match="another schema"):
        dpb.Synthesizer(other, dpb.Laplace(epsilon=1, adjacency="add-remove")).fit(table)
    declared = dpb.Schema.from_dict({**schema.to_dict(), "rows": 3})
    assert (
        dpb.Synthesizer(declared, dpb.Laplace(epsilon=1, adjacency="add-remove")).table(table)
        is table
    )
