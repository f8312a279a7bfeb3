"""Posteriors given records with sampling weights."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.evaluate.audit import audit
from dpbayes.inference.coverage import uncovered
from dpbayes.mechanisms.posterior.records import BoundRecords
from tests.programs import GOOD, write

SETTINGS = dpb.SamplerSettings(chains=2, warmup=300, draws=600, seed=1)
COLUMNS = {
    "pay": {"type": "continuous", "lower": 0, "upper": 100},
    "ill": {"type": "binary", "levels": ["no", "yes"]},
}
LARGEST, N = 80.0, 1_200
OWN = (  # a normal outcome in its own units
    GOOD.replace("normal(0, 2)", "normal(50, 50)")
    .replace("square(y - mu)", "square((y - mu) / 20) - log(20)")
    .replace("rep_vector(mu, n), 1", "rep_vector(mu, n), 20")
)
PAY, ILL = dpb.Regression("pay ~ 1", "normal"), dpb.Regression("ill ~ 1", "bernoulli")
BOTH = dpb.Sequence((ILL, dpb.Regression("pay ~ ill", "normal")))


def schema(columns=("pay",), rows=N, **more):
    survey = {"weights": "wt", "population": 25 * rows, "largest": LARGEST}
    declared = {name: {**COLUMNS[name], **more} for name in columns}
    return dpb.Schema.from_dict({"rows": rows, "survey": survey, "columns": declared})


def survey_records(n=N, seed=3):
    """The rich are in the sample nine times as often: mean pay 40 where the population has 24."""
    rng = np.random.default_rng(seed)
    rich = rng.random(n) < 0.5
    pay = np.where(rich, rng.normal(60, 5, n), rng.normal(20, 5, n)).clip(0, 100)
    ill = np.where(rng.random(n) < np.where(rich, 0.1, 0.6), "yes", "no")
    return pd.DataFrame({"pay": pay, "ill": ill, "wt": np.where(rich, 5.0, 45.0)})


def weighted_mean(records):
    return np.average(records["pay"], weights=records["wt"])


def bound(model=PAY, mechanism=None, records=None, columns=("pay",)):
    mechanism = mechanism or dpb.Anchored(5.0, anchor="none")
    made = dpb.Synthesizer(schema(columns), mechanism, model, settings=SETTINGS)
    return BoundRecords(made.task(survey_records() if records is None else records))


def test_a_record_counts_as_its_weight_by_the_largest():
    records = survey_records().assign(wt=np.tile([0.0, 5.0, LARGEST, 4_000.0], N // 4))
    assert bound(records=records).counted.tolist() == [0.0, 0.0625, 1.0, 1.0] * (N // 4)


def test_equal_records_with_other_weights_are_not_merged():
    records = survey_records().assign(pay=50.0, wt=np.tile([5.0, 45.0], N // 2))
    kept = bound(records=records)
    assert kept.size == 2
    assert kept.kinds.counts.tolist() == [N // 2] * 2
    assert kept.counted.tolist() == [5 / LARGEST, 45 / LARGEST]


@pytest.mark.parametrize(
    ("mechanism", "engine"),
    [
        (dpb.Unweighted(), "embedded"),
        (dpb.Weighted(dpb.ConstantWeights(0.5)), "embedded"),
        (dpb.Censored(30.0), "embedded"),
        (dpb.Anchored(30.0), "embedded"),
        (dpb.Anchored(30.0), CandidatesEngine(2_000)),
    ],
    ids=["unweighted", "weighted", "censored", "anchored", "candidates"],
)
def test_a_posterior_is_of_the_population(mechanism, engine):
    """At so large an ε a draw is within 5 sds, 20 / sqrt(375), of the weighted mean.

    375 records of the largest weight represent the population. The sample's own mean is 40.
    """
    records = survey_records()
    made = dpb.Synthesizer(schema(), mechanism, PAY, engine=engine, settings=SETTINGS)
    fit = made.fit(records)
    mean = fit.fitted.coefficients().loc["Intercept", "mean"]
    assert abs(mean - weighted_mean(records)) < 5.2
    assert abs(records["pay"].mean() - weighted_mean(records)) > 14
    assert fit.fitted.settings["survey"]["largest"] == LARGEST


def test_a_sequence_and_a_users_program_take_weights(tmp_path):
    records = survey_records()
    ill = np.average(records["ill"] == "yes", weights=records["wt"])
    fit = dpb.Synthesizer(schema(("ill", "pay")), dpb.Anchored(40.0), BOTH, settings=SETTINGS).fit(
        records
    )
    (rows,) = fit.sample(1, rows=20_000).datasets
    assert abs(rows["pay"].mean() - weighted_mean(records)) < 6
    assert abs((rows["ill"] == "yes").mean() - ill) < 0.13  # 5 sds of 375 records
    assert abs((records["ill"] == "yes").mean() - ill) > 0.15
    own = dpb.Program(write(tmp_path, OWN), "pay ~ 1")
    fit = dpb.Synthesizer(schema(), dpb.Anchored(40.0), own, settings=SETTINGS).fit(records)
    (rows,) = fit.sample(1).datasets
    assert abs(rows["pay"].mean() - weighted_mean(records)) < 6


@pytest.mark.parametrize(
    ("model", "columns"),
    [(PAY, ("pay",)), (ILL, ("ill",)), (BOTH, ("ill", "pay"))],
    ids=["normal", "bernoulli", "sequence"],
)
def test_the_audit_confirms_epsilon_for_records_with_any_weight(model, columns):
    mechanism = dpb.Anchored(0.5, anchor="two-stage")
    made = dpb.Synthesizer(schema(columns, rows=60), mechanism, model, settings=SETTINGS)
    records = survey_records(60).assign(wt=np.tile([0.0, 500.0], 30))
    fit = made.fit(records, allow_nonconvergence=True)
    found = audit(fit, candidates=8)
    assert not found.violated, str(found)


def test_the_audit_finds_weights_by_all_records(monkeypatch):
    """Sampling weights by their own sum: one record moves what all others count as."""
    plain = BoundRecords._counted_as

    def by_their_sum(self, task):
        counted = plain(self, task)
        return counted / counted.sum()

    made = dpb.Synthesizer(schema(rows=60), dpb.Censored(0.5), PAY, settings=SETTINGS)
    records = survey_records(60).assign(wt=1.0)
    sound = audit(made.fit(records, allow_nonconvergence=True), candidates=8)
    assert not sound.violated, str(sound)
    monkeypatch.setattr(BoundRecords, "_counted_as", by_their_sum)
    wrong = audit(made.fit(records, allow_nonconvergence=True), candidates=8)
    assert wrong.violated, str(wrong)


def test_lipschitz_bounds_and_weights_are_of_what_a_record_counts():
    records = survey_records().assign(wt=np.tile([0.0, LARGEST], N // 2))
    made = dpb.Synthesizer(schema(), dpb.Weighted(), PAY, settings=SETTINGS)
    fitted = made.fit(records).fitted
    assert (fitted.lipschitz[::2] == 0).all()
    assert (fitted.lipschitz[1::2] > 0).any()
    assert (fitted.weights[::2] == 0).all()


def test_terms_about_another_value_than_zero_are_centred_before_they_are_weighted(tmp_path):
    """In the outcome's own units log densities are near -log 100.

    Small weights would draw terms to 0, out of a window about -log 100.
    """
    own = dpb.Program(write(tmp_path, OWN), "pay ~ 1")
    records = survey_records().assign(wt=np.tile([0.1, 1.0, LARGEST], N // 3))
    made = dpb.Synthesizer(schema(), dpb.Censored(30.0), own, settings=SETTINGS)
    fitted = made.fit(records).fitted
    assert fitted.stages[-1].centre == pytest.approx(-np.log(100))
    assert fitted.n_censored == 0


def test_checks_weigh_the_records():
    records = survey_records()
    made = dpb.Synthesizer(schema(), dpb.Unweighted(), PAY, settings=SETTINGS)
    fit = made.fit(records)
    table = fit.fitted.check(20).table.set_index("figure")
    assert table.loc["mean", "observed"] == pytest.approx(weighted_mean(records), abs=1.5)
    assert table.loc["mean", "fits"]


def test_intervals_are_said_to_be_another_matter():
    made = dpb.Synthesizer(schema(), dpb.Anchored(5.0), PAY, settings=SETTINGS)
    settings = made.fit(survey_records()).fitted.settings
    assert "not for intervals" in uncovered("anchored", settings)
    assert any("largest sampling weight" in text for text in made.guarantee().assumptions)


def test_weighted_e_counts_records_before_it_drops_them():
    """Of weights of a hundredth of the largest no term is near the bound."""
    made = dpb.Synthesizer(schema(("ill",)), dpb.WeightedE(1.0), ILL, settings=SETTINGS)
    assert made.fit(survey_records().assign(wt=LARGEST / 100)).fitted.n_truncated == 0


def test_records_are_not_their_own_reference_with_other_weights():
    """Three levels tell a sketch little, and with weights in it two of one table would differ."""
    records = survey_records().assign(wt=np.tile([5.0, 45.0, 70.0], N // 3))
    unseeded = replace(SETTINGS, seed=None)
    reference = dpb.Synthesizer(
        replace(schema(("ill",)), survey=None), dpb.Unweighted(), ILL, settings=unseeded
    ).reference(records)
    mechanism = dpb.Anchored(1.0, anchor=reference)
    made = dpb.Synthesizer(schema(("ill",)), mechanism, ILL, settings=unseeded)
    with pytest.raises(dpb.GuaranteeError, match="from these very records"):
        made.fit(records)


def test_too_few_public_records_and_weights_that_add_up_to_little():
    public = dpb.Schema.from_dict({**schema().to_dict(), "rows": "public"})
    made = dpb.Synthesizer(public, dpb.Censored(5.0), PAY, settings=SETTINGS)
    with pytest.raises(dpb.SchemaError, match="300 records of a weight up to 80 represent"):
        made.fit(survey_records(300))
    fit = made.fit(survey_records().assign(wt=1.0))
    assert any("add up to 4% of the population" in text for text in fit.fitted.findings().warnings)
    assert not any("add up to" in t for t in made.fit(survey_records()).fitted.findings().warnings)


def test_comparisons_with_the_sample_are_refused():
    fit = dpb.Synthesizer(schema(), dpb.Unweighted(), PAY, settings=SETTINGS).fit(survey_records())
    with pytest.raises(dpb.SchemaError, match="would compare the model of the population"):
        fit.loo()
    with pytest.raises(dpb.SchemaError, match="would compare the model of the population"):
        fit.to_datatree(posterior_predictive=True)


def test_chains_of_another_survey_are_set_aside(tmp_path):
    made = dpb.Synthesizer(schema(), dpb.Censored(5.0), PAY, settings=replace(SETTINGS, seed=None))
    first = made.fit(survey_records(), checkpoint=tmp_path)
    other = replace(schema(), survey=dpb.Survey("wt", 40_000, LARGEST))
    again = dpb.Synthesizer(other, made.mechanism, PAY, settings=made.settings)
    assert again.fit(survey_records(), checkpoint=tmp_path).fitted.seed != first.fitted.seed


def test_an_empty_table_and_weights_of_zero_give_the_prior():
    made = dpb.Synthesizer(schema(("ill",), 20), dpb.Censored(5.0), ILL, settings=SETTINGS)
    for records in (survey_records(20)[:0], survey_records(20).assign(wt=0.0)):
        fitted = made.fit(records).fitted
        draws = fitted.draws["posterior"]["intercept"].to_numpy()
        assert draws.std() > 1  # its prior sd is above 2
