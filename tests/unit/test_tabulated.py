"""The anchor from noisy tables: what it takes from the records is paid for, and nothing else."""

import itertools
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.mechanisms.posterior import tabulated
from dpbayes.mechanisms.posterior.records import BoundRecords, bind_stage
from dpbayes.mechanisms.posterior.stage import FEWEST_BINS, AnchorTables, PublicFacts
from dpbayes.mechanisms.posterior.tabulated import _Bins
from tests.unit.test_rows_of_posteriors import COLUMNS, MODELS, table

X = {"x": {"type": "binary", "levels": ["u", "v"], "public": True}}
Y = {"y": {"type": "categorical", "levels": ["a", "b", "c"]}}
GIVEN = ["u", "u", "v"]
OF_ONE_COLUMN = [(outcome, family) for outcome, family in MODELS if outcome in COLUMNS]


def test_an_outcome_of_two_columns_is_refused():
    outcome, family = next(each for each in MODELS if each not in OF_ONE_COLUMN)
    schema = dpb.Schema.from_dict({"columns": COLUMNS})
    with pytest.raises(dpb.SchemaError, match="counts records of one column"):
        dpb.Synthesizer(
            schema, dpb.Anchored(1.0, "histogram"), dpb.Regression(f"{outcome} ~ 1", family)
        )


class Recording:
    """Noise that notes what it is asked for and answers with counts of its own, or with zeros."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def counts(self, values, scale):
        self.asked.append((np.array(values), scale))
        return np.array(self.answers[len(self.asked) - 1]) if self.answers else 0 * np.array(values)


ENGINE = EmbeddedEngine()  # one, which compiles a program once


def bound(columns, model, records, rows="public"):
    schema = dpb.Schema.from_dict({"rows": rows, "columns": columns})
    mechanism = dpb.Anchored(1.0, "histogram")
    return BoundRecords(dpb.Synthesizer(schema, mechanism, model, engine=ENGINE).task(records))


def loss_between(one, other):
    """The largest log ratio that noise of these scales allows between two lists of counts."""
    return sum(np.abs(a - b).sum() / scale for (a, scale), (b, _) in zip(one, other, strict=True))


@pytest.fixture
def counts_of(monkeypatch):
    """Asks for noise and gives zeros: what was asked, and the records made up from the answer."""
    monkeypatch.setattr(tabulated, "_mode", lambda model, public, blank, parts, held: parts)

    def counted(records, tables, columns, formula, rows):
        noise = Recording()
        model = dpb.Regression(formula, "categorical")
        on = bound(columns, model, pd.DataFrame(records), rows)
        made_up = tabulated.draw_anchor(tables, on, noise)
        return noise.asked, made_up

    return counted


def same(one, other):
    pairs = [zip(a, b, strict=True) for a, b in zip(one, other, strict=True)]
    return all(np.array_equal(x, y) for pair in pairs for x, y in pair)


@pytest.mark.parametrize("count", [1, 2])
def test_changed_values_cost_twice_epsilon_and_no_more(counts_of, count):
    """All tables of three records with a public column, against all that differ in one value."""
    columns, levels = {**X, **Y}, "abc"
    if count == 2:
        columns["z"] = {"type": "continuous", "lower": 0, "upper": 1, "public": True}
    formula = "y ~ x" if count == 1 else "y ~ x + z"
    tables = AnchorTables(0.3, count, count, FEWEST_BINS, 0.1)
    given = {"x": GIVEN, **({"z": [0.1, 0.9, 0.5]} if count == 2 else {})}
    found = {
        y: counts_of({**given, "y": list(y)}, tables, columns, formula, "public")
        for y in itertools.product(levels, repeat=3)
    }
    first = next(iter(found.values()))[1]
    assert all(same(made_up, first) for _, made_up in found.values())  # of noise alone
    worst = max(
        loss_between(found[one][0], found[other][0])
        for one, other in itertools.combinations(found, 2)
        if sum(a != b for a, b in zip(one, other, strict=True)) == 1
    )
    assert worst == pytest.approx(2 * tables.epsilon)


def test_added_records_cost_epsilon_and_their_number_shows_nowhere(counts_of):
    """All tables of up to three records, whose number of rows was declared, against one more."""
    tables = AnchorTables(0.3, 1, 0, FEWEST_BINS, 0.1)
    found = {}
    for n in range(4):
        for y in itertools.combinations_with_replacement("abc", n):
            records = {"y": pd.Series(list(y), dtype=object)}
            found[y] = counts_of(records, tables, Y, "y ~ 1", 3)
    first = next(iter(found.values()))[1]
    assert all(same(made_up, first) for _, made_up in found.values())
    worst = 0.0
    for y, more in itertools.product(found, "abc"):
        if (other := tuple(sorted((*y, more)))) in found:
            worst = max(worst, loss_between(found[y][0], found[other][0]))
    assert worst == pytest.approx(tables.epsilon)


@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
def test_tables_and_draw_together_cost_epsilon(monkeypatch, adjacency):
    """Log ratios of table and draw on a grid, all neighbours of a few records: below epsilon.

    The noise of counts has a known law, so that the ratio of both is their sum.
    """
    monkeypatch.setattr(tabulated, "MADE_UP", 400)
    epsilon = 0.8
    columns = {"y": {"type": "binary", "levels": ["a", "b"]}}
    schema = dpb.Schema.from_dict({"rows": 4, "columns": columns})
    mechanism = dpb.Anchored(epsilon, "histogram", share=0.4, adjacency=adjacency)
    base = dpb.Synthesizer(schema, mechanism, dpb.Regression("y ~ 1", "bernoulli"), engine=ENGINE)
    grid = np.linspace(-8, 8, 161)
    points = make_draws({"intercept": grid[None]})
    pairs = {
        "add-remove": [(i, n - i, i + 1, n - i) for n in range(4) for i in range(n + 1)],
        "substitution": [(i, 4 - i, i + 1, 3 - i) for i in range(4)],
    }[adjacency]

    @cache
    def released(a, b, answer):
        records = pd.DataFrame({"y": pd.Series(["a"] * a + ["b"] * b, dtype=object)})
        on = BoundRecords(base.task(records))
        (stage,) = mechanism.stages(on.problem())
        noise = Recording(answer)
        anchor = tabulated.draw_anchor(stage.anchor, on, noise)
        logs = bind_stage(on, stage, anchor).bound.log_prob(points)
        return logs - np.logaddexp.reduce(logs), noise.asked[0]

    worst = 0.0
    for answer in ((9, -2, 0, 0), (-3, 12, 0, 0)):
        for a, b, c, d in pairs:
            one, (counts, scale) = released(a, b, answer)
            other, (others, _) = released(c, d, answer)
            of_table = np.abs(np.subtract(counts, others)).sum() / scale
            worst = max(worst, of_table + np.abs(one - other).max())
    assert 0.5 * epsilon < worst <= epsilon * (1 + 1e-9)
    claim = mechanism.guarantee()
    total = claim.epsilon if adjacency == "add-remove" else claim.epsilon_substitution
    assert total == pytest.approx(epsilon)


@pytest.mark.parametrize(("outcome", "family"), OF_ONE_COLUMN)
def test_every_family_has_an_anchor(monkeypatch, outcome, family):
    """From the counts alone: each record of the domain has a log-likelihood there."""
    monkeypatch.setattr(tabulated, "MADE_UP", 400)
    public = {
        "age": {"type": "continuous", "lower": 0, "upper": 100, "public": True},
        "g": {"type": "categorical", "levels": ["p", "q"], "public": True},
    }
    rng = np.random.default_rng(1)
    records = table(80).assign(age=rng.uniform(0, 100, 80), g=rng.choice(["p", "q"], 80))
    columns = {outcome: COLUMNS[outcome], **public}
    model = dpb.Regression(f"{outcome} ~ age + (1 | g)", family)
    on = bound(columns, model, records[list(columns)])
    tables = AnchorTables.of(2.0, on.problem())
    (found,) = on.log_lik(tabulated.draw_anchor(tables, on, Recording()))
    assert np.isfinite(found).all()


def test_bins_hold_every_value_of_the_domain():
    schema = dpb.Schema.from_dict({"columns": COLUMNS})
    for outcome, family in OF_ONE_COLUMN:
        model = dpb.Regression(f"{outcome} ~ 1", family).on(schema)
        bins = _Bins.of(model, 12)
        column = schema.columns[outcome]
        if column.levels:
            values = pd.Series(list(column.levels))
        else:
            values = pd.Series(np.linspace(column.lower or 0, column.upper, 31))
            values = values.round() if column.type == "count" else values
        number = bins.numbers(column.validate(values))
        assert number.min() == 0
        assert number.max() == bins.count - 1
        back = bins.made_up(np.bincount(number, minlength=bins.count), 400)
        again = bins.numbers(column.validate(pd.Series(back)))
        assert np.array_equal(np.unique(again), np.unique(number))


@pytest.mark.parametrize(
    ("family", "upper", "mean"),
    [("poisson", 2000, 25), ("poisson", 1000, 0.3), ("normal", 1000, 9)],
)
def test_noise_in_empty_bins_does_not_draw_the_anchor_to_them(family, upper, mean):
    """Of 24 bins most are empty: their noise alone would make a mean of 25 one of 70."""
    column = {"type": "count" if family == "poisson" else "continuous", "lower": 0, "upper": upper}
    schema = dpb.Schema.from_dict({"rows": "public", "columns": {"y": column}})
    model = dpb.Regression("y ~ 1", family).on(schema)
    rng, bins = np.random.default_rng(2), _Bins.of(model, 24)
    values = rng.poisson(mean, 400) if family == "poisson" else rng.uniform(0, 2 * mean, 400)
    number = bins.numbers(schema.columns["y"].validate(pd.Series(values)))
    counts = np.bincount(number, minlength=bins.count)
    for _ in range(20):
        noisy = counts + np.rint(rng.laplace(scale=10, size=bins.count)).astype(int)
        assert bins.made_up(bins.likely(noisy, 10.0), 400).mean() < max(2.5 * mean, 0.05 * upper)
    assert np.array_equal(bins.likely(counts, 1e-9).round(3), counts)  # without noise, all of them


def test_more_records_and_budget_bring_the_anchor_nearer():
    near = [
        AnchorTables.of(0.15, PublicFacts(n, 3, False, covariates=1)) for n in (200, 2_000, 20_000)
    ]
    assert [t.covariates for t in near] == sorted(t.covariates for t in near)
    assert [t.distance for t in near] == sorted((t.distance for t in near), reverse=True)
    far = AnchorTables.of(0.01, PublicFacts(200, 3, False, covariates=30))
    assert (far.count, far.covariates, far.bins) == (1, 0, FEWEST_BINS)
    assert near[-1].distance > math.sqrt(3 / 20_000)


def test_columns_of_a_sequence_are_refused():
    schema = dpb.Schema.from_dict({"columns": {**Y, "z": {"type": "binary", "levels": [0, 1]}}})
    models = dpb.Sequence(
        [dpb.Regression("y ~ 1", "categorical"), dpb.Regression("z ~ y", "bernoulli")]
    )
    with pytest.raises(dpb.SchemaError, match="Leave anchor at 'auto'"):
        dpb.Synthesizer(schema, dpb.Anchored(1, "histogram"), models)
