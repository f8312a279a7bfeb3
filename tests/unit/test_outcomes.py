"""Families for real outcomes: cells, atoms, settings in the family's text, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpbayes as dpb
from dpbayes.mechanisms.predictive import Check, ecdf_difference
from dpbayes.mechanisms.survival import kaplan_meier, left_at
from dpbayes.plots.check_charts import check_panels
from dpbayes.stan.cells import NumberCells
from dpbayes.stan.families import FAMILIES, family_of
from dpbayes.stan.family_text import families_in, read_family
from dpbayes.stan.outcomes import decode_outcome

WAGE = dpb.Column("wage", "continuous", lower=0, upper=80, digits=2)
WITH_ATOMS = dpb.Column("wage", "continuous", lower=0, upper=80, digits=2, atoms=(0, 15, 25.5))


def test_cells_by_hand():
    cells = NumberCells.of(WITH_ATOMS, [0, 15, 40, 80])
    expected = [[0, 0], [0, 15], [15, 15], [15, 25.5], [25.5, 25.5], [25.5, 40], [40, 80]]
    np.testing.assert_array_equal(cells.ends, expected)
    assert cells.count == 7
    found = cells.numbers(np.array([0, 0.01, 14.99, 15, 15.01, 25.5, 26, 40, 79.9, 80]))
    assert found.tolist() == [1, 2, 2, 3, 4, 5, 6, 7, 7, 7]
    values = cells.values(np.array([0.5, 1.49, 1.5, 2.0, 2.49, 3.3, 7.5]))
    np.testing.assert_allclose(values, [0, 0, 0, 7.5, 14.85, 15, 80])
    assert cells.shares.sum() == pytest.approx(1)
    assert NumberCells.of(WAGE, 4).ends.tolist() == [[0, 20], [20, 40], [40, 60], [60, 80]]


def test_values_of_cells_and_back():
    cells = NumberCells.of(WITH_ATOMS, 30)
    rng = np.random.default_rng(1)
    numbers = rng.integers(1, cells.count + 1, 2000)
    values = cells.values(numbers + rng.uniform(-0.499, 0.499, 2000))
    np.testing.assert_array_equal(cells.numbers(values), numbers)


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        (1, "must be a number of bins from 2"), (True, "must be a number"), ("sqrt", "must be"),
        (10_000, "from 2 to 1,000"), ([0, 80], "with one or more between"),
        ([0, 30, 20, 80], "edges rise"), ([1, 40, 80], "from the lower bound, 0"),
        ([0, 15.001, 80], "closer to each other, or to an atom"), ([0, float("nan"), 80], "rise"),
        ([0, 10**400, 80], "rise"),
    ],
)  # fmt: skip
def test_bins_that_are_refused(bins, message):
    with pytest.raises(dpb.SchemaError, match=message):
        NumberCells.of(WITH_ATOMS, bins)


def test_settings_in_the_text():
    assert read_family(" beta ") == ("beta", {})
    assert read_family("histogram(bins = [0, 1.5, 3])") == ("histogram", {"bins": [0, 1.5, 3]})
    assert read_family('normal(sigma = "~ a + b")') == ("normal", {"sigma": "~ a + b"})
    assert families_in("beta,histogram(bins = [0, 1]),gamma") == [
        "beta", "histogram(bins = [0, 1])", "gamma",
    ]  # fmt: skip
    assert family_of("histogram(bins = 7)").settings == {"bins": 7}
    scaled = family_of('lognormal(sigma = "~ x")')
    assert (scaled.file, scaled.constants["logged"]) == ("location_scale", 1)
    assert FAMILIES["lognormal"].file == "lognormal"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is a name"), ("beta(", "is a name"), (None, "is a name"), ({}, "is a name"),
        ("histogram(20)", "settings are written name = value"),
        ("cauchy", "unknown family 'cauchy'"),
        ("gaussian", r"unknown family 'gaussian' \(here 'normal'\); families"),
        ("normall", r"unknown family 'normall' \(did you mean 'normal'\?\); families"),
        ("beta(bins = 3)", "no setting 'bins'; it has none"),
        ("normal(sigma = 2)", "must be a formula of the scale"),
        ("normal(sigma = 'y ~ x')", "without an outcome"),
        ("mixture(components = 1)", "whole number from 2 to 20"),
        ("mixture(components = 2.5)", "components = 2.5 must be a whole number"),
        ("mixture(components = true)", "must be a whole number"),
        ("normal(components = 2)", "no setting 'components'; it has sigma"),
    ],
)  # fmt: skip
def test_families_that_are_not_there(text, message):
    with pytest.raises((dpb.SchemaError, dpb.ProgramError), match=message):
        family_of(text)


def column(kind="continuous", **keys):
    bounds = {"lower": 0, "upper": 10} if kind in ("continuous", "count") else {}
    return dpb.Column("y", kind, **{**bounds, **keys})


@pytest.mark.parametrize(
    ("family", "declared", "message"),
    [
        ("beta", column(atoms=[0]), r"atoms \[0\].*histogram, semicontinuous_lognormal"),
        ("semicontinuous_beta", column(), r"has no atoms.*atoms = \[0\].*or use family beta"),
        ("semicontinuous_gamma", column(lower=-1, atoms=[0]), "models positive values"),
        ("hurdle_poisson", column("count", lower=1), "starts at 1.*zero_truncated_poisson"),
        ("zero_inflated_neg_binomial", column("count", lower=2), "for counts with zeros"),
        ("zero_truncated_poisson", column("count"), "may be 0.*Declare lower = 1"),
        ("hurdle_poisson", column(), "models a count outcome"),
        ("histogram", column("count"), "models a continuous outcome"),
        ("ordinal_probit", column("categorical", levels=["a", "b"]), "models a ordinal outcome"),
    ],
)
def test_columns_that_do_not_fit(family, declared, message):
    """From public facts alone, before any record is seen."""
    with pytest.raises(dpb.SchemaError, match=message):
        FAMILIES[family].check_column(declared)


def test_atoms_on_a_programs_scale():
    family = FAMILIES["semicontinuous_beta"]
    values = pd.Series([0.0, 40.0, 15.0, 80.0, 25.5, 0.004])
    y = family.encode(WITH_ATOMS, values)
    low, high = FAMILIES["beta"].support(WITH_ATOMS)
    # On an atom exactly, or inside the open ends; what is released as an atom counts as one.
    np.testing.assert_allclose(y, [0, 0.5, 15 / 80, high / 80, 25.5 / 80, 0], atol=1e-15)
    assert set(family.scaled_atoms(WITH_ATOMS)) == {y[0], y[2], y[4]}
    np.testing.assert_allclose(family.decode(WITH_ATOMS, y), [0, 40, 15, high, 25.5, 0])
    assert low > 0


@pytest.mark.parametrize(
    ("low", "upper", "expected"),
    [(0, 80, (1, None, 0.0)), (20, 80, (2, np.log(0.25), 0.0))],
)
def test_ends_of_a_truncated_lognormal(low, upper, expected):
    declared = dpb.Column("y", "continuous", lower=low, upper=upper)
    data = FAMILIES["truncated_lognormal"].stan_data(declared, None)
    assert data["truncated"] == expected[0]
    assert data["ends"][1] == pytest.approx(expected[2])
    if expected[1] is not None:
        assert data["ends"][0] == pytest.approx(expected[1])


def test_priors_of_parts():
    family = FAMILIES["hurdle_poisson"]
    visits = column("count")
    data = family.stan_data(visits, {"intercept__zero": (-1.0, 2.0)})
    assert data["prior_intercept__zero"] == (-1.0, 2.0)
    assert data["prior_intercept__count"] == (0.0, 5.0)
    with pytest.raises(dpb.SchemaError, match="has no prior 'intercept'"):
        family.stan_data(visits, {"intercept": (0, 1)})
    with pytest.raises(dpb.SchemaError, match="expected 2 finite"):
        family.stan_data(visits, {"intercept__zero": (0, -1)})


# Posterior predictive checks


def check_of(observed, draw, kind="count", replicates=20, **keys):
    rng = np.random.default_rng(2)
    declared = column(kind, **keys)
    drawn = [pd.DataFrame({"y": draw(rng)}) for _ in range(replicates)]
    return Check.of([declared], pd.DataFrame({"y": observed}), drawn)


def test_a_family_that_fits_and_one_that_does_not():
    """Residuals by the true model: the band is one of 1 %, and other marks are 4 sds wide."""
    rng = np.random.default_rng(1)
    y = rng.poisson(3, 400).clip(0, 10)
    right = check_of(y, lambda r: r.poisson(3, 400).clip(0, 10))
    assert right.misfits.empty
    assert stats.kstest(right.residuals["y"], "uniform").pvalue > 1e-4
    wrong = check_of(np.where(rng.random(400) < 0.3, 0, y), lambda r: r.poisson(2.1, 400))
    assert {"share of 0.0", "sd"} <= set(wrong.misfits["figure"])
    assert "residuals: largest ECDF difference" in set(wrong.misfits["figure"])
    assert "share of 0.0" in repr(wrong)


def test_checks_of_levels_and_atoms():
    levels = {"kind": "categorical", "levels": ["a", "b"]}
    y = pd.Series(["a"] * 90 + ["b"] * 10)
    found = check_of(y, lambda r: r.choice(["a", "b"], 100), **levels)
    assert found.misfits["figure"].tolist() == ["share of a", "share of b"]
    assert not found.residuals
    values = np.where(np.arange(100) < 40, 2.5, np.linspace(0.1, 9.9, 100))
    found = check_of(values, lambda r: r.uniform(0, 10, 100), "continuous", atoms=[2.5])
    row = found.table.set_index("figure").loc["share of 2.5"]
    assert (row["observed"], row["replicates"], row["fits"]) == (0.4, 0, False)


def test_the_distance_of_residuals():
    u = np.random.default_rng(4).random(300) ** 1.2
    assert ecdf_difference(u) == pytest.approx(stats.kstest(u, "uniform").statistic)


@pytest.mark.parametrize("observed", [np.zeros(5), np.full(1, 3), np.arange(7)])
def test_figures_of_few_records(observed):
    """All zeros, one record: a result."""
    found = check_of(observed, lambda r: r.poisson(1, len(observed)))
    figure = check_panels(found)
    assert len(figure.axes) == 2
    assert len(figure.axes[0].patches) > 0


def test_bars_of_scores_hold_as_many_values_each():
    """Each half point from 0 to 49.5 ten times: 100 values, in bars of three."""
    scores = np.repeat(np.arange(100) / 2, 10)
    found = check_of(scores, lambda r: scores, "continuous", lower=0, upper=50, replicates=1)
    bars = check_panels(found).axes[0].patches
    heights = [round(bar.get_height() ** 2) for bar in bars]
    assert heights[:33] == [30] * 33
    assert sum(heights) == 1000


def test_no_record_and_no_model():
    with pytest.raises(dpb.DataError, match="no record to check"):
        check_of(np.empty(0), lambda r: np.empty(0))
    schema = dpb.Schema.from_dict({"columns": {"ill": {"type": "binary", "levels": ["n", "y"]}}})
    fit = dpb.Synthesizer(schema, dpb.SmoothedHistogram(4.0)).fit(pd.DataFrame({"ill": ["n", "y"]}))
    with pytest.raises(dpb.GuaranteeError, match="draws from no model"):
        fit.check()


SURVIVAL = dpb.Schema.from_dict(
    {
        "columns": {
            "time": {"type": "continuous", "lower": 0, "upper": 4},
            "died": {"type": "binary", "levels": ["no", "yes"]},
            "health": {"type": "ordinal", "levels": ["bad", "good", "best"]},
            "sex": {"type": "binary", "levels": ["f", "m"], "public": True},
        }
    }
)


def test_censored_times_by_hand_and_back():
    """Below 0 without the event; 1 is the end, where neither was seen."""
    model = dpb.Regression("Surv(time, died) ~ sex", "survival_weibull").on(SURVIVAL)
    assert [column.name for column in model.outcomes] == ["time", "died"]
    records = pd.DataFrame(
        {
            "time": [1.0, 3.0, 4.0, 4.0, 0.0],
            "died": pd.Categorical(["yes", "no", "no", "yes", "no"], ["no", "yes"]),
        }
    )
    y = model.encoded(records)
    np.testing.assert_allclose(y[:4], [0.25, -0.75, -1, 1])
    assert -1e-5 < y[4] < 0  # an open end: half of the public precision inside it
    decoded = model.decoded(y)
    assert decoded["died"].tolist() == records["died"].tolist()
    np.testing.assert_allclose(decoded["time"], records["time"], atol=1e-4)
    low, high = model.ends()["y"]
    assert -1e-5 < low < 0
    assert high == 1


def durations(rng, n=300, rate=1.0):
    death, leaving = rng.exponential(1 / rate, n), rng.exponential(2.0, n)
    died = (death <= leaving) & (death < 4)
    time = np.minimum(np.minimum(death, leaving), 4).round(1)
    return pd.DataFrame({"time": time, "died": np.where(died, "yes", "no")})


def test_the_kaplan_meier_curve_is_that_of_statsmodels():
    from statsmodels.duration.survfunc import SurvfuncRight

    data = durations(np.random.default_rng(3))
    curve = kaplan_meier(SURVIVAL["time"], SURVIVAL["died"], data)
    theirs = SurvfuncRight(data["time"], (data["died"] == "yes").astype(int))
    np.testing.assert_allclose(curve[0][1:], theirs.surv_times)
    np.testing.assert_allclose(curve[1][1:], theirs.surv_prob)
    np.testing.assert_allclose(left_at(curve, np.array([0.0, 0.05, 99])), [
        theirs.surv_prob[0] if theirs.surv_times[0] == 0 else 1,
        theirs.surv_prob[0] if theirs.surv_times[0] <= 0.05 else 1, theirs.surv_prob[-1],
    ])  # fmt: skip


def test_a_check_of_durations():
    """Of the true model and of one with half the rate; marks are 4 sds wide."""
    rng = np.random.default_rng(5)
    columns, events = [SURVIVAL["time"], SURVIVAL["died"]], {"time": SURVIVAL["died"]}
    observed = durations(rng)
    right = Check.of(columns, observed, [durations(rng) for _ in range(20)], events)
    wrong = Check.of(columns, observed, [durations(rng, rate=0.5) for _ in range(20)], events)
    for found, marked in ((right, 0), (wrong, 3)):
        rows = found.table["figure"].str.startswith("without died after")
        assert rows.sum() == 3
        assert (~found.table["fits"][rows]).sum() == marked
    panel = check_panels(right).axes[0]
    assert len(panel.lines) == 21
    assert panel.get_ylabel() == "share without died (Kaplan-Meier)"
    nobody = observed.assign(died="no")
    none = Check.of(columns, nobody, [nobody], events)
    assert len(check_panels(none).axes) == 4


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ("time ~ sex", "survival_weibull", r"write Surv\(time, event\).*or use family weibull"),
        ("Surv(time, died) ~ sex", "weibull", "is for the families survival_exponential, surv"),
        ("Surv(time, health) ~ sex", "survival_weibull", "'health' is ordinal.*takes a binary"),
        ("Surv(time, sex) ~ 1", "survival_weibull", "'sex' is public and needs no synthesis"),
        ("Surv(time) ~ sex", "survival_weibull", r"or Surv\(time, event\) of two"),
        ("Surv(time, died, sex) ~ 1", "survival_weibull", r"or Surv\(time, event\) of two"),
        ("Surv(time, died == 1) ~ 1", "survival_weibull", r"or Surv\(time, event\) of two"),
        ("Surv(died, died) ~ sex", "survival_weibull", "models a continuous outcome"),
        ("Surv(time, gone) ~ sex", "survival_weibull", "gone"),
        ("log(time) ~ sex", "lognormal", "choose a family instead"),
    ],
)
def test_left_sides_that_do_not_fit(formula, family, message):
    with pytest.raises(dpb.SchemaError, match=message):
        dpb.Regression(formula, family).on(SURVIVAL)


def test_a_sequence_draws_time_and_event_together():
    health = dpb.Regression("health ~ time + died", "ordinal")
    both = dpb.Regression("Surv(time, died) ~ sex", "survival_weibull")
    model = dpb.Sequence([both, health]).on(SURVIVAL)
    assert [column.name for column in model.outcomes] == ["time", "died", "health"]
    assert model.proof.proved
    with pytest.raises(dpb.SchemaError, match="'died' has two models"):
        dpb.Sequence([both, dpb.Regression("died ~ sex", "bernoulli"), health]).on(SURVIVAL)
    with pytest.raises(dpb.SchemaError, match="is drawn after it"):
        dpb.Sequence([health, both]).on(SURVIVAL)
    itself = dpb.Regression("Surv(time, died) ~ died", "survival_weibull")
    with pytest.raises(dpb.SchemaError, match="covariate of itself"):
        dpb.Sequence([itself, health]).on(SURVIVAL)


@pytest.mark.parametrize(
    ("column", "values", "released"),
    [
        (
            dpb.Column("x", "binary", levels=("no", "yes")),
            [-1, 0, 1, 2],
            ["no", "no", "yes", "yes"],
        ),
        (dpb.Column("x", "ordinal", levels=("a", "b")), [0, 1, 2, np.nan], ["a", "a", "b", "a"]),
        (dpb.Column("x", "count", upper=9), [np.nan, -3, np.inf, 4], [0, 0, 9, 4]),
        (dpb.Column("x", "count"), [np.nan, 2**60, np.inf, 1], [0, 2**53, 2**53, 1]),
        (
            dpb.Column("x", "continuous", lower=2, upper=9),
            [np.nan, -np.inf, 3.5, 10],
            [2, 2, 3.5, 9],
        ),
    ],
)
def test_whatever_a_program_draws_is_a_value_of_the_column(column, values, released):
    assert decode_outcome(column, np.array(values)).tolist() == released
