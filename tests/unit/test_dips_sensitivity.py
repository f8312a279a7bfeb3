"""Declared sensitivities against brute force over all neighbours of all small data sets.

The public number of rows is another one than that of the records: nothing may follow the latter.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.modips import conjugate, glom, regression, units
from dpbayes.mechanisms.modips.mechanism import MODELS, get_model
from dpbayes.mechanisms.modips.modes import fit_logistic
from dpbayes.mechanisms.modips.regression import (
    USUAL,
    Linear,
    Logistic,
    Slomag,
    usual_information,
)
from dpbayes.mechanisms.modips.statistic_model import Spending
from dpbayes.mechanisms.modips.units import MOST
from dpbayes.privacy.noise import StudyNoise
from studies.bowen_liu import comparison_4 as slomag
from studies.bowen_liu import mixed

BINARY = {"type": "binary", "levels": ["n", "y"]}
THREE = {"type": "categorical", "levels": ["a", "b", "c"]}
NUMBER = {"type": "continuous", "lower": -3.0, "upper": 4.0}
OTHER = {"type": "continuous", "lower": 0.0, "upper": 1.0}
COUNT = {"type": "count", "lower": 1, "upper": 4}


def schema(**columns):
    return dpb.Schema.from_dict({"columns": columns})


def spending(model, columns):
    return Spending.equal(1.0, model.parts(columns))


def neighbours(domain, n):
    """(records, neighbour, adjacency) for every multiset of n records of a finite domain."""
    for rows in itertools.combinations_with_replacement(range(len(domain)), n):
        for i in range(n):
            rest = rows[:i] + rows[i + 1 :]
            yield rows, rest, "add-remove"
            for other in range(len(domain)):
                yield rows, (*rest, other), "substitution"


def check(schema, domain, n, statistics, tight=(), rows=math.inf):
    """No statistic moves by more than declared; those named ``tight`` do move by as much.

    Whole numbers are compared exactly. Ranges follow ``rows``: they hold up to as many records.
    """
    frame = schema.validate(pd.DataFrame(domain, columns=list(schema.columns)))
    known = {}

    def values(rows):
        key = tuple(sorted(rows))
        if key not in known:
            known[key] = statistics(frame.iloc[list(key)].reset_index(drop=True))
        return known[key]

    largest = {}
    for records, other, adjacency in neighbours(domain, n):
        for a, b in zip(values(records), values(other), strict=True):
            assert (a.name, a.change, a.lower, a.upper, a.unit, a.origin) == (
                b.name, b.change, b.lower, b.upper, b.unit, b.origin,
            )  # fmt: skip
            moved = np.abs(a.value - b.value)
            declared = a.change[adjacency]
            assert np.issubdtype(moved.dtype, np.integer) == a.integer
            slack = 1 if a.integer else 1 + 1e-9
            assert moved.sum() <= declared.l1 * slack, (a.name, adjacency, records, other)
            length = np.linalg.norm(moved.astype(float))
            assert length <= declared.l2 * (1 + 1e-9), (a.name, adjacency, records, other)
            if math.isfinite(a.upper):
                assert (moved > 0).sum() <= declared.entries
            if n <= rows:
                assert (a.lower <= a.value).all()
                assert (a.value <= a.upper).all()
            key = (a.name, adjacency)
            largest[key] = max(largest.get(key, 0.0), moved.sum() / declared.l1)
    assert largest
    for name, adjacency in tight:
        assert largest[name, adjacency] > 0.999, (name, adjacency, largest[name, adjacency])
    return largest


BOTH = ("add-remove", "substitution")
MIXED = schema(g=BINARY, z=NUMBER, u=OTHER)
MIXED_DOMAIN = list(itertools.product("ny", [-3.0, 4.0], [0.0, 1.0]))
CASES = {
    "bernoulli": (schema(x=BINARY), [("n",), ("y",)], [("count", a) for a in BOTH]),
    "poisson-gamma": (
        schema(x=COUNT), [(k,) for k in range(1, 5)], [("total", a) for a in BOTH],
    ),
    "multinomial": (
        schema(x=THREE, g=BINARY), list(itertools.product("abc", "ny")),
        [("counts", a) for a in BOTH],
    ),
    "normal": (
        schema(x=NUMBER), [(v,) for v in (-3.0, -1.5, 0.5, 2.0, 4.0)],
        [("mean", a) for a in BOTH],
    ),
    "glom": (
        MIXED, MIXED_DOMAIN,
        [(name, a) for name in ("counts", "sum z", "sum u") for a in BOTH],
    ),
    "slomag": (MIXED, MIXED_DOMAIN, [("sum z", a) for a in BOTH]),
    "sequential": (
        schema(g=BINARY, x=THREE, z=NUMBER), list(itertools.product("ny", "ab", [-3.0, 4.0])),
        [("g counts", a) for a in BOTH],
    ),
}  # fmt: skip


def test_every_model_is_covered():
    assert set(CASES) == set(MODELS)


@pytest.mark.parametrize("rows", ["public", 1, 3, 9])
@pytest.mark.parametrize("name", CASES)
def test_statistics_of_models(name, rows):
    """All tables of up to four records, none included, under public and declared numbers."""
    columns, domain, tight = CASES[name]
    declared = 4 if rows == "public" else rows
    columns = dpb.Schema(columns.columns, dpb.Schema.from_dict(
        {"rows": rows, "columns": {"x": BINARY}}
    ).rows)  # fmt: skip
    model = get_model(name, None)

    def statistics(records):
        return model.fit(columns, records, spending(model, columns), declared).statistics

    for n in range(1, 5 if len(domain) < 7 else 4):
        check(columns, domain, n, statistics, tight, declared)


LARGE_NUMBER = 2**31  # stands for the sums of 2^26 records at a bound: its square is 2^62


def large_numbers(values, *_):
    """Replace ``whole`` and ``features``: a column of numbers, all of them as large."""
    return np.full(np.shape(values), LARGE_NUMBER, dtype=np.int64)


@pytest.mark.parametrize("records", [1, 2, 3, 4])
def test_sums_beyond_64_bits_are_clipped(monkeypatch, records):
    """At 2^27 records they wrapped, and one record moved them by far more than declared."""
    for module in (conjugate, regression):
        monkeypatch.setattr(module, "whole", large_numbers)
    monkeypatch.setattr(regression, "features", lambda _, frame: large_numbers(frame))
    monkeypatch.setattr(units, "BLOCK", 1, raising=False)
    frame = pd.DataFrame({"z": np.zeros(records)})
    column = schema(z=NUMBER)["z"]
    (products,) = regression.Linear(column, [column], 3, known=True).statistics(frame)
    assert products.value.tolist() == 3 * [MOST]
    mean, variance = conjugate.normal_statistics(frame["z"], (-3.0, 4.0), 3, math.inf)
    assert (mean.value, variance.value) == (records * LARGE_NUMBER, 0)
    z = large_numbers(frame) * np.where(np.arange(records) % 2, 1, -1)[:, None]
    sums, squares = glom.moment_statistics([column], z, np.zeros(records, dtype=int), 1, math.inf)
    total = (records % 2) * -LARGE_NUMBER
    exact = records * LARGE_NUMBER**2 - total**2 // records - (total**2 % records > 0)
    assert sums.value.tolist() == [total]
    assert squares.value == min(exact, MOST)


def test_sums_do_not_follow_the_size_of_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    x, z = rng.integers(-(2**18), 2**18, (50, 3)), rng.integers(-(2**18), 2**18, (50, 2))
    cell = rng.integers(0, 4, 50)
    monkeypatch.setattr(units, "BLOCK", 7)
    assert (units.product_sums(x, z) == x.T @ z).all()
    assert (units.product_sums(x[:0], z[:0]) == 0).all()
    for k, total in enumerate(units.cell_sums(cell, x[:, 0] * z[:, 0], 5)):
        assert total == (x[:, 0] * z[:, 0])[cell == k].sum()


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_mean_and_variance_for_several_n(n):
    """The worst is one record away from all others: (1 - 1/n) of the bound."""
    columns = schema(x={"type": "continuous", "lower": 0.0, "upper": 1.0})
    model = get_model("normal", None)
    domain = [(v,) for v in (0.0, 0.3, 0.5, 1.0)]

    def statistics(records):
        return model.fit(columns, records, spending(model, columns), 5).statistics

    found = check(columns, domain, n, statistics, [("mean", a) for a in BOTH], rows=5)
    assert found["variance", "add-remove"] == pytest.approx(1 - 1 / n, abs=1e-5)
    assert found["variance", "substitution"] == pytest.approx(1 - 1 / n, abs=1e-5)


def test_products_about_cell_means_with_many_numbers():
    """More values of one cell: squares and products at their worst."""
    columns = schema(g=BINARY, z=OTHER, u=OTHER)
    domain = list(itertools.product("ny", [0.0, 1.0], [0.0, 1.0]))
    model = get_model("glom", None)
    found = check(
        columns, domain, 5,
        lambda records: model.fit(columns, records, spending(model, columns), 5).statistics,
    )  # fmt: skip
    assert found["product z * z", "add-remove"] > 0.75  # 1 - 1/n_k of the bound
    assert found["product z * u", "substitution"] > 0.55


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("ridge", [0.05, 1.0])
def test_modes_of_regressions(levels, ridge):
    target = BINARY if levels == 2 else THREE
    columns = schema(z=OTHER, g=BINARY, y=target)
    names = list(columns.columns.values())
    step = Logistic(names[2], names[:2], ridge, 5)
    labels = target["levels"]
    domain = [(z, g, y) for z in (0.0, 1.0) for g in "ny" for y in labels]
    found = check(columns, domain, 1, step.statistics)
    found |= check(columns, domain, 2, step.statistics)
    # The bound is for the worst direction; in L1 it has sqrt(d) to spare.
    assert 0.05 < max(found.values()) <= 1


def test_a_mode_is_found_to_the_accuracy_that_is_declared():
    """Against scipy, and where the classes are separable and the ridge is weak."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(60), rng.uniform(-1, 1, (60, 2))]) / math.sqrt(3)
    y = (x[:, 1] > 0).astype(int)
    mode = fit_logistic(x, y, 2, 1e-3)

    def objective(b):
        return np.logaddexp(0, x @ b).sum() - (y * (x @ b)).sum() + 5e-4 * b @ b

    best = minimize(objective, np.zeros(3), method="BFGS", options={"gtol": 1e-10}).x
    assert np.linalg.norm(mode[0] - best) < 2e-3 * np.linalg.norm(best)
    assert objective(mode[0]) <= objective(best) + 1e-12


def test_a_mode_is_found_where_steps_gain_less_than_rounding():
    """Regressions whose last step used to be refused, although the gradient was still too large."""
    for seed, ridge in (
        (0, 0.10658298715850503),
        (16, 0.10658298715850503),
        (81, 0.2256361855851836),
    ):
        data = slomag.draw(np.random.default_rng(seed))
        records = mixed.frame(data, slomag.LEVELS)
        where, model = mixed.schema(slomag.LEVELS), Slomag(ridge)
        fitted = model.fit(where, records, spending(model, where), mixed.N)
        assert all(np.isfinite(s.value).all() for s in fitted.statistics)


@pytest.mark.parametrize(("public", "known"), [(False, True), (True, True), (False, False)])
def test_cross_products_of_linear_regressions(public, known):
    predictor = {**THREE, "public": public}
    columns = schema(g=predictor, z=OTHER, x=NUMBER)
    g, z, x = columns.columns.values()
    step = Linear(x, [g] if public else [g, z], 5, known)
    domain = [(a, b, c) for a in "abc" for b in (0.0, 1.0) for c in (-3.0, 4.0)]
    if public:  # neighbours share the public columns: a record keeps its level
        domain = [row for row in domain if row[0] == "b"]
    for n in (1, 2, 3):
        found = check(columns, domain, n, step.statistics)
        assert found["x products", "add-remove"] > 0.999
        assert found["x products", "substitution"] > 0.45


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("glom", ["g", "x", "x * x", "x * x * x"]),
        ("slomag", ["g", "a", "b * c", "a * b", "c"]),
        ("slomag", ["sum x", "x coefficients"]),
    ],
)
def test_statistics_with_one_name_are_refused(model, names):
    """A product of (x, x * x * x) took the place of that of (x * x, x * x), and the entry of the
    other in the covariance was whatever the memory held.
    """
    columns = {names[0]: BINARY, **dict.fromkeys(names[1:], NUMBER)}
    with pytest.raises(dpb.SchemaError, match="two statistics of model"):
        dpb.Synthesizer(schema(**columns), dpb.Modips(1.0, model))
    apart = schema(**{f"c{k}": entry for k, entry in enumerate(columns.values())})
    fitting = get_model(model, None)
    frame = {c: ["n", "y"] if k == 0 else [0.0, 1.0] for k, c in enumerate(apart.columns)}
    records = apart.validate(pd.DataFrame(frame))
    found = fitting.fit(apart, records, spending(fitting, apart), 2).statistics
    assert [s.name for s in found] == fitting.parts(apart)


RIDGED = schema(x=NUMBER, g=BINARY, t=THREE)


def ridged(model="sequential", **how):
    mechanism = dpb.Modips(1.0, model, **how)
    records = RIDGED.validate(
        pd.DataFrame({"x": [-1.0, 2.0] * 20, "g": ["n", "y"] * 20, "t": ["a", "b"] * 20})
    )
    return mechanism.prepare(RIDGED, records, 40)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_of_coefficients_is_what_the_ridge_is_chosen_for(delta):
    """Variance by what the noise is asked for, over λ of a grid: none has a smaller error."""

    class Spy(StudyNoise):
        def gaussian(self, values, scale):
            self.found = [*getattr(self, "found", []), (np.size(values), scale**2)]
            return super().gaussian(values, scale)

        def radial(self, values, scale):
            self.found = [
                *getattr(self, "found", []),
                (np.size(values), (values.size + 1) * scale**2),
            ]
            return super().radial(values, scale)

    fitted, noise = ridged(delta=delta, weights={"x": 0.2, "g": 0.7, "t": 0.1}), Spy(1)
    fitted.draw_private(noise)
    asked = dict(noise.found)
    for step, d in zip(fitted.model.steps[1:], (2, 9), strict=True):
        reach = math.sqrt(2) if d == 9 else 1.0
        grains = asked[d] / 2**40  # an L2 sensitivity of 1
        expected = fitted.mechanism.allotted(RIDGED).variance(step.column.name, d)
        assert grains == pytest.approx(expected, rel=1e-3)
        v = sum(USUAL[bool(c.levels)][1] ** 2 for c in step.before)
        information = usual_information(40, step.before)

        def error(r, v=v, information=information, reach=reach, grains=grains):
            return v * (r / (r + information)) ** 2 + grains * (reach / r) ** 2

        grid = step.ridge * np.exp(np.linspace(-2, 2, 81))
        assert error(step.ridge) <= error(grid).min() * (1 + 1e-5)


def test_the_ridge_follows_the_parts_of_epsilon():
    """A column with more of ε is shrunk less; a delta, which makes noise less, shrinks all less."""
    equal = ridged().settings["ridge"]
    more = ridged(weights={"x": 0.1, "g": 0.8, "t": 0.1}).settings["ridge"]
    assert more["g"] < equal["g"]
    assert more["t"] > equal["t"]
    names = ["sum x", "product x * x", "g coefficients", "t coefficients", "records"]
    of_slomag = ridged("slomag").settings["ridge"]
    other = dict(zip(names, (0.05, 0.05, 0.1, 0.7, 0.1), strict=True))
    found = ridged("slomag", weights=other).settings["ridge"]
    assert found["t"] < of_slomag["t"]
    assert found["g"] > of_slomag["g"]
    assert ridged(allocation="communal").settings["ridge"] == equal
    assert ridged(delta=0.01).settings["ridge"]["t"] < equal["t"]
