"""Sketches of tables: exact for small ones, near for large ones, and blind for what they keep."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbayes.records import overlap
from dpbayes.records.overlap import KEPT, Sketch, TableSketch, largest_share, sketches, tells_apart

SALT = "ab" * 32
elements = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40)


def sketch(values, salt=SALT):
    return Sketch.of("rows", list(values), salt)


@given(elements, elements)
def test_small_tables_are_compared_exactly(ours, theirs):
    """As multisets, against a count by hand."""
    common = sum(min(ours.count(letter), theirs.count(letter)) for letter in "abcdef")
    expected = common / min(len(ours), len(theirs))
    assert sketch(ours).share(sketch(theirs)) == pytest.approx(expected)
    assert sketch(theirs).share(sketch(ours)) == pytest.approx(expected)
    assert sketch(ours).same(sketch(reversed(ours)))


@pytest.mark.parametrize(("common", "size"), [(0, 30_000), (9_000, 30_000), (30_000, 30_000),
                                              (2_000, 2_000), (1_000, 2_000)])  # fmt: skip
def test_large_tables_are_compared_by_their_smallest_hashes(common, size):
    """Within five standard errors of the number of common ones among those that are kept."""
    large = sketch(range(40_000))
    other = sketch([*range(common), *range(100_000, 100_000 + size - common)])
    assert large.hashes.size == KEPT
    share = common / size
    seen = KEPT * size / 40_000  # of the other table, below the last hash that the large one kept
    error = np.sqrt(share * (1 - share) / seen) + np.sqrt(share / seen)
    assert large.share(other) == pytest.approx(share, abs=5 * error + 1e-9)


def test_another_key_shows_nothing():
    assert sketch(range(100)).share(sketch(range(100), "cd" * 32)) == 0.0


def table(n, seed=1):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"y": rng.uniform(0, 10, n), "sex": rng.choice(["f", "m"], n)})


def test_views_know_a_table_with_other_columns():
    ours = sketches(table(200), SALT)
    assert [one.kind for one in ours] == ["rows", "column"]
    changed = table(200).rename(columns={"y": "income"}).assign(dummy=7, sex="f")
    assert largest_share(ours, sketches(changed, SALT)) == 1.0
    assert largest_share(ours, sketches(table(200, seed=2), SALT)) == 0.0
    few = table(200)[["sex"]]
    assert [one.kind for one in sketches(few, SALT)] == ["rows"]
    assert not tells_apart(few)
    assert largest_share(ours, sketches(few, SALT)) == 0.0


def test_a_trace_holds_no_value_and_comes_back():
    records = table(50)
    trace = TableSketch.of(records)
    text = json.dumps(trace.to_dict())
    assert not [value for value in records["y"] if f"{value:.6f}"[:6] in text]
    again = TableSketch.from_dict(json.loads(text))
    for other, share in ((records, 1.0), (records[:20], 1.0), (table(50, 2), 0.0)):
        assert again.share(other) == trace.share(other) == share
    assert TableSketch.of(records).to_dict() != trace.to_dict()


def test_where_rows_tell_nobody_apart_only_the_same_table_counts():
    """Two surveys of a yes and a no agree in most rows, whoever answered."""
    yes = pd.DataFrame({"x": [1] * 300 + [0] * 700})
    trace = TableSketch.of(yes)
    assert trace.share(yes[::-1]) == 1.0
    assert trace.share(pd.DataFrame({"x": [1] * 305 + [0] * 695})) == 0.0
    assert trace.share(yes[:0]) == TableSketch.of(yes[:0]).share(yes[:0]) == 0.0


def test_thresholds_leave_room_for_chance():
    """Records of others coincide in fewer than half of the cases where a view tells them apart."""
    rng = np.random.default_rng(5)
    for distinct in (3_000, 6_000, 20_000):
        ours, theirs = (pd.DataFrame({"k": rng.integers(0, distinct, 1000)}) for _ in range(2))
        if tells_apart(ours):
            assert largest_share(sketches(ours, SALT), sketches(theirs, SALT)) < overlap.SHARE / 2
