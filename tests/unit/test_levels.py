"""Division of public bins by noisy counts: parts, what they cost, and what comes out."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.marginals import counting, levels
from dpbayes.mechanisms.marginals.budget import MOVES, BudgetSplit, concentrated_loss
from dpbayes.mechanisms.marginals.counting import Measurement
from dpbayes.mechanisms.marginals.exact_counts import counts_of
from dpbayes.mechanisms.marginals.levels import (
    MOST_HEAPS,
    MOST_PARTS,
    RECORDS,
    ColumnLevels,
    divided,
    membership,
    room,
    roundest,
    with_heaps,
)
from dpbayes.mechanisms.tables.cells import Axis, TableCells, make_axis
from dpbayes.privacy.noise import StudyNoise
from dpbayes.records.chunks import Chunks, table_of
from tests.asking import RHO, Asked, remembered

PAY = {"type": "continuous", "lower": 0, "upper": 1000, "digits": 1, "missing": True}
DAYS = {"type": "count", "lower": 0, "upper": 5000}
COLUMNS = {"pay": {**PAY, "atoms": [0, 50]}, "days": DAYS, "ill": {"type": "binary"}}
N = 4000


def records(n=N, seed=1):
    """Pay crowds at 0, at 50 and near 51; days near 100."""
    rng = np.random.default_rng(seed)
    pay = rng.normal(51, 0.6, n).clip(0, 1000).round(1)
    pay[rng.random(n) < 0.3] = 0
    pay[rng.random(n) < 0.1] = 400
    pay[rng.random(n) < 0.1] = np.nan
    days = rng.poisson(100, n)
    return pd.DataFrame({"pay": pay, "days": days, "ill": rng.integers(2, size=n)})


def schema_of(**top):
    return dpb.Schema.from_dict({"rows": "public", "columns": COLUMNS, **top})


def axis_of(column, edges):
    return Axis(dpb.Column("x", **column), np.array(edges))


CASES = {
    "whole": axis_of(DAYS, [-0.5, 9.5, 10.5, 99.5, 5000.5]),
    "atoms": axis_of({**PAY, "atoms": [0, 0.1, 50]}, [0, 0.25, 49.95, 50.05, 60.05, 1000]),
    "few": axis_of({**PAY, "digits": 0}, [0, 1.5, 4.5, 1000]),
    "made": make_axis(dpb.Column("x", **PAY), 7, None, 1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_parts_divide_bins_between_values_of_the_grid(name, seed):
    """Every part has a value that is no atom, and membership is what encoding says."""
    axis, rng = CASES[name], np.random.default_rng(seed)
    counts = rng.exponential(60, axis.size) * rng.integers(-1, 4, axis.size)
    finer = divided(axis, counts, 1.0)
    assert set(axis.edges) <= set(finer.edges)
    assert (np.diff(finer.edges) > 0).all()
    new = sorted(set(finer.edges) - set(axis.edges))
    steps = np.array(new) / axis.column.step
    np.testing.assert_allclose(steps - np.floor(steps), 0.5, atol=1e-6)
    assert room(finer)[np.isin(finer.edges[:-1], new)].min(initial=1) >= 1
    member = membership(axis, finer)
    assert (member.sum(axis=0) == 1).all()
    bins = np.flatnonzero(~axis.ranges[2])
    number = member[bins].sum(axis=1)
    wanted = np.clip(np.floor(counts[bins] / RECORDS), 1, np.maximum(room(axis), 1))
    np.testing.assert_array_equal(number, wanted)
    values = rng.uniform(axis.column.lower, axis.column.upper, 3000)
    values = np.concatenate([values**3 / 1e6, axis.column.atoms, [np.nan] * axis.column.optional])
    values = pd.Series(
        np.rint(values) if axis.column.whole else axis.column.rounded_numbers(values)
    )
    coarse, fine = axis.encode(values), finer.encode(values)
    if name != "made":  # some of its public edges are values of the grid
        np.testing.assert_array_equal(member[coarse, fine], 1)
    back = finer.encode(finer.decode(fine, rng))
    if name != "made":
        np.testing.assert_array_equal(back, fine)


def test_there_is_a_public_most():
    axis = CASES["whole"]
    column = ColumnLevels.of(axis, None, divisible=True)
    for counts in (np.full(4, 1e9), np.full(4, -1.0), np.array([5, 3, 1e5, 1e6])):
        finer = column.by(counts, 1.0, 1.0)
        assert finer.size <= MOST_PARTS
        assert finer.most == column.most == MOST_PARTS + MOST_HEAPS
        heaped = finer.with_heaps(np.where(np.arange(finer.size) % 2, 1e6, 0), 1.0)
        assert finer.size <= heaped.size <= finer.most
    assert finer.size > 0.9 * MOST_PARTS
    assert heaped.size > finer.size + MOST_HEAPS // 2
    assert not ColumnLevels.of(make_axis(dpb.Column("x", "count", upper=9), 10, None, 1), None,
                               divisible=True).divisible  # fmt: skip


def tiny():
    """Columns of two bins with eight values, and of two levels; each possible record."""
    schema = dpb.Schema.from_dict(
        {"rows": 60, "columns": {"x": {"type": "count", "upper": 7}, "ill": {"type": "binary"}}}
    )
    axes = Axis(schema["x"], np.array([-0.5, 2.5, 7.5])), Axis(schema["ill"])
    cells = [(x, i) for x in range(8) for i in range(2)]
    return schema, TableCells((), axes), cells


@pytest.mark.parametrize("rho", [None, 50 * RHO], ids=["pure", "zCDP"])
@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
@pytest.mark.parametrize("seed", range(2))
def test_all_rounds_cost_what_is_claimed_on_every_neighbour(seed, adjacency, rho, monkeypatch):
    """As in test_measured, with a column whose bins are divided and that has heaps: exact."""
    monkeypatch.setattr(counting, "fit_shares", remembered)
    monkeypatch.setattr(levels, "RECORDS", 3.7 if rho is None else 5.5)
    monkeypatch.setattr(levels, "CLEAR", -np.inf)
    schema, cells, every = tiny()
    columns = [ColumnLevels.of(axis, None, divisible=True) for axis in cells.axes]
    base = [every[i] for i in np.random.default_rng(seed).integers(len(every), size=60)]

    def measure(chosen, noise):
        frame = pd.DataFrame(chosen, columns=["x", "ill"])
        budget = BudgetSplit(4.0, MOVES[adjacency], noise, rho)
        counts = counts_of(table_of(schema, frame), cells)
        return Measurement.of(counts, columns, 60, budget)

    asked = Asked(seed)
    measured = measure(base, asked)
    sizes = [q.shape[0] for q, *_ in asked.questions[:3]]
    assert sizes == [len(c) for c, *_ in measured.columns[0].sums] + [measured.columns[0].size]
    assert sizes[0] == 2 < sizes[1] < sizes[2]
    worst = dict.fromkeys(MOVES, 0.0)
    others = [("add-remove", [*base, cell]) for cell in every] + [("add-remove", base[1:])]
    others += [("substitution", [*base[1:], cell]) for cell in every]
    for kind, other in others:
        again = Asked(seed, asked.answers)
        measure(other, again)
        loss = asked.loss_beside(again, pure=rho is None)
        worst[kind] = max(worst[kind], loss)
    if rho is None:
        both = dpb.Marginals(4.0, adjacency).loss
        bounds = {"add-remove": both.epsilon, "substitution": both.substitution().epsilon}
    else:
        both = concentrated_loss(rho, adjacency, 0.0)
        bounds = {"add-remove": both.rho, "substitution": both.substitution().rho}
    for kind, bound in bounds.items():
        assert 0.9 * bound < worst[kind] <= bound


def test_chunks_give_the_counts_of_the_whole_on_divided_levels():
    schema, frame = schema_of(), records()
    parts = Chunks.of(lambda: (frame.iloc[i : i + 700] for i in range(0, N, 700)))
    found = []
    for given in (frame, parts):
        fitted = (
            dpb.Synthesizer(schema, dpb.Marginals(3.0, adjacency="add-remove")).fit(given).fitted
        )
        found.append(fitted.draw_private(StudyNoise(3)))
    np.testing.assert_array_equal(*map(np.asarray, found))
    sizes = [[axis.size for axis in measured.axes] for measured in found]
    assert sizes[0] == sizes[1]
    assert sizes[0][1] > fitted.cells.axes[1].size


def test_the_length_of_what_is_measured_is_public():
    """On other records, with other noise, and whatever is divided."""
    lengths = set()
    for seed in range(4):
        frame = records(seed=seed) if seed else records().assign(days=5000, pay=1000.0)
        fitted = (
            dpb.Synthesizer(schema_of(), dpb.Marginals(3.0, adjacency="add-remove"))
            .fit(frame)
            .fitted
        )
        lengths.add(np.asarray(fitted.draw_private(StudyNoise(seed))).shape)
    assert len(lengths) == 1


@pytest.mark.parametrize("draw", ["mode", "posterior"])
@pytest.mark.parametrize("rules", [[], ["pay <= days"]])
def test_values_inside_public_bins_come_back(rules, draw):
    """At ε = 20: half of those near 51 are within .4 of it, in a public bin of 9 to 2 units.

    Uniform inside the bin it would be a quarter or less.
    """
    frame = records()
    if rules:
        frame = frame[~(frame["pay"] > frame["days"])]
    fit = dpb.Synthesizer(
        schema_of(rules=rules), dpb.Marginals(20.0, draw=draw, adjacency="add-remove")
    ).fit(frame)
    data = fit.sample(seed=1).datasets[0]
    for name, low, high in (("pay", 50.55, 51.45), ("days", 90, 110), ("pay", -1, 0)):
        wanted, found = (d[name].between(low, high).mean() for d in (frame, data))
        assert abs(wanted - found) < 0.05


def test_spare_rows_are_on_divided_levels():
    """A rule that few rows keep: those found from public facts stand in, with valid levels."""
    schema = schema_of(rules=["days == 117"])
    frame = records().assign(days=117)
    for epsilon in (0.01, 20.0):
        data = (
            dpb.Synthesizer(schema, dpb.Marginals(epsilon, adjacency="add-remove"))
            .fit(frame)
            .sample(seed=1)
            .datasets[0]
        )
        assert (data["days"] == 117).all()
        schema.validate(data)


@pytest.mark.parametrize(
    ("first", "last", "number"),
    [
        (3, 3, 3), (41, 49, 45), (38, 44, 40), (-7, 12, 0), (-49, -41, -45), (101, 104, 102),
        (2961, 3040, 3000), (1201, 1399, 1300), (10**15 - 3, 10**15 + 9, 10**15), (11, 14, 12),
    ],
)  # fmt: skip
def test_the_roundest_number(first, last, number):
    assert roundest(first, last) == number


@pytest.mark.parametrize("name", CASES)
def test_a_heap_becomes_an_atom_where_its_bin_stands_out(name):
    """Never of flat counts; always of a hundred thousand records beside few."""
    axis = CASES[name]
    flat = np.maximum(room(axis), 1) * 3.0
    counts = np.zeros(axis.size)
    bins = np.flatnonzero(~axis.ranges[2])
    counts[bins] = flat
    assert with_heaps(axis, counts, 5.0).heaps == ()
    k = int(np.argmax(room(axis)))
    counts[bins[k]] += 1e5
    heaped = with_heaps(axis, counts, 5.0)
    (atom,) = heaped.heaps
    assert axis.encode(pd.Series([atom]))[0] == bins[k]
    member = membership(axis, heaped)
    assert (member.sum(axis=0) == 1).all()
    values = pd.Series(
        axis.column.rounded_numbers(np.linspace(axis.column.lower, axis.column.upper, 999))
    )
    values = values.round() if axis.column.whole else values
    assert (member.argmax(axis=0)[heaped.encode(values)] == axis.encode(values)).all()


def test_a_heap_beside_as_many_atoms_as_may_be_declared():
    """A declaration with more would be refused: after the noise was paid for."""
    atoms = [100.0 * k for k in range(100)]
    pay = np.r_[np.full(9_000, 20_000.0), np.linspace(0, 100_000, 11_000).round()]
    columns = {"pay": {"type": "continuous", "lower": 0, "upper": 100_000, "digits": 0}}
    columns["pay"]["atoms"] = atoms
    schema = dpb.Schema.from_dict({"columns": {**columns, "ill": {"type": "binary"}}})
    frame = pd.DataFrame({"pay": pay, "ill": np.arange(20_000) % 2})
    (data,) = dpb.Synthesizer(schema, dpb.Marginals(1.0)).fit(frame).sample(1, seed=2).datasets
    assert abs((data["pay"] == 20_000).sum() - 9_000) < 200


def test_heaps_stay_on_their_numbers():
    """A third of the records at 0 and a tenth at 300, in a column that was declared without."""
    rng = np.random.default_rng(1)
    pay = rng.gamma(4, 90, 20_000).clip(0, 5000).round(2)
    pay[rng.random(20_000) < 0.33] = 0
    pay[rng.random(20_000) < 0.1] = 300
    columns = {"pay": {"type": "continuous", "lower": 0, "upper": 5000, "digits": 2}}
    schema = dpb.Schema.from_dict({"columns": {**columns, "ill": {"type": "binary"}}})
    frame = pd.DataFrame({"pay": pay, "ill": rng.integers(2, size=20_000)})
    mechanism = dpb.Marginals(1.0, adjacency="add-remove")
    (data,) = dpb.Synthesizer(schema, mechanism).fit(frame).sample(1, seed=2).datasets
    for heap in (0, 300):
        # The noise of a count has an sd of some 10: 200 records are ten times the error of both.
        assert abs((data["pay"] == heap).sum() - (pay == heap).sum()) < 200
    assert data["pay"].round(2).equals(data["pay"])
