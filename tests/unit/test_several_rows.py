"""Analyses of records of several rows: columns of other rows, and errors by record."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpbayes as dpb
from dpbayes.core.errors import InferenceError
from dpbayes.inference import analyse, read_release
from dpbayes.inference.regressions import KINDS, formula_fit
from dpbayes.inference.several_rows import with_others
from dpbayes.mechanisms import Panels
from dpbayes.pages.comparison import PageTopic
from dpbayes.pages.regressions import of_records
from tests.panels import TREE, schema, waves
from tests.unit.test_pages import numbers_in, printed, programs

PANEL = {**TREE["panel"], "noun": "person", "member": "wave"}
HOME = {"id": "hh", "most": 4, "order": "age", "noun": "household", "member": "member"}
ROLES = {**HOME, "role": "role", "once": ["head", "partner"]}


def test_columns_of_the_wave_before_by_hand():
    rows = pd.DataFrame(
        {"nr": [1, 2, 1, 1], "year": [2012, 2010, 2010, 2011], "wage": [3.0, 9.0, np.nan, 2.0]}
    )
    found = with_others(rows, ["wage", "before.wage", "before.year"], PANEL)
    assert found["year"].tolist() == [2011, 2012]
    assert found["before.year"].tolist() == [2010, 2011]
    assert found["before.wage"].fillna(-1).tolist() == [-1, 2]
    assert with_others(rows, ["wage", "year"], PANEL) is rows
    named_so = rows.assign(**{"before.wage": 1.0})
    assert with_others(named_so, ["before.wage"], PANEL) is named_so
    with pytest.raises(InferenceError, match=r"before.COLUMN, not of\s+next"):
        with_others(rows, ["wage", "next.wage"], PANEL)


@pytest.mark.parametrize(
    ("unit", "head", "child"), [(ROLES, "head", "child"), (HOME, "first", "second")]
)
def test_columns_of_members_by_hand(unit, head, child):
    rows = pd.DataFrame(
        {
            "hh": [7, 7, 8, 9, 9],
            "role": ["child", "head", "head", "head", "child"],
            "age": [5, 40, 60, 30, 2],
            "city": ["no", "no", "yes", "yes", "yes"],
        }
    )
    found = with_others(rows, [f"{child}.age", f"{head}.age", "city"], unit)
    assert found[f"{child}.age"].tolist() == [5, 2]
    assert found[f"{head}.age"].tolist() == [40, 30]
    assert found["city"].tolist() == ["no", "yes"]
    alone = with_others(rows, [f"{head}.age"], unit)
    assert alone[f"{head}.age"].tolist() == [40, 60, 30]
    with pytest.raises(InferenceError, match="members of one other place"):
        with_others(rows, [f"{child}.age", "aunt.age"], unit)


def clustered(persons=150):
    """Rows of persons whose outcomes, of every kind of regression, and covariate are alike."""
    rng = np.random.default_rng(1)
    nr = np.repeat(np.arange(persons), 4)
    level, x = rng.normal(size=persons)[nr], rng.normal(size=persons)[nr]
    mean = np.exp(0.3 * level + 0.3 * x)
    return pd.DataFrame({
        "nr": nr, "year": np.tile(range(4), persons), "x": x,
        "ols": level + x + rng.normal(size=len(nr)),
        "logit": (rng.random(len(nr)) < 1 / (1 + np.exp(-level - x))) * 1.0,
        "poisson": rng.poisson(mean), "negbin": rng.negative_binomial(2, 1 / (1 + mean / 2)),
        "gamma": rng.gamma(2, mean / 2), "beta": rng.beta(2 + mean, 2).clip(0.001, 0.999),
        "ordinal": np.digitize(level + x + rng.logistic(size=len(nr)), [-1, 1]),
    })  # fmt: skip


@pytest.mark.parametrize("model", KINDS)
def test_errors_are_independent_between_records(model):
    """Those of the slope of what a person's rows share, as rows that are copies would show.

    Rows that stand four times have errors of half the size by row, and the same by record.
    """
    rows = clustered()
    by_record, by_row = (
        formula_fit(f"{model} ~ x", model, unit=PANEL),
        formula_fit(f"{model} ~ x", model),
    )
    estimate, _ = by_record(rows)
    assert estimate["x"] == pytest.approx(
        by_row(rows).params["x"] if model != "ordinal" else by_row(rows)[0]["x"]
    )
    once = rows.drop_duplicates("nr")
    copies = once.loc[np.repeat(once.index, 4)].reset_index(drop=True)
    four, apart = by_record(copies), by_record(copies.assign(nr=range(len(copies))))
    assert (four[1] / apart[1]).to_numpy() == pytest.approx(4, rel=0.02)


def test_errors_by_record_are_those_of_statsmodels():
    rows = clustered().drop(index=[3, 50])
    rows.loc[7, "x"] = np.nan
    there = rows.dropna()
    fit = smf.ols("ols ~ x", there).fit(cov_type="cluster", cov_kwds={"groups": there["nr"]})
    with pytest.warns(UserWarning, match="left out"):
        estimate, variance = formula_fit("ols ~ x", "ols", None, PANEL)(rows)
    assert estimate.to_numpy() == pytest.approx(fit.params.to_numpy())
    assert np.sqrt(variance.to_numpy()) == pytest.approx(fit.bse.to_numpy())
    assert fit.bse["x"] > 1.5 * smf.ols("ols ~ x", there).fit().bse["x"]
    with pytest.raises(InferenceError, match="all rows are of one record"):
        formula_fit("ols ~ x", "ols", None, PANEL)(there.assign(nr=1))


def test_a_released_panel_is_analysed_by_person(tmp_path, monkeypatch):
    """By all programs, with columns of the wave before; the page's records likewise."""
    formula, records = "wage ~ before.wage + member + year", waves(300)
    declared, folder = schema(keep=[formula]), tmp_path / "out/release"
    job = dpb.Job((dpb.Synthesizer(declared, Panels(5)),), tmp_path / "out", datasets=3)
    job.run(records, lambda _: None)
    release, texts = read_release(folder), programs(tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of missing values, and of intervals within persons
        of_before, plain = (
            analyse(release, formula_fit(text, "ols", release.levels, release.unit))
            for text in (formula, "wage ~ member + year")
        )
        ours = printed(texts["Python, with dpbayes"], folder, monkeypatch)
        theirs = printed(texts["Python, with pandas and statsmodels"], folder, monkeypatch)
    assert list(of_before.estimate.index) == ["Intercept", "before.wage", "member[T.yes]", "year"]
    (line,) = (line for line in ours.splitlines() if line.startswith("before.wage"))
    row = of_before.estimate["before.wage"], of_before.standard_error["before.wage"]
    assert numbers_in(line)[:2] == pytest.approx(row, rel=1e-3)  # of four digits
    low, high = plain.interval()
    assert sorted(numbers_in(theirs)) == pytest.approx(
        sorted([*plain.estimate, *low, *high]),
        rel=1e-5,  # the program has the size of a data set, relative to the records, by six digits
    )
    assert "vcovCL(fit, cluster = ~ `nr`)" in texts["R"]
    topic, made = PageTopic(declared, records), release.datasets[0]
    errors = of_records(topic.for_formula(topic.beside(made), made, formula), formula).estimates[1]
    rows = with_others(records, ["wage", "before.wage"], PANEL).dropna()
    fit = smf.ols("wage ~ Q('before.wage') + member + year", rows).fit(
        cov_type="cluster", cov_kwds={"groups": pd.factorize(rows["nr"])[0]}
    )
    assert sorted(errors) == pytest.approx(sorted(fit.bse), rel=1e-6)
