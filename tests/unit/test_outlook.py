"""What public facts say of a release comes true, and no record is asked for it."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.evaluate.utility import utility
from dpbayes.mechanisms.forecast import DISTANCE, noise_share, of_posterior, urn_share
from dpbayes.mechanisms.posterior.stage import PublicFacts
from dpbayes.privacy.noise import StudyNoise
from dpbayes.report.utility_warnings import lost, told
from dpbayes.schema import Rows
from tests.panels import schema as panel_schema
from tests.panels import waves

LEVELS = [str(k) for k in range(30)]
TWO = dpb.Schema.from_dict(
    {
        "rows": "public",
        "columns": {name: {"type": "categorical", "levels": LEVELS} for name in "ab"},
    }
)


def pairs(n=200):
    rng = np.random.default_rng(3)
    return pd.DataFrame({name: rng.choice(LEVELS[:12], n) for name in "ab"})


def apart(n=200):
    """Each record in a cell of its own."""
    cell = np.random.default_rng(5).permutation(900)[:n]
    return pd.DataFrame({"a": (cell // 30).astype(str), "b": (cell % 30).astype(str)})


def from_nowhere(mechanism, records, runs=20):
    """Share of the rows of data sets in cells that hold no record, and how many those are."""
    fit = dpb.Synthesizer(TWO, mechanism).fit(records)
    held = set(zip(records.a, records.b, strict=True))
    shares = []
    for seed in range(runs):
        rows = fit.sample(1, seed=seed).datasets[0].astype(str)
        shares.append(np.mean([pair not in held for pair in zip(rows.a, rows.b, strict=True)]))
    return np.mean(shares), 900 - len(held)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_the_least_share_of_noise_in_a_table(epsilon):
    """By 20 runs: the least for any records, and nearly the share where all cells differ."""
    mechanism = dpb.Laplace(epsilon, adjacency="add-remove")
    outlook = mechanism.outlook(TWO, 200, None)
    least = outlook.facts["share of noise"]
    assert least == noise_share(900, 200, epsilon)
    assert least < from_nowhere(mechanism, pairs())[0]
    assert least - 0.01 < from_nowhere(mechanism, apart())[0] < least + 0.05
    assert bool(outlook.warnings) is (least >= 0.1)
    assert all("`marginals`" in text for text in outlook.warnings)


def test_the_share_of_uniform_rows_of_an_urn():
    """20 runs of 200 rows: four standard errors of their mean are 0.03, doubled draws included."""
    for mechanism in (
        dpb.SmoothedHistogram(3.0, adjacency="add-remove"),
        dpb.MultinomialDirichlet(3.0),
    ):
        found, empty = from_nowhere(mechanism, pairs())
        share = mechanism.outlook(TWO, 200, None).facts["share of noise"]
        assert share == urn_share(900, 200, mechanism.alpha(200))
        assert abs(found - share * empty / 900) < 0.03


def test_the_distance_of_a_tempered_draw():
    """Of a multinomial: draws of Dirichlet(α n π), whose divergence from π is p / (2 α n)."""
    rng = np.random.default_rng(1)
    shares, n, alpha = rng.dirichlet(np.full(8, 5.0)), 4000, 0.2
    drawn = rng.dirichlet(alpha * n * shares, 2000)
    divergence = (shares * np.log(shares / drawn)).sum(axis=1).mean()
    distance = np.abs(drawn - shares).sum(axis=1).mean() / 2
    facts = of_posterior(n, 7, alpha, 1, None).facts
    assert math.isclose(divergence, 7 / (2 * alpha * n), rel_tol=0.05)
    assert 0.5 * facts[DISTANCE] < distance
    assert distance < facts[DISTANCE]


def test_few_records_per_parameter_and_how_many_are_needed():
    """With as many as it says the warning is gone, and with one less per parameter it is there."""
    (text,) = of_posterior(300, 6, 0.02, 1, 0.1).warnings
    assert "About 500 records per parameter are needed at ε = 0.1, 3,000 in all" in text
    assert not of_posterior(3000, 6, 0.02, 1, 0.1).warnings
    assert of_posterior(2994, 6, 0.02, 1, 0.1).warnings


def test_posteriors(schema):
    model = dpb.Regression("y ~ age", "normal").on(schema)
    narrow = dpb.Censored(1.0, adjacency="add-remove").outlook(schema, 5000, model)
    assert any("1 nats wide" in text for text in narrow.warnings)
    assert not dpb.Censored(5.0, adjacency="add-remove").outlook(schema, 5000, model).warnings
    assert not dpb.Anchored(1.0, adjacency="add-remove").outlook(schema, 5000, model).warnings
    assert dpb.Weighted().outlook(schema, 400, model).facts == {}  # weights follow the records
    assert PublicFacts.of(model, 400).parameters == model.parameters == 3


@pytest.mark.parametrize("mechanism", [dpb.Censored(5.0), dpb.Anchored(5.0)])
def test_counts_of_many_values(mechanism):
    """Their window lies around a uniform distribution's density, and not below 0: all were clamped.

    That of a family without dispersion is too narrow to be found, which is said.
    """
    for upper, wide in ((401, False), (403, True), (10**5, True)):
        columns = {"y": {"type": "count", "lower": 0, "upper": upper}}
        schema = dpb.Schema.from_dict({"rows": 1000, "columns": columns})
        for family in ("neg_binomial", "poisson"):
            model = dpb.Regression("y ~ 1", family).on(schema)
            facts, made = PublicFacts.of(model, 1000), mechanism.protecting("add-remove")
            first = made.stages(facts)[0]
            low, high = first.window
            if wide:
                assert (low + high) / 2 == 0
                assert first.centre == pytest.approx(-math.log(upper + 1))
            else:
                assert high == first.centre == 0
            warned = any("a family without dispersion" in t for t in made.outlook(
                schema, 1000, model).warnings)  # fmt: skip
            assert warned is (wide and family == "poisson")
    assert not dpb.Unweighted().outlook(schema, 1000, model).warnings
    columns = {"y": columns["y"], "s": {"type": "binary", "levels": ["no", "yes"]}}
    both = dpb.Schema.from_dict({"rows": 1000, "columns": columns})
    last = dpb.Regression("s ~ 1", "bernoulli")
    for family in ("neg_binomial", "poisson"):  # in a sequence, too
        model = dpb.Sequence([dpb.Regression("y ~ 1", family), last]).on(both)
        facts, made = PublicFacts.of(model, 1000), mechanism.protecting("add-remove")
        assert made.stages(facts)[0].centre < -math.log(1000)
        warned = any("without dispersion" in t for t in made.outlook(both, 1000, model).warnings)
        assert warned is (family == "poisson")


def test_a_sum_over_all_counts_has_a_limit():
    columns = {"y": {"type": "count", "lower": 0, "upper": 1001}}
    model = dpb.Regression("y ~ 1", "poisson")
    schema = dpb.Schema.from_dict({"rows": 100, "columns": columns})
    with pytest.raises(dpb.SchemaError, match="up to upper = 1,001 for each record"):
        dpb.Synthesizer(schema, dpb.BetaDivergence(1.0), model)


@pytest.mark.parametrize("covariates", [0, 4, 28])
@pytest.mark.parametrize(
    ("anchor", "family", "needed"),
    # Ten counted records at α = .85 ε / 4 where the range L is 2, and of ε / 12 without an anchor;
    # a draw at α = .15 ε / 12 is near the fit from 12 / (.15 1.2² ε) on.
    [
        ("auto", "normal", 47.06),
        ("histogram", "normal", 47.06),
        ("two-stage", "normal", 55.56),
        ("none", "normal", 120.0),
        ("auto", "bernoulli", 47.06),
    ],
)
def test_records_per_parameter_that_an_anchor_needs(covariates, anchor, family, needed):
    """Below it is said how many are needed, and with as many it is said no more."""
    outcome = {"type": "continuous", "lower": 0, "upper": 1}
    if family == "bernoulli":
        outcome = {"type": "binary", "levels": ["no", "yes"]}
    names = [f"x{k}" for k in range(covariates)]
    given = {x: {"type": "continuous", "lower": 0, "upper": 1, "public": True} for x in names}
    schema = dpb.Schema.from_dict({"rows": "public", "columns": {"y": outcome, **given}})
    model = dpb.Regression("y ~ " + (" + ".join(names) or "1"), family).on(schema)
    for epsilon in (0.1, 1.0):
        mechanism = dpb.Anchored(epsilon, anchor, adjacency="add-remove")
        few = math.floor(0.85 * needed / epsilon * model.parameters)
        (text,) = mechanism.outlook(schema, few, model).warnings
        said = re.search(r"About ([\d,]+) records per parameter are needed at ε = ", text)[1]
        each = int(said.replace(",", ""))
        assert 0.9 * needed / epsilon < each < 1.02 * needed / epsilon + 1  # L falls below 2
        assert ("the clamp decides" in text) is (anchor == "two-stage")
        enough = math.ceil(1.1 * each * model.parameters)
        assert not mechanism.outlook(schema, enough, model).warnings


def test_noise_of_measured_is_that_of_its_counts(schema):
    records = pd.DataFrame({"a": pairs().a, "b": pairs().b})
    for epsilon in (2.0, 0.1):
        mechanism = dpb.Marginals(epsilon, adjacency="add-remove")
        fit = dpb.Synthesizer(TWO, mechanism).fit(records)
        facts = mechanism.outlook(TWO, 200, None).facts
        assert fit.fitted.draw_private(StudyNoise(1)).sd == facts["noise sd in a pair's cell"]
    lost_at = mechanism.outlook(TWO, 20, None).warnings
    assert any("Do not rely on relations between two columns" in text for text in lost_at)


def said_of_relations(rows, missing=False, upper=50):
    column = {"type": "count", "upper": upper, "missing": missing}
    schema = dpb.Schema.from_dict({"rows": rows, "columns": {"x": column, "y": column}})
    outlook = dpb.Synthesizer(schema, dpb.Marginals(1.0)).outlook(rows)
    (text,) = (text for text in outlook.warnings if "Do not rely" in text)
    return text


def test_a_correlation_that_no_columns_have_is_not_named():
    few, more = said_of_relations(15), said_of_relations(20, missing=True)
    assert few.startswith("Do not rely on relations between two columns, however strong: noise")
    assert "They are kept from a correlation of 0." in few
    assert "(any where half of the records or fewer have both values)" in more
    assert "1.00" not in few + more


@pytest.mark.parametrize(("missing", "upper"), [(True, 50), (False, 50), (False, 2)])
def test_relations_that_the_limit_is_not_for_are_said(missing, upper):
    """Where few have both values a correlation of 0 became -.35, and one of .80 became .35."""
    text = said_of_relations(200, missing, upper)
    assert ("where half of the records have both values, any where few have)" in text) == missing
    assert ("Strong relations of columns with many values can lose half." in text) == (upper > 2)


@pytest.mark.parametrize(
    ("items", "wide", "said"),
    [(8, True, " a column with many values can lose a third."), (8, False, None), (4, True, None)],
)
def test_one_column_with_many_values_beside_many_with_few(items, wide, said):
    """It lost 10 to 35 % of eight correlations of .5 to .77 on 5,914 records, which is said.

    The sentence does not come where no column has many values, nor where columns are few.
    """
    columns = {f"item{k}": {"type": "count", "upper": 2} for k in range(items)}
    last = {"type": "continuous", "lower": -3, "upper": 3} if wide else columns["item0"]
    schema = dpb.Schema.from_dict({"rows": 5914, "columns": {**columns, "scale": last}})
    (text,) = dpb.Synthesizer(schema, dpb.Marginals(1.0)).outlook(5914).notes
    assert text.startswith("Do not rely on relations")
    strong = re.search(r"Strong relations of(.*?\.)", text)
    assert (strong and strong[1]) == said


def test_noise_of_statistics_is_the_same_for_all_records():
    """The scale that a made-up record tells is that of the records."""
    mechanism = dpb.Modips(1.0, adjacency="add-remove")
    fit = dpb.Synthesizer(TWO, mechanism).fit(pairs())
    worst = max(
        s.reach("add-remove") / fit.fitted.budget[s.name] / (200 if s.integer else 1)
        for s in fit.fitted.model.statistics
    )
    outlook = mechanism.outlook(TWO, 200, None)
    assert outlook.facts["noise"] == worst
    assert "`marginals`" in outlook.warnings[0]
    assert (
        not dpb.Modips(5.0, "bernoulli", adjacency="add-remove")
        .outlook(
            dpb.Schema.from_dict({"rows": "public", "columns": {"x": {"type": "binary"}}}),
            500,
            None,
        )
        .warnings
    )


def test_uniform_values_of_a_perturbed_sampler():
    """Where one level holds all records the least share is the share: 60,000 values, 5 errors."""
    schema = dpb.Schema({"a": TWO["a"]}, rows="public")
    mechanism = dpb.MarginalBootstrap(3.0)
    share = mechanism.outlook(schema, 300, None).facts["share of noise"]
    fit = dpb.Synthesizer(schema, mechanism).fit(pd.DataFrame({"a": ["7"] * 300}))
    rows = pd.concat(fit.sample(200, seed=1, accept="strict").datasets).a.astype(str)
    expected = share * 29 / 30
    assert abs((rows != "7").mean() - expected) < 5 * math.sqrt(expected / len(rows))
    assert dpb.PerturbedImputation(0.5).outlook(TWO, 300, None).warnings


def test_it_is_said_before_the_records_are_used_and_in_the_release(tmp_path, monkeypatch):
    """The same for all records of that number; of a noisy number nothing before it is paid for."""
    said = []
    for number, seed in enumerate((1, 2)):
        job = dpb.Job(
            (dpb.Synthesizer(TWO, dpb.Laplace(1.0, adjacency="add-remove")),),
            tmp_path / str(number),
        )
        with monkeypatch.context() as patch:
            patch.setattr(dpb.Synthesizer, "fit", lambda *_, **__: pytest.fail("too early"))
            with pytest.raises(pytest.fail.Exception):
                job.run(pairs().sample(frac=1, random_state=seed), said.append)
    assert len(said) == 2
    assert said[0] == said[1]
    job = dpb.Job(
        (dpb.Synthesizer(TWO, dpb.Laplace(1.0, adjacency="add-remove")),), tmp_path / "out"
    )
    notes = job.run(pairs(), lambda _: None).release.notes
    assert said[0].startswith(f"warning: {notes[0]} `marginals`")
    statement = json.loads((tmp_path / "out/release/guarantee.json").read_text())
    assert statement["notes"] == list(notes)
    noisy = dpb.Synthesizer(
        dpb.Schema(TWO.columns, Rows.parse("noisy")),
        dpb.Laplace(1.0, adjacency="add-remove"),
    )
    heard = []
    outcome = dpb.Job((noisy,), tmp_path / "noisy").run(pairs(), heard.append)
    assert f"for {outcome.fit.task.rows:,} records" in outcome.release.notes[0]
    assert (
        heard.index(f"warning: {outcome.fit.outlook.warnings[0]}") > 0
    )  # after that of the ledger


def test_levels_that_pairs_do_not_tell_apart_are_said():
    """Differences between the others are lost, as is seen in a release."""
    classes = [f"class {k}" for k in range(40)]
    score = {"type": "count", "upper": 50}
    schema = dpb.Schema.from_dict(
        {"rows": "public", "columns": {
            "class": {"type": "categorical", "levels": classes}, "score": score,
            "sex": {"type": "binary", "levels": ["f", "m"]}}}
    )  # fmt: skip
    synthesizer = dpb.Synthesizer(schema, dpb.Marginals(2.0))
    (text,) = (t for t in synthesizer.outlook(4000).warnings if "told apart" in t)
    said = re.match(r"Of column 'class' \(40 levels\) at most (\d+) frequent levels", text)
    assert said is not None
    few = dpb.Schema({**schema.columns, "class": replace(
        schema["class"], levels=tuple(classes[: int(said[1])]))}, schema.rows)  # fmt: skip
    assert not any("told apart" in t for t in
                   dpb.Synthesizer(few, dpb.Marginals(2.0)).outlook(4000).warnings)  # fmt: skip
    rng = np.random.default_rng(2)
    # The rare classes, which are put together, have means from 10 to 40.
    codes = np.where(
        rng.random(4000) < 0.8, rng.integers(16, size=4000), rng.integers(16, 40, 4000)
    )
    records = pd.DataFrame({
        "class": np.array(classes)[codes], "sex": rng.choice(["f", "m"], 4000),
        "score": rng.binomial(50, 0.2 + 0.6 * (codes % 8) / 7)})  # fmt: skip
    made = synthesizer.fit(records).sample(1, seed=1, accept="none")
    apart = made.settings["told_apart"]["class"]  # by noisy counts, which are paid for
    assert 8 <= len(apart) <= int(said[1])
    assert {*apart} < {*classes}
    assert len({*apart} & {*classes[:16]}) >= len(apart) - 2
    assert "sex" not in made.settings["told_apart"]
    release = made.datasets[0]
    rare = {name: d[d["class"].isin(classes[16:])] for name, d in
            {"records": records, "release": release}.items()}  # fmt: skip
    spread = {n: d.groupby("class")["score"].mean().std() for n, d in rare.items()}
    assert spread["release"] < spread["records"] / 3


def test_a_delta_above_one_in_n_is_said(tmp_path):
    """The mechanism's own δ, and one at which losses are added up; never of a noisy n before."""
    for mechanism, delta in ((dpb.Marginals(1.0, delta=0.01), None), (dpb.Laplace(1.0), 0.01)):
        synthesizer = dpb.Synthesizer(TWO, mechanism)
        for n, above in ((99, False), (200, True)):
            heard = []
            out = tmp_path / f"{mechanism.name}{n}"
            job = dpb.Job((synthesizer,), out, delta=delta, datasets=1)
            release = job.run(pairs(n), heard.append).release
            text = (
                "δ = 0.01 is above 1 / n, here 0.005: a δ so large would also allow that 2 of 200 "
            )
            assert above is any(note.startswith(text) for note in release.notes)
            assert above is any(line.startswith("warning: " + text) for line in heard)
    noisy = dpb.Synthesizer(dpb.Schema(TWO.columns, Rows.parse("noisy")), dpb.Laplace(1.0))
    heard = []
    # The noise has scale 20: of 400 records fewer than 100 are counted with probability 2e-7.
    dpb.Job((noisy,), tmp_path / "noisy", delta=0.01).run(pairs(400), heard.append)
    assert sum("is above 1 / n" in line for line in heard) == 1
    assert "is above" in heard[-1]


def test_what_no_number_of_rows_changes_is_said_before_anything_is_paid(tmp_path, monkeypatch):
    """With a noisy number, too; and no warning comes a second time after it is drawn."""
    tree = {
        "columns": {"x": {"type": "count", "upper": 9}, "person": {"type": "identifier"}},
        "cluster": {"column": "person", "most": 2},
    }
    of_rows = dpb.Synthesizer(dpb.Schema.from_dict(tree), dpb.Marginals(0.1))
    of_waves = dpb.Synthesizer(panel_schema(keep=["wage ~ before.wage"]), dpb.mechanisms.Panels(1))
    records = pd.DataFrame({"x": np.arange(200) % 10, "person": np.arange(200) // 2})
    for synthesizer, table, expected in (
        (of_rows, records, ["The number of rows has noise", "A person has up to 2 records"]),
        (of_waves, waves(30), ["Of what ties the waves", "keep 'wage"]),
    ):
        heard = []
        job = dpb.Job((synthesizer,), tmp_path / synthesizer.mechanism.name)
        with monkeypatch.context() as patch:
            patch.setattr(dpb.Synthesizer, "fit", lambda *_, **__: pytest.fail("too early"))
            with pytest.raises(pytest.fail.Exception):
                job.run(table, heard.append)
        assert len(heard) == len(expected)
        for line, start in zip(heard, expected, strict=True):
            assert line.startswith(f"warning: {start}")
    heard = []
    dpb.Job((of_rows,), tmp_path / "whole").run(records, heard.append)
    for part in ("The number of rows has noise", "A person has up to 2"):
        assert sum(line.startswith(f"warning: {part}") for line in heard) == 1


def test_a_number_of_rows_that_is_mostly_noise_is_said(tmp_path):
    """Before it is paid for where its noise is large, and then no more beside the number drawn."""
    tree = {
        "columns": {"x": {"type": "count", "upper": 9}, "person": {"type": "identifier"}},
        "cluster": {"column": "person", "most": 20},
    }
    records = pd.DataFrame({"x": np.arange(300) % 10, "person": np.arange(300) // 20})
    of_persons = dpb.Synthesizer(dpb.Schema.from_dict(tree), dpb.Laplace(1, bins=10))
    assert of_persons.rows_sd == pytest.approx(math.sqrt(2) * 20 / 0.05)
    drowned = "The number of rows has noise with an sd of 566 beside"
    heard = []
    release = dpb.Job((of_persons,), tmp_path / "persons").run(records, heard.append).release
    assert heard[0].startswith(f"warning: {drowned} the records: a data set may have far fewer")
    assert "{noisy = 0.2}" in heard[0]
    of_number = any(drowned in text for text in release.notes)
    assert of_number is (release.settings["public_rows"] < 4 * 565.7)
    assert not any(drowned in text for text in heard[1:])
    assert any(drowned in text for text in of_persons.outlook(1000).warnings)
    assert not any(drowned in text for text in of_persons.outlook(3000).warnings)
    plain = {"columns": {"x": tree["columns"]["x"]}}
    for declared in ({}, {"rows": 300}, {"rows": "public"}):
        alone = dpb.Synthesizer(dpb.Schema.from_dict(plain | declared), dpb.Laplace(1, bins=10))
        heard = []
        out = tmp_path / str(declared.get("rows"))
        dpb.Job((alone,), out).run(records[["x"]], heard.append)
        assert not any("The number of rows" in text for text in heard)


def test_what_was_lost_is_said_of_the_columns():
    """Beside the unclamped fit, and at the ends of the declared range."""
    column = dpb.Column("wage", "continuous", lower=0, upper=10, atoms=(0,))
    inside = pd.Series(np.linspace(0, 9, 101))
    cut, beyond = inside.where(inside < 7, 10), inside.where(inside < 8, 10)
    first = {
        "far": {"max_ecdf": 0.2},
        "near": {"max_ecdf": 0.03},
        "cut": utility(column, cut, cut),
        "beyond": utility(column, inside, beyond) | {"max_ecdf": 0.01},
    }
    assert first["beyond"]["at_bounds"]["original"] == 0.0  # 0 is an atom
    plain = {name: {"max_ecdf": 0.01} for name in first}
    said = lost({"synthetic_1": first, "unclamped": plain})
    assert [text.split("'")[1] for text in said] == ["far", "cut", "beyond"]
    sets = {f"synthetic_{k}": {"wage": {"max_ecdf": 0.02 + k / 1000}} for k in range(9)}
    assert lost(sets) == []
    sets["synthetic_3"]["wage"] = {
        "max_ecdf": 0.03, "original": {"missing": 0.01}, "synthetic": {"missing": 0.4}
    }  # fmt: skip
    (astray,) = lost(sets)
    assert astray.startswith("Column 'wage' is 0.390 from the records in synthetic_3, and 0.025 ")
    assert lost({}) == []
    assert told([], {}) == []
    assert told(["a"], {})[1].startswith("All of this follows the records")


@pytest.mark.parametrize(
    ("levels", "epsilon", "warned"), [(160, 1, True), (160, 9, False), (8, 1, False)]
)
def test_a_kept_regression_with_many_levels_for_few_records_is_warned_of(levels, epsilon, warned):
    """Of 160 schools at ε = 1 their effects had an sd of 6 in the released rows, and 2 in truth."""
    school = {"type": "categorical", "levels": [f"s{k}" for k in range(levels)], "public": True}
    columns = {"score": {"type": "continuous", "lower": -10, "upper": 30}, "school": school}
    schema = dpb.Schema.from_dict({"columns": columns})
    marginals = dpb.Marginals(epsilon, keep=["score ~ school"])
    said = dpb.Synthesizer(schema, marginals).outlook(7185).warnings
    assert any("noise moves the effect of each of the" in text for text in said) == warned


@pytest.mark.parametrize(("levels", "kept"), [(131, False), (200, True)])
def test_levels_too_many_for_a_kept_regression_are_not_sent_there(levels, kept):
    """With 131 schools of 2,287 pupils in `keep`, a slope of 2.4 became 1.4 at ε = 2."""
    school = {"type": "categorical", "levels": [f"s{k}" for k in range(levels)]}
    number = {"type": "continuous", "lower": -10, "upper": 30}
    schema = dpb.Schema.from_dict({"columns": {"score": number, "iq": number, "school": school}})
    rows = 2287 if levels == 131 else 100_000
    said = dpb.Synthesizer(schema, dpb.Marginals(2.0)).outlook(rows).warnings
    (text,) = [text for text in said if "frequent levels are told apart" in text]
    assert ("A regression in `keep` has a sum for each level" in text) == kept
    assert ("so many spoil all coefficients" in text) != kept


@pytest.mark.parametrize("public", [True, False])
def test_advice_on_groups_ends_somewhere(public):
    """With confidential covariates `keep` sent to score, score to anchored, and that to score."""
    columns = {
        "y": {"type": "count", "upper": 50},
        "x": {"type": "count", "upper": 9, "public": public},
        "site": {"type": "categorical", "levels": [f"s{k}" for k in range(99)], "public": True},
    }
    schema = dpb.Schema.from_dict({"rows": "public", "columns": columns})
    with pytest.raises(dpb.SchemaError, match="group terms are not kept") as refused:
        dpb.Synthesizer(schema, dpb.Marginals(1.0, keep=["y ~ x + (1 | site)"]))
    end = "Where `plan` warns of both, no mechanism keeps them at this ε."
    assert ("mechanism score" in str(refused.value)) == public
    assert (end in str(refused.value)) != public
    kept = dpb.Synthesizer(schema, dpb.Marginals(1.0, keep=["y ~ x + site"])).outlook(900)
    (text,) = (text for text in kept.warnings if "noise moves the effect of each" in text)
    assert "or take more ε or a δ." in text
    assert ("Mechanism score" in text) == public
    of_site = dpb.Regression("y ~ x + (1 | site)", "poisson")
    models = of_site if public else dpb.Sequence((dpb.Regression("x ~ 1", "poisson"), of_site))
    (text,) = dpb.Synthesizer(schema, dpb.Anchored(1.0), models).outlook(900).warnings
    assert ("mechanism score" in text) == public
    assert text.endswith("Where its plan is not accurate enough either, no mechanism is at this ε.")
    if not public:
        with pytest.raises(dpb.SchemaError, match="one column given public ones") as refused:
            dpb.Synthesizer(schema, dpb.Score(1.0), models)
        assert str(refused.value).endswith(end)
        with pytest.raises(dpb.SchemaError, match="with group terms as covariates"):
            dpb.Synthesizer(schema, dpb.Score(1.0), of_site)


def test_a_release_of_a_panel_says_that_its_rows_have_no_persons():
    tree = {
        "columns": {"x": {"type": "count", "upper": 9}, "person": {"type": "identifier"}},
        "cluster": {"column": "person", "most": 3},
    }
    schema = dpb.Schema.from_dict(tree)
    records = pd.DataFrame({"x": np.arange(30) % 10, "person": np.arange(30) // 3})
    synthesizer = dpb.Synthesizer(schema, dpb.Laplace(1, bins=10))
    for notes in (synthesizer.outlook(30).notes, synthesizer.fit(records).sample().notes):
        (note,) = [note for note in notes if "person" in note]
        assert note.startswith("A person has up to 3 records, and synthetic rows have no persons")
    del tree["cluster"], tree["columns"]["person"]
    alone = dpb.Synthesizer(dpb.Schema.from_dict(tree), dpb.Laplace(1, bins=10))
    assert not any("person" in note for note in alone.fit(records[["x"]]).sample().notes)


@pytest.mark.parametrize(("most", "said"), [(13, "`most = 5`, each record has about 2.6"), (3, "")])
def test_fewer_rows_of_a_person_are_named_as_a_remedy(most, said):
    """Of 13 rows of a man 4 were kept, and the error of a coefficient fell from 5.5 to 1.7."""
    tree = {
        "columns": {"x": {"type": "count", "upper": 9}, "man": {"type": "identifier"}},
        "cluster": {"column": "man", "most": most},
    }
    synthesizer = dpb.Synthesizer(dpb.Schema.from_dict(tree), dpb.Laplace(1.0, bins=10))
    (text,) = [text for text in synthesizer.outlook(6400).warnings if "no persons" in text]
    assert ("by a public rule" in text) == bool(said)
    assert said in text


def test_public_columns_that_no_formula_has_are_named():
    """For models alone: tables without one relate all columns."""
    public = {"type": "count", "upper": 9, "public": True}
    columns = {name: public for name in ("a", "b")}
    columns["c"] = {"type": "categorical", "levels": ["p", "q", "r"], "public": True}
    columns |= {"y": {"type": "binary"}, "z": {"type": "binary"}}
    schema = dpb.Schema.from_dict({"rows": "public", "columns": columns})

    def named(model, mechanism=None):
        made = dpb.Synthesizer(schema, mechanism or dpb.Anchored(1.0), model)
        notes = [note for note in made.outlook(10_000).notes if "does not use" in note]
        return notes[0].partition(":")[0] if notes else None

    assert named(dpb.Regression("y ~ a", "bernoulli")) == "The model does not use 'b', 'c'"
    assert named(dpb.Regression("y ~ log(a + 1) + (b | c)", "bernoulli")) is None
    both = [dpb.Regression("y ~ a", "bernoulli"), dpb.Regression("z ~ y + c", "bernoulli")]
    assert named(dpb.Sequence(both)) == "The model does not use 'b'"
    assert named(None, dpb.Marginals(1.0)) is None
