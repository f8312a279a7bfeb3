"""Tables of pairs on fine groups: what they cost, where they are counted, what is kept by them."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.marginals import counting, parts, refining
from dpbayes.mechanisms.marginals.budget import MOVES, BudgetSplit, concentrated_loss
from dpbayes.mechanisms.marginals.counting import Measurement
from dpbayes.mechanisms.marginals.exact_counts import FineCounts
from dpbayes.mechanisms.marginals.groups import Groups
from dpbayes.mechanisms.marginals.levels import ColumnLevels
from dpbayes.mechanisms.marginals.mechanism import order_of
from dpbayes.mechanisms.marginals.parts import BudgetParts
from dpbayes.mechanisms.marginals.refining import RefinedTable, fit_factors
from dpbayes.privacy.noise import StudyNoise
from tests.asking import CELLS, RHO, SIZES, Asked, neighbours, remembered

COLUMNS = [ColumnLevels(2, None), ColumnLevels(3, None), ColumnLevels(5, np.arange(5.0))]
N, LEVELS = 6, 41


def measure(records, adjacency, noise, rho):
    """All noisy counts, where the model's rows are any public ones."""
    budget = BudgetSplit(1.0, MOVES[adjacency], noise, rho)
    counts, parts = FineCounts(records, SIZES), BudgetParts.of(COLUMNS, N, budget)
    measured = Measurement.of(counts, COLUMNS, N, budget)
    return measured.refined(CELLS, counts, budget.of(parts.refined), parts.finest)


def each_level(shares, values, most):
    return Groups(np.arange(len(shares)), shares, values)


@pytest.mark.parametrize("sure", [-np.inf, 0.0, np.inf])
@pytest.mark.parametrize("rho", [None, RHO], ids=["pure", "zCDP"])
@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
def test_scores_and_tables_cost_what_is_claimed_on_every_neighbour(
    adjacency, rho, sure, monkeypatch
):
    """As in ``test_measured``; pairs are chosen whatever their scores, by them, or none is."""
    monkeypatch.setattr(counting, "fit_shares", remembered)
    monkeypatch.setattr(parts, "refined_share", lambda *_: (refining.REFINED, 5))
    monkeypatch.setattr(refining, "make_groups", each_level)
    gains = refining._gains
    if abs(sure) == np.inf:  # the scores are asked for, and then forgotten
        monkeypatch.setattr(refining, "_gains", lambda *given: 0 * gains(*given) - sure)
    records = CELLS[np.random.default_rng(1).integers(len(CELLS), size=N)]
    asked = Asked(1)
    measured = measure(records, adjacency, asked, rho)
    if sure:
        assert len(measured.refinement.tables) == (2 if sure < 0 else 0)
    worst = dict.fromkeys(MOVES, 0.0)
    for kind, other in neighbours(records):
        again = Asked(1, asked.answers)
        np.testing.assert_array_equal(measure(other, adjacency, again, rho), measured)
        assert len(again.questions) == len(asked.questions)
        worst[kind] = max(worst[kind], asked.loss_beside(again, pure=rho is None))
    if rho is None:
        loss = dpb.Marginals(1.0, adjacency).loss
        bounds = {"add-remove": loss.epsilon, "substitution": loss.substitution().epsilon}
    else:
        loss = concentrated_loss(rho, adjacency, refining.REFINED * refining.SCORED)
        bounds = {"add-remove": loss.rho, "substitution": loss.substitution().rho}
    for kind, bound in bounds.items():
        assert 0.9 * bound < worst[kind] <= bound
    assert worst[adjacency] > 0.98 * (rho or 1.0)


def test_pairs_chosen_by_exact_scores_are_noticed(monkeypatch):
    """A planted bug: of a neighbour another pair is counted, so that the questions differ."""
    monkeypatch.setattr(counting, "fit_shares", remembered)
    monkeypatch.setattr(parts, "refined_share", lambda *_: (refining.REFINED, 5))
    monkeypatch.setattr(refining, "make_groups", each_level)
    gains = refining._gains

    def by_exact(exact, modelled, n, rows, budget, *parts):
        gains(exact, modelled, n, rows, budget, *parts)  # the scores are asked for, and not used
        pairs = zip(exact, modelled, strict=True)
        return np.array([1e6 + np.abs(table - n / rows * other).mean() for table, other in pairs])

    def compare():
        records = CELLS[np.random.default_rng(0).integers(len(CELLS), size=N)]
        asked = Asked(1)
        measured = measure(records, "add-remove", asked, None)
        for _, other in neighbours(records):
            again = measure(other, "add-remove", Asked(1, asked.answers), None)
            np.testing.assert_array_equal(again, measured)

    compare()
    monkeypatch.setattr(refining, "_gains", by_exact)
    with pytest.raises(AssertionError):
        compare()


def test_few_records_or_levels_are_not_refined():
    """By public facts; shares are of one budget."""

    def divided(n, sizes, rho=0.0116):
        columns = [ColumnLevels(size, np.arange(float(size))) for size in sizes]
        return BudgetParts.of(columns, n, BudgetSplit(1.0, 1, StudyNoise(0), rho))

    assert divided(5_000, [40] * 10).refined == 0
    assert divided(10**9, [16] * 10).refined == 0
    assert divided(10**9, [40]).refined == 0
    for n, sizes in ((50_000, [2] * 8 + [40, 40]), (10**6, [40] * 5)):
        found = divided(n, sizes)
        assert found.refined > 0
        assert 16 <= found.finest <= 64
        spent = sum(found.margins.values()) + found.rest + found.triples + found.refined
        scores = parts.SCORES if len(sizes) >= parts.MANY else 0
        assert spent + scores == pytest.approx(1)


def mixed(n, public=False):
    """``b`` follows from ``a``, in an order that few groups of neighbours cannot keep."""
    rng = np.random.default_rng(1)
    a = rng.integers(LEVELS, size=n)
    frame = pd.DataFrame({"a": a, "b": 7 * a % LEVELS, "c": rng.integers(3, size=n)})
    count = {"type": "count", "lower": 0, "upper": LEVELS - 1}
    third = {"type": "categorical", "levels": [0, 1, 2]}
    columns = {"a": {**count, "public": public}, "b": count, "c": third}
    rows = "public" if public else n
    return frame, dpb.Schema.from_dict({"rows": rows, "columns": columns})


def follows(data):
    return float((7 * data["a"].astype(int) % LEVELS == data["b"].astype(int)).mean())


@pytest.mark.parametrize("draw", ["mode", "posterior"])
@pytest.mark.parametrize("public", [False, True])
def test_a_column_that_follows_from_another_is_kept(draw, public, monkeypatch):
    """Without refined tables little more than by chance, which is 1 in 41."""
    records, schema = mixed(20_000, public)

    def synthetic():
        mechanism = dpb.Marginals(6.0, draw=draw, adjacency="add-remove")
        fit = dpb.Synthesizer(schema, mechanism).fit(records)
        return fit.sample(accept="none", seed=1).datasets[0]

    assert follows(synthetic()) > 0.8
    monkeypatch.setattr(parts, "refined_share", lambda *_: (0.0, 0))
    assert follows(synthetic()) < 0.3


def test_records_in_chunks_have_the_same_tables():
    records, schema = mixed(9_000)
    synthesizer = dpb.Synthesizer(schema, dpb.Marginals(3.0, adjacency="add-remove"))
    outputs = [
        synthesizer.fit(given).fitted.draw_private(StudyNoise(1))
        for given in (
            records,
            dpb.Chunks(lambda: [lambda: records[:4_000], lambda: records[4_000:]]),
        )
    ]
    assert list(outputs[0].refinement.tables) == [(0, 1)]
    np.testing.assert_array_equal(*(np.asarray(output) for output in outputs))


def test_rules_and_kept_regressions_hold_beside_refined_tables():
    records, schema = mixed(9_000)
    records["d"] = records["a"] // 2
    entry = {"type": "count", "lower": 0, "upper": LEVELS - 1}
    columns = {**schema.to_dict()["columns"], "d": entry}
    schema = dpb.Schema.from_dict({"rows": 9_000, "columns": columns, "rules": ["d <= a"]})
    mechanism = dpb.Marginals(15.0, adjacency="add-remove", keep=["b ~ c"])
    fit = dpb.Synthesizer(schema, mechanism).fit(records)
    for data in fit.sample(2, seed=1).datasets:
        assert (data["d"] <= data["a"]).all()
        assert follows(data) > 0.5


@pytest.mark.parametrize("gaussian", [False, True])
def test_a_sparse_table_is_estimated_better_than_by_its_counts(gaussian):
    """Total variation: less than half that of the positive counts, and less for a draw too."""
    rng, size, n = np.random.default_rng(3), 30, 20_000
    truth = np.zeros((size, size))
    truth[np.arange(size), rng.permutation(size)] = n / size
    budget = BudgetSplit(0.05, 1, StudyNoise(4), 0.5 / 28**2 if gaussian else None)
    table = RefinedTable(
        budget.counts(truth.astype(int), 1.0),
        np.full(truth.shape, n / size**2),
        budget.scale(1.0),
        gaussian,
    )
    even = np.full(size, 1 / size)

    def off(shares):
        return np.abs(shares - truth / n).sum() / 2

    positive = np.maximum(table.counts, 0)
    for shares in (table.best(even, even), table.drawn(even, even, n, rng)):
        np.testing.assert_allclose(shares.sum(axis=0), even, atol=1e-4)
        np.testing.assert_allclose(shares.sum(axis=1), even, atol=1e-4)
        assert off(shares) < 0.5 * off(positive / positive.sum())


def test_factors_meet_the_tables():
    """Of two parents, where both agree on the shares of the levels."""
    rng = np.random.default_rng(5)
    codes = rng.integers(4, size=(20_000, 2))
    groups = Groups(np.arange(4), np.full(4, 0.25), np.arange(4.0))
    wanted = np.full((4, 4), 0.03) + 0.13 * np.eye(4)
    parents = {0: (groups, wanted), 1: (groups, wanted.T)}
    chances = rng.dirichlet(np.ones(4), len(codes))
    factors = fit_factors(chances, codes, np.full(4, 0.25), groups, parents)
    p = factors.apply(chances, codes)
    for k in (0, 1):
        now = groups.member[:, codes[:, k]] @ p / len(codes)
        assert np.abs(now - wanted).sum() / 2 < 0.02
    np.testing.assert_array_equal(
        factors.apply(chances, codes, flat=1.0).round(9), chances.round(9)
    )


def test_columns_with_a_refined_table_are_drawn_one_after_the_other():
    records, schema = mixed(9_000)
    output = (
        dpb.Synthesizer(schema, dpb.Marginals(3.0, adjacency="add-remove"))
        .fit(records)
        .fitted.draw_private(StudyNoise(1))
    )
    order = order_of(output, 0, {})
    assert abs(order.index(0) - order.index(1)) == 1
    assert order_of(output, 0, {0: {2, 1}}) in ([2, 1, 0], [1, 2, 0])
