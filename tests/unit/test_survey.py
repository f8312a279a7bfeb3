"""Sampling weights: declaration, validation, counts by weight, and what a record costs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.evaluate.exact import audit_exact
from dpbayes.inference.coverage import uncovered, weights_cut
from dpbayes.mechanisms.marginals import exact_counts, weighting
from dpbayes.mechanisms.marginals import mechanism as marginals
from dpbayes.mechanisms.marginals.budget import UNIT, BudgetSplit
from dpbayes.mechanisms.marginals.weighting import PARTS, effective_records, in_units, squares
from dpbayes.pages.readers import public_page
from dpbayes.planning.plan import make_plan
from dpbayes.privacy.noise import StudyNoise
from dpbayes.publication.gate import publish
from dpbayes.report.whole import Whole, contingency, joint_utility, risk, tables_of
from dpbayes.schema.draft import guesses, text
from dpbayes.schema.editors import json_schema
from tests.asking import Asked

ENTRY = {"weights": "wt", "population": 30_000, "largest": 50}
COLUMNS = {
    "age": {"type": "count", "lower": 18, "upper": 90},
    "works": {"type": "binary", "levels": ["no", "yes"]},
    "area": {"type": "categorical", "levels": ["north", "south", "west"]},
}


def schema(rows=1600, keep=(), columns=COLUMNS, **entry):
    tree = {"rows": rows, "survey": {**ENTRY, **entry}, "columns": columns}
    return dpb.Schema.from_dict({**tree, "keep": list(keep)} if keep else tree)


def survey_records(n, seed=0):
    """People of whom the old are in the sample more often, and work less."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 91, n)
    works = np.where(rng.random(n) < np.where(age < 60, 0.8, 0.2), "yes", "no")
    area = rng.choice(["north", "south", "west"], n)
    return pd.DataFrame(
        {"age": age, "works": works, "area": area, "wt": np.where(age < 60, 40.0, 5.0)}
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"population": 0}, "population = 0 must be a number above 0"),
        ({"population": True}, "population = True must be a number"),
        ({"largest": float("nan")}, "largest = nan must be a number"),
        ({"largest": 40_000}, "more than the population of 30,000"),
        ({"deff": 1000}, "deff = 1000 must be from"),
        ({"weights": 3}, "weights"),
        ({"weights": " "}, "must be the name of a column"),
        ({"largest": 1e-300}, "from 1e-12 to 1e"),
        ({"strata": "area"}, "must name the column of weights"),
        ({"weights": "age"}, "the weights 'age' are not released"),
        ({"largest": 10}, "1,600 records of a weight up to 10 represent 16,000 units at most"),
    ],
)
def test_wrong_entries_are_refused(change, message):
    with pytest.raises(dpb.SchemaError, match=message):
        schema(**change)


@pytest.mark.parametrize("missing", ["weights", "population", "largest"])
def test_each_public_fact_is_needed(missing):
    entry = {key: value for key, value in ENTRY.items() if key != missing}
    with pytest.raises(dpb.SchemaError, match="must name the column of weights"):
        dpb.Schema.from_dict({"columns": COLUMNS, "survey": entry})


def test_a_schema_file_keeps_the_survey(tmp_path):
    for entry in ({}, {"deff": 1.5}):
        declared = schema(**entry)
        declared.to_toml(tmp_path / "survey.toml")
        assert dpb.Schema.from_toml(tmp_path / "survey.toml") == declared
    assert set(json_schema()["properties"]["survey"]["properties"]) == {*ENTRY, "deff"}


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), "many", None])
def test_records_need_weights(weight):
    records = survey_records(50).astype({"wt": object})
    records.loc[3, "wt"] = weight
    with pytest.raises(dpb.DataError, match="column 'wt'"):
        schema().validate(records)
    with pytest.raises(dpb.DataError, match="column 'wt' of the schema is not in the data"):
        schema().validate(records.drop(columns="wt"))


def test_chunks_are_refused_with_the_words_for_a_whole_table():
    records = survey_records(60)
    records.loc[[3, 41], "wt"] = -1.0
    records.loc[50, "age"] = 17
    parts = dpb.Chunks.of(lambda: [records[:20], records[20:]])
    words = []
    for data in (records, parts):
        with pytest.raises(dpb.DataError) as caught:
            dpb.Synthesizer(schema(), dpb.Marginals(1)).table(data)
        words.append(str(caught.value))
    assert words[0] == words[1]


def test_large_weights_are_cut_and_small_ones_stay():
    records = survey_records(4).assign(wt=[0.0, 1.5, 50.0, 4000.0])
    assert schema().validate(records)["wt"].tolist() == [0.0, 1.5, 50.0, 50.0]


def test_only_mechanisms_that_weigh_take_weights():
    for name in dpb.mechanisms.MECHANISMS:
        kind = dpb.mechanisms.MECHANISMS[name]
        if kind.weighs or not kind.takes("epsilon") or kind.needs_model:
            continue
        with pytest.raises(dpb.SchemaError, match="has no use for sampling weights"):
            dpb.Synthesizer(schema(), kind(epsilon=1.0))
    public = {**COLUMNS, "area": {**COLUMNS["area"], "public": True}}
    with pytest.raises(dpb.SchemaError, match="cannot represent the population"):
        dpb.Synthesizer(schema("public", columns=public), dpb.Marginals(1))


def test_counts_are_sums_of_weights_and_no_record_counts_more_than_one():
    records = survey_records(500)
    fitted = dpb.Synthesizer(schema(), dpb.Marginals(1)).fit(records).fitted
    units = in_units(np.minimum(records["wt"].to_numpy() / 50, 1))
    by_level = fitted.counts.margins()
    works = (records["works"] == "yes").to_numpy()
    assert by_level[1].tolist() == [units[~works].sum(), units[works].sum()]
    (table,) = fitted.counts.tables([(1, 2)], [np.arange(73), np.arange(2), np.arange(3)])
    assert table[1, 0] == units[works & (records["area"] == "north").to_numpy()].sum()
    assert max(units) <= UNIT
    squared, rest = squares(units)
    assert squared + rest == units.sum()
    assert squared / UNIT == pytest.approx(((units / UNIT) ** 2).sum(), rel=1e-5)


def test_parts_count_as_the_whole_table():
    records = survey_records(300)
    kept = schema(keep=["works ~ age"])
    synthesizer = dpb.Synthesizer(kept, dpb.Marginals(1))
    parts = dpb.Chunks.of(lambda: [records[:70], records[70:71], records[71:]])
    made = [
        synthesizer.with_settings(dpb.SamplerSettings(seed=3)).fit(data).sample(1, seed=3)
        for data in (records, parts)
    ]
    assert made[0].datasets[0].equals(made[1].datasets[0])
    assert made[0].settings == made[1].settings


NEIGHBOURS = [("young", 50.0), ("young", 20.0), ("old", 50.0), ("old", 0.0)]


@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("most_columns", [3, 8])
def test_the_exact_loss_of_a_record_with_any_weight(adjacency, delta, most_columns):
    """Neighbours are asked the same, and noise tells no more than is claimed, exactly."""
    more = {f"c{i}": COLUMNS["works"] for i in range(most_columns - 3)}
    kept = schema(200, ["works ~ age + area"], {**COLUMNS, **more}, population=2000)
    mechanism = dpb.Marginals(1, adjacency=adjacency, delta=delta)
    synthesizer = dpb.Synthesizer(kept, mechanism)
    records = survey_records(200).assign(**{name: "no" for name in more})
    records["wt"] = np.resize([50.0, 1.0, 12.5], 200)
    claim = synthesizer.guarantee().loss

    def asked(data, answers=None):
        noise = Asked(1, answers)
        fitted = synthesizer.fit(data).fitted
        output = fitted.draw_private(noise)
        return noise, fitted.told(output)

    first, told = asked(records)
    pure = delta == 0 or mechanism.rho(kept) is None
    assert {how for *_, how in first.questions} == {"counts" if pure else "gaussian"}
    worst = 0.0
    rest = records.drop(index=0)
    for kind, weight in NEIGHBOURS:
        age, works = (18, "yes") if kind == "young" else (90, "no")
        other = {"age": age, "works": works, "area": "west", "wt": weight}
        other |= {name: works for name in more}
        if adjacency == "substitution":
            table = pd.concat([pd.DataFrame([other]), rest], ignore_index=True)
        else:
            table = pd.concat([records, pd.DataFrame([other])], ignore_index=True)
        again, told_too = asked(table, first.answers)
        assert told == told_too
        worst = max(worst, first.loss_beside(again, pure=pure))
    removed, _ = asked(rest, first.answers)
    if adjacency == "add-remove":
        worst = max(worst, first.loss_beside(removed, pure=pure))
    bound = claim if adjacency == "add-remove" else claim.substitution()
    limit = bound.epsilon if pure else bound.rho
    assert 0.4 * limit < worst <= limit


def test_the_audit_tries_the_largest_weight():
    synthesizer = dpb.Synthesizer(schema(200, population=2000), dpb.Marginals(1))
    records = survey_records(200)
    result = audit_exact(synthesizer, records)
    assert not result.violated
    assert 0.9 < result.share <= 1


def _uncut(monkeypatch):
    monkeypatch.setattr(exact_counts, "in_units", lambda shares: 2 * in_units(shares))


def _never_cut(monkeypatch):
    """The cut is made twice, and either is enough."""
    monkeypatch.setattr(dpb.Survey, "typed", lambda self, w, **_: w.to_numpy(dtype=float))
    monkeypatch.setattr(dpb.Survey, "shares", lambda self, w: w.to_numpy() / self.largest)


def _unpaid(monkeypatch):
    of = BudgetSplit.of
    monkeypatch.setattr(
        weighting.BudgetSplit, "of", lambda self, part: of(self, 1.0 if part > 0.85 else part)
    )


def _without_noise(monkeypatch):
    class Exact(StudyNoise):
        def counts(self, values, scale):
            return np.asarray(values)

    def measured(sums, survey, rows, budget):
        number, left = effective_records(sums, survey, rows, replace(budget, noise=Exact(0)))
        return number, replace(left, noise=budget.noise)

    monkeypatch.setattr(marginals, "effective_records", measured)


def _by_their_own_mean(monkeypatch):
    def shares(self, weights):
        return np.clip(weights.to_numpy() / (2 * weights.mean()), 0, 1)

    monkeypatch.setattr(dpb.Survey, "shares", shares)


@pytest.mark.parametrize("plant", [_uncut, _never_cut, _unpaid, _without_noise, _by_their_own_mean])
def test_the_audit_finds_bugs(plant, monkeypatch):
    """Weights that are not cut, or scaled by the records; a number that nobody pays for."""
    plant(monkeypatch)
    synthesizer = dpb.Synthesizer(schema(200, population=2000), dpb.Marginals(1))
    assert audit_exact(synthesizer, survey_records(200)).violated


def test_synthetic_rows_represent_the_population():
    """The mean age of the sample is 54, that of the population 42; sds are of 20 data sets."""
    records = survey_records(3000)
    weighted = float(np.average(records["age"], weights=records["wt"]))
    population = float(records["wt"].sum())
    declared = schema(3000, population=population)
    release = dpb.Synthesizer(declared, dpb.Marginals(1)).fit(records).sample(1)
    made = release.datasets[0]
    assert list(made) == list(COLUMNS)
    assert len(made) == 3000
    assert abs(made["age"].mean() - weighted) < 3
    assert records["age"].mean() - weighted > 10
    effective = population**2 / (records["wt"] ** 2).sum()
    assert release.settings["effective_records"] == pytest.approx(effective, rel=0.1)
    assert release.settings["survey"]["population"] == population
    assert any("largest sampling weight" in text for text in release.guarantee.assumptions)


def test_large_numbers_are_written_out(tmp_path):
    declared = schema("noisy", population=16_000_000, largest=20_000)
    records = survey_records(300).assign(wt=lambda d: d["wt"] * 1000)
    fit = dpb.Synthesizer(declared, dpb.Marginals(1)).fit(records)
    publish(fit, tmp_path / "out", 1)
    page = public_page(tmp_path / "out", declared)
    assert b"a population of 16,000,000 with equal weights" in page
    with pytest.raises(dpb.SchemaError, match="population of 16,000,000, which"):
        schema("noisy", population=16_000_000, largest=20_000_000)


def test_a_design_effect_lowers_the_effective_number():
    records = survey_records(3000)
    population = float(records["wt"].sum())
    numbers = []
    for deff in (1.0, 2.0):
        declared = schema(3000, population=population, deff=deff)
        release = dpb.Synthesizer(declared, dpb.Marginals(3)).fit(records).sample(1)
        numbers.append(release.settings["effective_records"])
    assert numbers[0] / numbers[1] == pytest.approx(2.0, rel=0.1)


def test_comparisons_weigh_the_records():
    records = survey_records(2000)
    declared = schema(2000)
    weights = records["wt"] / records["wt"].sum()
    rng = np.random.default_rng(5)
    same = records.iloc[rng.choice(2000, 20_000, p=weights)].drop(columns="wt")
    whole = Whole.of(declared, records, same)
    share = float(weights[records["works"] == "yes"].sum())
    table = contingency(whole, ["works"])
    assert table.loc[table["works"] == "yes", "records, %"].item() == pytest.approx(
        100 * share, abs=0.05
    )
    measures = joint_utility(whole).set_index("measure")
    assert measures.loc["total variation, 1 at once", "mean"] < 0.02
    assert not measures.index.str.startswith("pMSE").any()
    assert len(tables_of(whole).original) == 20_000
    assert whole.size == pytest.approx(records["wt"].sum() ** 2 / (records["wt"] ** 2).sum())


def test_a_record_without_weight_is_never_represented():
    records = survey_records(100)
    records.loc[records["works"] == "yes", "wt"] = 0.0
    shown = schema().at_equal_weights(schema().validate(records))
    assert len(shown) == 1000
    assert set(shown["works"]) == {"no"}
    records["wt"] = 0.0
    assert schema().at_equal_weights(schema().validate(records)).empty
    with pytest.raises(dpb.DataError, match="all weights are 0"):
        Whole.of(schema(), records, records.drop(columns="wt"))


def test_attacks_are_on_records_whatever_their_weight():
    records = survey_records(200)
    declared = schema(200, population=2000)
    whole = Whole.of(declared, records, records.drop(columns="wt"), records[100:])
    measures = risk(whole, ["age", "works"], "area", None).set_index("measure")
    assert measures.loc["false match rate", "synthetic"] == 0
    assert list(whole.records) == list(COLUMNS)


def test_weights_are_read_as_numbers(tmp_path):
    """A column that no table [columns...] declares, with a decimal comma, is not left out."""
    records = survey_records(20).assign(wt=lambda d: d["wt"] + 0.5)
    records.to_csv(tmp_path / "a.csv", sep=";", decimal=",", index=False)
    said = []
    read = dpb.read_records(tmp_path / "a.csv", schema(), say=said.append)
    assert schema().validate(read)["wt"].tolist() == records["wt"].tolist()
    assert not any("left out" in line for line in said)


@pytest.mark.parametrize("name", ["pweight", "WTMEC2YR", "wtint4yr"])
def test_a_draft_asks_for_weights(name):
    records = survey_records(60).rename(columns={"wt": "pweight"})
    records["pweight"] += np.arange(60) / 7
    bodies = records.assign(pweight=50 + np.arange(60.0) / 3)
    drafted = text(guesses(records.rename(columns={"pweight": name})))
    assert f'# weights = "{name}"' in drafted
    for plain in (records.rename(columns={"pweight": "height"}), bodies):
        assert "sampling weight" not in text(guesses(plain))


def test_cut_weights_are_said():
    """Of the population 58 % lies below the largest weight: 10 of 40 and 5 of 5 count."""
    records = survey_records(3000)
    population = float(records["wt"].sum())
    declared = schema("noisy", population=population, largest=10)
    release = dpb.Synthesizer(declared, dpb.Marginals(3)).fit(records).sample(1)
    share = np.minimum(records["wt"], 10).sum() / population
    assert release.settings["weight_counted"] == pytest.approx(share, abs=0.02)
    said = uncovered("marginals", release.settings)
    assert f"add up to about {release.settings['weight_counted']:.0%} of the population" in said
    assert "lean towards records with small weights" in said
    assert weights_cut({"weight_counted": 0.96}) is None
    assert weights_cut({"weight_counted": 0.8, "weight_counted_sd": 0.15}) is None
    assert "is it larger?" in weights_cut({"weight_counted": 1.9, "weight_counted_sd": 0.1})
    assert weights_cut({}) is None


def test_intervals_within_groups_are_said_to_be_another_matter():
    records = survey_records(1200)
    declared = schema("noisy", population=float(records["wt"].sum()))
    settings = dpb.Synthesizer(declared, dpb.Marginals(10)).fit(records).sample(2).settings
    assert "figures of the whole population" in uncovered("marginals", settings)


def test_a_table_whose_weights_are_all_zero_is_synthesised():
    records = survey_records(100).assign(wt=0.0)
    release = dpb.Synthesizer(schema(600), dpb.Marginals(1)).fit(records).sample(2)
    assert [len(data) for data in release.datasets] == [600, 600]


def test_a_plan_makes_up_weights():
    plan = make_plan(schema(1600), 1600, totals=(1.0,), runs=1)
    assert set(plan.expected) == {"marginals"}
    assert "sampling weights" in plan.refused["laplace"]
    (expected,) = plan.expected["marginals"]
    assert 0 < expected.accuracy.columns < 0.3


def test_a_forecast_warns_of_a_far_too_large_weight():
    synthesizer = dpb.Synthesizer(schema("noisy", largest=300), dpb.Marginals(1))
    assert "15 times the mean" in str(synthesizer.outlook(1500).warnings[0])
    assert "times the mean" not in str(synthesizer.outlook(700).warnings)


@pytest.mark.parametrize(("population", "part"), [(10_000, 0.01), (3_000, 0.03), (500, 0.1)])
def test_weights_cost_least_that_is_enough(population, part):
    """By public facts: noise of the sum of squares has an sd of 141, 47 and 14 at these parts."""
    assert part in PARTS
    budget = BudgetSplit(1.0, 1, StudyNoise(0))
    survey = dpb.Survey("wt", population, 1)
    _, left = effective_records(np.array([UNIT, UNIT]) * (population // 2), survey, 9000, budget)
    assert left.epsilon == pytest.approx(1 - part)
