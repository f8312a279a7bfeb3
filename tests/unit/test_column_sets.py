"""A ledger knows records again by small sets of columns, and takes other persons for others."""

import numpy as np
import pandas as pd
import pytest

from dpbayes.records import column_sets
from dpbayes.records.overlap import Identity, largest_share

SALT = "ab" * 32
N = 1500


def survey(n=N, seed=3):
    """Eight columns, of which no single one tells records apart."""
    rng = np.random.default_rng(seed)
    answers = {f"q{i}": rng.choice(list("abcdef"), n) for i in range(6)}
    return pd.DataFrame(
        {**answers, "age": rng.integers(18, 90, n), "hours": rng.integers(0, 60, n)}
    )


def sketches(table):
    return Identity(table, table).known(SALT).sketches


OURS = sketches(survey())


@pytest.mark.parametrize("rows", [slice(None), slice(1, None), slice(None, None, 2)])
@pytest.mark.parametrize("left_out", [
    ["q0", "q1"], ["q4", "age"], ["age", "hours"], ["q0", "q2", "q5"], ["q3", "q4", "hours"],
    ["q0", "q1", "q2", "q3"], ["q1", "q2", "q5", "hours"],
])  # fmt: skip
def test_records_are_known_again_without_columns(left_out, rows):
    part = survey().drop(columns=left_out).iloc[rows]
    theirs = sketches(part)
    assert largest_share(OURS, theirs) >= 0.5
    assert largest_share(theirs, OURS) >= 0.5


@pytest.mark.parametrize("left_out", [["q0"], ["age"], ["q1", "hours"], ["q0", "q2", "q5"]])
@pytest.mark.parametrize("persons", [75, 150, 300])
def test_a_small_part_is_known_again_without_columns(left_out, persons):
    """The attack: a region, without the column of regions, needs fewer columns than the whole."""
    part = survey().sample(persons, random_state=1).drop(columns=left_out)
    assert largest_share(OURS, sketches(part)) >= 0.5


@pytest.mark.parametrize("answer", list("abcdef"))
def test_a_subgroup_is_known_again_without_the_column_that_defines_it(answer):
    large = survey(6000)
    part = large[large["q3"] == answer].drop(columns="q3")
    assert largest_share(sketches(large), sketches(part)) >= 0.5


def test_pooled_waves_with_a_column_more_are_known_again():
    waves = [survey(seed=seed).assign(year=2000 + seed) for seed in range(3, 8)]
    assert largest_share(OURS, sketches(pd.concat(waves, ignore_index=True))) >= 0.5


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_persons_are_known_again_with_columns_added(columns):
    """The attack: a register was linked, and the search spent its sets on the new columns."""
    rng = np.random.default_rng(7)
    large = survey(9000)
    linked = large.assign(**{f"z{k}": rng.integers(0, 12, 9000) for k in range(columns)})
    known, other = sketches(large), sketches(linked)
    assert largest_share(known, other) >= 0.5
    assert largest_share(other, known) >= 0.5


def test_a_few_other_persons_beside_many_are_not():
    """512 hashes of many records left one or none to compare, and one of one was "100 %"."""
    large = sketches(survey(30_000))
    for persons in (50, 100, 200, 400):
        for seed in range(4, 8):
            assert largest_share(large, sketches(survey(persons, seed=seed))) < 0.5


@pytest.mark.parametrize("persons", [75, 300, 6000])
@pytest.mark.parametrize("seed", range(4, 9))
def test_fewer_or_more_other_persons_are_not(persons, seed):
    others = sketches(survey(persons, seed=seed))
    assert largest_share(OURS, others) < 0.45
    assert largest_share(OURS, sketches(survey(persons, seed=seed).drop(columns="q1"))) < 0.45


def test_names_are_not_needed_when_two_columns_are_left_out():
    part = survey().drop(columns=["q1", "q4"]).iloc[1:].set_axis(list("uvwxyz"), axis="columns")
    assert largest_share(OURS, sketches(part)) >= 0.5


@pytest.mark.parametrize("seed", range(4, 9))
@pytest.mark.parametrize("left_out", [[], ["q0", "q1"], ["q0", "q1", "q2", "hours"]])
def test_other_persons_with_the_same_columns_are_not(left_out, seed):
    others = survey(seed=seed).drop(columns=left_out)
    assert largest_share(OURS, sketches(others)) < 0.4


def test_numbers_of_a_design_tell_no_persons_apart():
    """Two studies of 50 schools have the same numbers of schools and pupils, whoever took part."""
    ours, theirs = (
        pd.DataFrame(
            {
                "school": np.arange(N) // 30,
                "pupil": np.arange(N) % 30,
                "ill": np.random.default_rng(seed).choice(["no", "yes"], N),
            }
        )
        for seed in (1, 2)
    )
    # The row itself holds an answer; the pair of numbers alone would be common to all.
    kinds = [s.kind for s in sketches(ours)]
    assert "set" not in kinds
    assert "set" not in [s.kind for s in sketches(theirs)]


def test_number_and_size_are_bounded_and_hashes_need_the_key():
    rng = np.random.default_rng(1)
    wide = pd.DataFrame({f"q{i}": rng.choice(list("abcdef"), 9000) for i in range(16)})
    sets = list(column_sets.hashed_sets(wide, SALT, 0.9))
    longer = [hashes.size == column_sets.KEPT_LONGER for _, hashes in sets]
    # Without names, equal levels tell too little.
    assert longer.count(False) == column_sets.MOST_NAMED
    assert longer.count(True) <= column_sets.MORE * column_sets.MOST_NAMED
    assert max(hashes.size for _, hashes in sets) == 9000 // column_sets.KEPT_OF
    assert all(abs(size / 9000 - 0.95) < 0.1 for size, _ in sets)  # estimates
    other = list(column_sets.hashed_sets(wide, "cd" * 32, 0.9))
    assert not set(sets[0][1].tolist()) & set(other[0][1].tolist())


def test_small_tables_inside_large_ones_are_found():
    """Ten of 100,000 persons: the large table keeps enough hashes to have some of them."""
    rng = np.random.default_rng(2)
    large = pd.DataFrame({"income": rng.integers(0, 10**9, 100_000)})
    known = sketches(large)
    for start in range(0, 1000, 100):
        assert largest_share(known, sketches(large.iloc[start : start + 10])) >= 0.5


def repeated(table, rows, answered):
    """Rows of a unit that did not answer, the same ones or in a table of their own."""
    first = table.iloc[[0]] if answered else table.iloc[[0]] * np.nan
    return pd.concat([table, *[first] * rows], ignore_index=True)


NUMBERS = survey().replace(dict(zip("abcdef", range(6), strict=True))).astype(float)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("rows", [140, 300, 1200])
@pytest.mark.parametrize("change", [
    lambda t: t.drop(columns="q0"),
    lambda t: t.drop(columns="age"),
    lambda t: t.assign(wave=1.0),
    lambda t: t + 1,
    lambda t: t.assign(line=np.r_[np.zeros(N), np.arange(len(t) - N)]),
    lambda t: t.assign(smoker=np.random.default_rng(0).integers(0, 2, len(t))),
], ids=["less", "age less", "constant", "shifted", "numbered", "random"])  # fmt: skip
def test_repeated_rows_hide_no_records(change, rows, answered):
    """The attack: one row in ten repeated another, and no set told the rows apart."""
    table = repeated(NUMBERS, rows, answered)
    assert largest_share(sketches(table), sketches(change(table))) >= 0.5


@pytest.mark.parametrize("seed", range(4, 9))
def test_other_persons_with_as_many_repeated_rows_are_others(seed):
    other = survey(seed=seed).replace(dict(zip("abcdef", range(6), strict=True))).astype(float)
    ours, theirs = (repeated(table, 600, answered=False) for table in (NUMBERS, other))
    assert largest_share([s for s in sketches(ours) if s.kind != "rows"], sketches(theirs)) < 0.4


@pytest.mark.parametrize("heavy", [0.12, 0.3, 0.45])
def test_a_column_that_is_cut_at_the_top_still_tells_records_apart(heavy):
    rng = np.random.default_rng(5)
    income = np.where(rng.random(N) < heavy, 10**6, rng.choice(10**6, N, replace=False))
    table = pd.DataFrame({"income": income, "sex": rng.choice(["f", "m"], N)})
    part = table.drop(columns="sex").iloc[: N // 2]
    assert largest_share(sketches(table), sketches(part)) >= 0.5
    others = pd.DataFrame({"income": rng.permutation(10**6)[:N], "sex": table.sex})
    assert largest_share(sketches(table), sketches(others)) < 0.4


def panel(seed, persons=300, waves=3):
    """Numbers of persons and waves tell all rows apart, but are those of other panels, too."""
    rng = np.random.default_rng(seed)
    n = persons * waves
    return pd.DataFrame(
        {
            "id": np.repeat(np.arange(persons), waves),
            "time": np.tile(np.arange(waves), persons),
            "sex": np.repeat(rng.choice(["f", "m"], persons), waves),
            "age": np.repeat(rng.integers(20, 80, persons), waves),
            "score": rng.integers(0, 6, n),
            "dose": rng.integers(0, 4, n),
        }
    )


@pytest.mark.parametrize("left_out", ["score", "dose", "sex", "age"])
def test_a_panel_is_known_again_without_a_column(left_out):
    """The attack: the numbers of the design told all rows apart, and no further column counted."""
    ours, theirs = sketches(panel(1)), sketches(panel(1).drop(columns=left_out))
    assert largest_share(ours, theirs) >= 0.5
    others = sketches(panel(2).drop(columns=left_out))
    assert largest_share(ours, others) < 0.4
