"""Tables of three columns: where they are counted, and what is kept by them."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.marginals import parts
from dpbayes.mechanisms.marginals.budget import BudgetSplit
from dpbayes.mechanisms.marginals.groups import Groups, merge
from dpbayes.mechanisms.marginals.levels import ColumnLevels
from dpbayes.mechanisms.marginals.parts import BudgetParts
from dpbayes.privacy.noise import StudyNoise

BINARY = {"type": "binary", "levels": ["no", "yes"]}


def interplay(n):
    """``c`` is what ``a`` and ``b`` agree on, 9 times of 10; each pair is independent.

    Returns:
        Records, and their schema; ``age`` has nothing to do with the others.
    """
    rng = np.random.default_rng(1)
    a, b = rng.integers(2, size=(2, n))
    c = np.where(rng.random(n) < 0.9, a == b, a != b).astype(int)
    words = {name: np.array(["no", "yes"])[x] for name, x in zip("abc", (a, b, c), strict=True)}
    age = {"type": "count", "lower": 0, "upper": 99}
    schema = {"rows": n, "columns": {**dict.fromkeys("abc", BINARY), "age": age}}
    frame = pd.DataFrame({**words, "age": rng.integers(100, size=n)})
    return frame, dpb.Schema.from_dict(schema)


def agreement(records):
    """Mean of the product of three signs: .8 in ``interplay``."""
    signs = [np.where(records[name] == "yes", 1, -1) for name in "abc"]
    return float(np.prod(signs, axis=0).mean())


@pytest.mark.parametrize("draw", ["mode", "posterior"])
def test_what_three_columns_say_together_is_kept_where_n_pays_for_it(draw, monkeypatch):
    """Without tables of three columns nothing is left of it. Bounds are ten standard errors."""
    records, schema = interplay(20_000)
    assert agreement(records) == pytest.approx(0.8, abs=0.05)
    fit = dpb.Synthesizer(schema, dpb.Marginals(2.0, draw=draw)).fit(records)
    found = fit.sample(accept="none", seed=1).datasets[0]
    assert agreement(found) == pytest.approx(0.8, abs=0.1)
    monkeypatch.setattr(parts, "MOST_TRIPLES", 0)
    fit = dpb.Synthesizer(schema, dpb.Marginals(2.0, draw=draw)).fit(records)
    assert abs(agreement(fit.sample(accept="none", seed=1).datasets[0])) < 0.1


def test_few_records_do_not_pay_for_tables_of_three_columns():
    """And many do; parts are of one budget, by public facts."""

    def divided(n, columns, epsilon=1.0, public=0):
        budget = BudgetSplit(epsilon, 1, StudyNoise(0))
        shares = [np.full(10, 0.1)] * public + [None] * (columns - public)
        return BudgetParts.of([ColumnLevels(10, None, s) for s in shares], n, budget)

    assert divided(1_601, 5).triples == divided(61_395, 5).triples == 0
    assert divided(10**7, 2).triples == 0
    assert divided(10**7, 3, public=2).triples > 0 == divided(10**7, 3, public=3).triples
    for n, columns, epsilon in ((61_395, 5, 3.0), (10**7, 6, 1.0)):
        found = divided(n, columns, epsilon)
        assert found.triples > 0
        spent = sum(found.margins.values()) + found.rest + found.triples
        assert spent == pytest.approx(1)
    assert divided(10**9, 7).triples == 0  # 35 of them


def test_merged_groups_hold_whole_groups_and_missing_values_apart():
    values = np.array([*range(20), np.nan])
    shares = np.full(21, 1 / 21)
    ordered = Groups(np.array([*np.repeat(np.arange(7), [3, 3, 3, 3, 3, 3, 2]), 7]), shares, values)
    found = merge(ordered, 4)
    assert found.of[-1] == found.size - 1 == 4
    assert (found.of[:-1] < 4).all()
    assert (np.diff(found.of) >= 0).all()
    assert all(len(np.unique(found.of[ordered.of == g])) == 1 for g in range(ordered.size))
    rare = Groups(np.arange(6), np.array([0.1, 0.3, 0.05, 0.4, 0.05, 0.1]), None)
    assert merge(rare, 3).of.tolist() == [2, 1, 2, 0, 2, 2]
    assert merge(rare, 6) is rare
