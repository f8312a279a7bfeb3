"""Regressions and groups of the confidential page."""

import re

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import InferenceError, SchemaError
from dpbayes.formula.formula import without_groups
from dpbayes.inference.combining import combine
from dpbayes.inference.regressions import formula_fit
from dpbayes.pages.comparison import PageTopic, sections
from dpbayes.pages.regressions import Compared, Spread, compared, released, section, to_compare
from dpbayes.report.whole import Whole

SCHOOLS = [f"s{k:02}" for k in range(40)]
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "school": {"type": "categorical", "levels": SCHOOLS, "public": True},
            "hours": {"type": "count", "upper": 20, "public": True},
            "score": {"type": "continuous", "lower": -9, "upper": 9},
            "passed": {"type": "binary", "levels": ["yes", "no"]},
            "grade": {"type": "ordinal", "levels": ["low", "mid", "high"]},
            "kind": {"type": "categorical", "levels": ["a", "b", "c"]},
        }
    }
)


def pupils(rng, n=2000, sd=0.5, slope=0.1):
    school, hours = rng.integers(40, size=n), rng.integers(0, 21, n)
    effects = sd * rng.standard_normal(40)
    score = (effects[school] + slope * (hours - 10) + rng.standard_normal(n)).clip(-9, 9)
    noise = rng.logistic(size=(2, n))
    return pd.DataFrame(
        {
            "school": np.array(SCHOOLS)[school],
            "hours": hours,
            "score": score,
            "passed": np.where(score + noise[0] > 0, "no", "yes"),  # the second level
            "grade": np.array(["low", "mid", "high"])[np.digitize(score + noise[1], [-1, 1])],
            "kind": rng.choice(list("abc"), n),
        }
    )


def test_group_terms_are_taken_out_of_a_formula():
    assert without_groups("y ~ x") == ("y ~ x", ())
    assert without_groups("y ~ x + (1 | g)") == ("y ~ x", (("g",),))
    assert without_groups("y ~ (1 + x | g/h) + x:z + log(x)") == (
        "y ~ x:z + log(x)", (("g",), ("g", "h")),
    )  # fmt: skip
    assert without_groups("`a b` ~ (1 | g) + (x || g)") == ("`a b` ~ 1", (("g",),))


def test_the_spread_between_groups_is_unbiased_and_its_error_that_of_other_groups():
    """500 tables: means within 4 standard errors (once in 16,000); the sd, ± 3.2 %, within 15 %."""
    rng = np.random.default_rng(1)
    spreads = []
    for _ in range(500):
        group = rng.choice(40, size=600, p=rng.dirichlet(np.full(40, 8.0)))
        values = 0.5 * rng.standard_normal(40)[group] + rng.standard_normal(600)
        spreads.append(Spread.of(values, pd.Series(group), 600))
    variances = np.array([spread.variance for spread in spreads])
    assert abs(variances.mean() - 0.25) < 4 * variances.std() / np.sqrt(500)
    assert np.mean([spread.error for spread in spreads]) == pytest.approx(variances.std(), rel=0.15)


def test_groups_without_a_spread_have_none():
    values = np.random.default_rng(1).standard_normal(300)
    assert Spread.of(values, pd.Series(np.arange(300)), 300) is None  # one record in each
    assert Spread.of(values, pd.Series(np.arange(300) % 2), 300) is None
    assert Spread.of(np.full(300, np.nan), pd.Series(np.arange(300) % 9), 300) is None
    assert Spread.of(np.ones(300), pd.Series(np.arange(300) % 9), 300).sd == 0


@pytest.mark.parametrize(
    ("outcome", "model"), [("score", "ols"), ("passed", "logit"), ("grade", "ordinal")]
)
def test_the_model_follows_the_outcome(outcome, model):
    rng = np.random.default_rng(1)
    records, synthetic = pupils(rng), pupils(rng)
    of = compared(Whole.of(SCHEMA, records, synthetic), f"{outcome} ~ hours + kind + (1 | school)")
    assert (of.model, of.formula) == (model, f"{outcome} ~ hours + kind")
    levels = {name: column.levels for name, column in SCHEMA.columns.items()}
    fit = formula_fit(of.formula, model, levels)
    for table, (values, _) in ((records, of.ours), (synthetic, of.theirs)):
        result = fit(table.astype({n: object for n in SCHEMA.columns if SCHEMA[n].levels}))
        expected = result[0] if isinstance(result, tuple) else result.params
        assert values == pytest.approx(expected.to_numpy())
    assert of.coefficients().set_index("coefficient").loc["hours", "records"] > 0.05
    assert list(of.spreads) == [("school",)]


def test_a_level_absent_in_one_table_leaves_out_its_cutpoint_alone():
    """The verdict of a regression was empty where a rare level of its outcome was not drawn."""
    rng = np.random.default_rng(1)
    records, synthetic, other = pupils(rng), pupils(rng), pupils(rng)
    synthetic.loc[synthetic["grade"] == "high", "grade"] = "mid"
    other.loc[other["grade"] == "mid", "grade"] = "low"
    both = [compared(Whole.of(SCHEMA, records, t), "grade ~ hours") for t in (synthetic, other)]
    names = [outcome.name for outcome in both[0].outcomes]
    assert names == ["hours in grade ~ hours", "cutpoint low|mid in grade ~ hours"]
    assert len(both[1].outcomes) == 3
    page = section([{"grade ~ hours": of} for of in both], statement={"mechanism": "marginals"})
    (table,) = page.tables
    assert [row[0] for row in table.rows] == ["hours", "cutpoint low|mid"]
    assert np.isfinite([row[1:] for row in table.rows]).all()
    assert any(text.endswith(": cutpoint mid|high of grade ~ hours.") for text in page.text)


def test_lost_groups_and_slopes_are_said():
    rng = np.random.default_rng(1)
    whole = Whole.of(SCHEMA, pupils(rng), pupils(rng, sd=0, slope=0))
    of = compared(whole, "score ~ hours + (1 | school)")
    lost = [outcome.text for outcome in of.outcomes if outcome.excess > 1]
    assert len(lost) == 3
    assert lost[0].startswith("Regression `score ~ hours`, hours: ")
    assert lost[1].startswith("Sd of score between groups of school: ")
    said = r"Means of score by school: correlation with the records' (.*); another sample has (.*)"
    alike, repeated = map(float, re.fullmatch(said, lost[2]).groups())
    assert alike < 0.5
    assert repeated > 0.8
    groups = section([{"score": of}]).tables[1]
    assert groups.caption == "Groups: score by school"
    assert groups.rows[0] == ["groups", 40, 40]
    assert groups.rows[1][1] > 0.35
    assert groups.rows[1][2] < 0.15
    same = compared(Whole.of(SCHEMA, whole.records, whole.records), "score ~ hours + (1 | school)")
    assert [outcome.excess for outcome in same.outcomes] == pytest.approx([0, 0, 0])
    assert section([{"score": same}]).tables[1].rows[2][2] == pytest.approx(1)


def test_the_verdict_and_the_section_count_the_same_coefficients():
    """An intercept follows from the other coefficients: neither counts it, unless it is alone."""
    ours, theirs = (np.array([values, [1.0, 1.0, 1.0]]) for values in ([0, 0, 0], [9, 0, 5]))
    slopes = Compared("y ~ a + b", "ols", ["Intercept", "a", "b"], ours, theirs, {}, "y")
    lost = [outcome.name for outcome in slopes.outcomes if outcome.excess > 1]
    assert lost == ["b in y ~ a + b"]
    said = "More than 2 standard errors apart, intercepts beside other coefficients left out: "
    assert section([{"y": slopes}]).text[-1] == f"{said}y ~ a + b: b."
    alone = Compared("y ~ 1", "ols", ["Intercept"], ours[:, :1], theirs[:, :1], {}, "y")
    assert len(alone.outcomes) == 1
    assert section([{"y": alone}]).text[-1] == f"{said}y ~ 1: Intercept."


def test_what_cannot_be_fitted_is_refused():
    records = pupils(np.random.default_rng(1))
    whole = Whole.of(SCHEMA, records, records)
    with pytest.raises(InferenceError, match="has levels and is used as a number"):
        compared(whole, "kind ~ hours")
    with pytest.raises(InferenceError, match="formula"):
        compared(whole, "score ~ ")


@pytest.mark.parametrize(
    ("asked", "formulas"),
    [
        ([], {"y ~ x + (1 | g)": False}),
        (["y~x"], {"y ~ x + (1 | g)": True}),
        (["y ~ x + (1 | g)", "y ~ x + (1 | g)"], {"y ~ x + (1 | g)": True}),
        (["y ~ x + (1 | h)"], {"y ~ x + (1 | g) + (1 | h)": True}),
        (["y ~ x + (x | `a b`:h)"], {"y ~ x + (1 | g) + (1 | `a b`:h)": True}),
        (["y ~ x + (1 | g/h)"], {"y ~ x + (1 | g) + (1 | g:h)": True}),
        (["y ~ z", "y ~  z"], {"y ~ x + (1 | g)": False, "y ~ z": True}),
        (["y ~ ", "y ~ x"], {"y ~ x + (1 | g)": True, "y ~ ": True}),
    ],
)
def test_a_regression_is_compared_once(asked, formulas):
    assert to_compare({"settings": {"formula": "y ~ x + (1 | g)"}}, asked) == formulas


def test_groups_that_are_asked_for_join_the_regression_that_was_kept():
    kept = ["y ~ z*x", "w ~ x"]
    asked = ["y ~ x + z + x:z + (1 | `a b`)"]
    formulas = to_compare({"settings": {"keep": kept}}, asked)
    assert formulas == {"y ~ z*x + (1 | `a b`)": True, "w ~ x": False}
    rng = np.random.default_rng(1)
    topic = PageTopic(SCHEMA, pupils(rng), formulas=["score ~ hours + (1 | school)"])
    statement = {"datasets": 2, "settings": {"keep": ["score ~ hours"]}}
    page = sections(topic, [pupils(rng), pupils(rng)], statement)
    assert "means of the 2 data sets" in page[0].text[1]
    assert "of 2 coefficients, 0 of 1 groupings" in page[0].text[0]  # hours, and the groups' sd
    assert any(
        point.startswith("Means of score by school: correlation") for point in page[0].points
    )
    captions = [t.caption for of in page if of.title == "Regressions" for t in of.tables]
    assert [text.partition(",")[0] for text in captions] == [
        "score ~ hours (least squares", "Groups: score by school",
    ]  # fmt: skip


def test_the_correlation_of_means_in_another_sample_is_foreseen():
    """200 pairs of tables: the mean correlation within .03, eight times its error."""
    rng = np.random.default_rng(1)
    seen, foreseen = [], []
    for _ in range(200):
        effects, group = 0.4 * rng.standard_normal(40), rng.integers(40, size=(2, 600))
        both = [
            Spread.of(effects[of] + rng.standard_normal(600), pd.Series(of), 600) for of in group
        ]
        seen.append(both[0].alike(both[1]))
        foreseen.append(both[0].repeated)
    assert np.mean(seen) == pytest.approx(np.mean(foreseen), abs=0.03)


def test_the_errors_that_readers_get_stand_beside_the_records():
    """Data sets whose slopes lie far apart: their mean is near, and says little."""
    rng = np.random.default_rng(1)
    records = pupils(rng)
    hours = records["hours"] - 10
    sets = [
        records.assign(score=(records["score"] + shift * hours).clip(-9, 9))
        for shift in (-0.3, 0.3)
    ]
    wholes = [Whole.of(SCHEMA, records, data) for data in sets]
    fits = [{"score": compared(whole, "score ~ hours")} for whole in wholes]
    statement = {"mechanism": "marginals", "settings": {"public_rows": len(records)}}
    page = section(fits, {}, statement)
    table = page.tables[0]
    place = list(table.head).index("se, readers")
    of = [each["score"].theirs for each in fits]
    combined = combine([b for b, _ in of], [se**2 for _, se in of], "reiter2002")
    ours = np.array([row[place] for row in table.rows], dtype=float)
    np.testing.assert_allclose(ours, combined.standard_error, rtol=1e-3)
    assert any("More than 3 times the records': score ~ hours: " in t for t in page.text)
    assert "se, readers" not in section(fits, {}, {"mechanism": "laplace"}).tables[0].head
    assert "se, readers" not in section(fits[:1], {}, statement).tables[0].head


def test_a_regression_that_is_not_compared_is_said():
    """In the first data set a level is missing, in all of them a column has one value."""
    rng = np.random.default_rng(1)
    records = pupils(rng)
    first, second = pupils(rng), pupils(rng)
    first["kind"] = first["kind"].replace("c", "a")
    topic = PageTopic(SCHEMA, records)
    kept = ["score ~ kind", "score ~ log(hours)"]
    statement = {"datasets": 2, "settings": {"keep": kept}}
    found = {s.title: s for s in sections(topic, [first, second], statement)}
    said = " ".join(found["Regressions"].text)
    assert "left out in which a level is missing, or a regression cannot be fitted: " in said
    assert "score ~ kind: 1 of 2." in said
    assert "Not compared: `score ~ log(hours)`." in said
    assert "is not finite in some rows" in said
    asked = sections(PageTopic(SCHEMA, records, formulas=kept[1:]), [first], {"datasets": 1})
    said = " ".join(next(s for s in asked if s.title == "Regressions").text)
    assert "Not compared: `score ~ log(hours)`." in said
    with pytest.raises(SchemaError, match="'nobody' is not declared"):
        sections(PageTopic(SCHEMA, records, formulas=["score ~ nobody"]), [first], {"datasets": 1})


def test_a_mean_that_is_lost_is_said():
    """A few values at a far bound, which move no distribution function."""
    rng = np.random.default_rng(1)
    records, made = pupils(rng), pupils(rng)
    records["score"], made["score"] = rng.normal(0, 0.5, (2, 2000)).clip(-9, 9)
    same = sections(PageTopic(SCHEMA, records), [made], {"datasets": 1})[0]
    assert not [point for point in same.points if point.startswith("Mean of")]
    assert "1 of 1 means" in same.text[0]  # hours are public
    made.loc[:29, "score"] = 9.0
    lost = sections(PageTopic(SCHEMA, records), [made, made], {"datasets": 2})[0]
    (point,) = [point for point in lost.points if point.startswith("Mean of")]
    assert re.fullmatch(r"Mean of `score`: 0\.1\d* \(0\.1\d* to 0\.1\d*\) in place of .*", point)


def test_data_sets_without_a_regression_are_counted():
    rng = np.random.default_rng(1)
    of = compared(Whole.of(SCHEMA, pupils(rng), pupils(rng)), "score ~ hours")
    text = " ".join(section([{"a": of}, {"a": of}, {}]).text)
    assert "cannot be fitted: score ~ hours: 1 of 3." in text
    assert "left out in which" not in " ".join(section([{"a": of}] * 3).text)


@pytest.mark.parametrize(
    ("settings", "formulas"),
    [
        ({"formula": "y ~ x + (1 | g)"}, ["y ~ x + (1 | g)"]),
        ({"keep": ["y ~ x", "z ~ y"]}, ["y ~ x", "z ~ y"]),
        ({"keep": 5, "formula": {"y": 1}}, []),
        ({}, []),
    ],
)
def test_formulas_of_a_release(settings, formulas):
    assert released({"settings": settings}) == formulas
