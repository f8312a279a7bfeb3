"""Noisy counts, and rows made of them: what is asked of the records, and what comes out."""

import itertools

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.inference import analyse
from dpbayes.mechanisms.measured import counting
from dpbayes.mechanisms.measured.counting import Budget, Column, Counts, Measurement
from dpbayes.mechanisms.measured.groups import make_groups
from dpbayes.mechanisms.measured.margins import Normal, fit_shares, reconciled
from dpbayes.mechanisms.measured.relations import Target, fit_conditional, matched, softmax
from dpbayes.privacy.noise import StudyNoise

SIZES = (2, 3, 5)
COLUMNS = [Column(2, None), Column(3, None), Column(5, np.arange(5.0))]
CELLS = np.array(list(itertools.product(*(range(size) for size in SIZES))))
N = 6


class Asked(StudyNoise):
    """Noise that keeps every question; its answers are its own, or those that it was given."""

    def __init__(self, seed, answers=None):
        super().__init__(seed)
        self.questions, self.answers, self._given = [], [], answers

    def counts(self, values, scale):
        self.questions.append((np.array(values, dtype=float), scale))
        own = super().counts(values, scale)
        self.answers.append(own if self._given is None else self._given[len(self.answers)])
        assert self.answers[-1].shape == own.shape
        return self.answers[-1]


KNOWN = {}


def remembered(found, n, *, curve):
    """Of the same noisy counts the same shares, without fitting them for every neighbour."""
    key = found.mean.tobytes(), found.precision.tobytes(), n, curve.tobytes()
    if key not in KNOWN:
        KNOWN[key] = fit_shares(found, n, curve=curve)
    return KNOWN[key]


def neighbours(records):
    """Every table with a record more or less, and every one with a record changed."""
    for cell in CELLS:
        yield "add-remove", np.vstack([records, cell])
    for i in range(len(records)):
        rest = np.delete(records, i, axis=0)
        yield "add-remove", rest
        for cell in CELLS:
            yield "substitution", np.vstack([rest, cell])


def measure(records, adjacency, noise, epsilon=1.0):
    moves = 1 if adjacency == "add-remove" else 2
    return Measurement.of(Counts(records, SIZES), COLUMNS, N, Budget(epsilon, moves, noise))


@pytest.mark.parametrize("many", [2, 99], ids=["pairs-chosen", "all-pairs"])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_answers_cost_epsilon_on_every_neighbour(many, seed, monkeypatch):
    """The exact loss of an outcome: neighbours are asked the same, and noise tells at most ε.

    Given all answers so far, the next question is the same table of other records, so that the log
    ratio of the probabilities of an outcome is the sum of |difference| / scale.
    """
    monkeypatch.setattr(counting, "MANY", many)
    monkeypatch.setattr(counting, "fit_shares", remembered)
    records = CELLS[np.random.default_rng(seed).integers(len(CELLS), size=N)]
    worst = dict.fromkeys(("add-remove", "substitution"), 0.0)
    first = {kind: Asked(seed) for kind in worst}
    for kind, noise in first.items():
        measure(records, kind, noise)
    for kind, other in neighbours(records):
        asked = first[kind]
        again = Asked(seed, asked.answers)
        measure(other, kind, again)
        assert len(again.questions) == len(asked.questions)
        loss = 0.0
        for (mine, scale), (theirs, same) in zip(asked.questions, again.questions, strict=True):
            assert scale == same
            loss += np.abs(mine - theirs).sum() / scale
        worst[kind] = max(worst[kind], loss)
    for loss in worst.values():
        assert 0.9 < loss <= 1.0


def test_rows_are_made_without_the_records():
    fit = fitted(epsilon=2.0)
    output = fit.fitted.private(StudyNoise(1))
    found = [fit.fitted.synthetic(output, 50, np.random.default_rng(2))]
    fit.fitted.counts = None
    found.append(fit.fitted.synthetic(output, 50, np.random.default_rng(2)))
    pd.testing.assert_frame_equal(*found)


@pytest.mark.parametrize("draw", ["mode", "posterior"])
def test_the_order_of_the_records_is_in_nothing(draw):
    """What stands beside public columns is the same for any order, to the last bit."""
    rng, n = np.random.default_rng(6), 9000
    x = np.arange(n) % 2  # alternating, as the heads of households and their spouses
    y = (rng.random(n) < np.where(x == 1, 0.8, 0.2)).astype(int)
    records = pd.DataFrame({"x": x, "y": y})
    binary = {"type": "binary", "levels": [0, 1]}
    schema = dpb.Schema.from_dict({"columns": {"x": {**binary, "public": True}, "y": binary}})
    found = []
    for table in (records, records.iloc[np.r_[1:n, 0]], records.sample(frac=1, random_state=5)):
        fit = dpb.Synthesizer(schema, dpb.Measured(1.0, draw=draw)).fit(table)
        output = fit.fitted.private(StudyNoise(1))
        rows = fit.fitted.synthetic(output, n, np.random.default_rng(2))
        found.append(rows["y"].groupby(table["x"].to_numpy()).agg(["sum", "size"]).to_numpy())
        assert found[-1].tolist() == found[0].tolist()
    np.testing.assert_allclose(found[0][:, 0] / found[0][:, 1], [0.2, 0.8], atol=0.06)


SCHEMA = {
    "region": {"type": "categorical", "levels": ["n", "e", "s", "w"]},
    "age": {"type": "count", "lower": 16, "upper": 85},
    "income": {"type": "continuous", "lower": 0, "upper": 100, "digits": 2},
    "works": {"type": "binary", "levels": ["no", "yes"]},
}


def people(n=3000, seed=3):
    rng = np.random.default_rng(seed)
    region = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    age = np.clip(rng.normal(45 - 4 * region, 12, n), 16, 85).round()
    works = rng.random(n) < 1 / (1 + np.exp((age - 60) / 6))
    income = np.clip(rng.gamma(4, 6, n) + 12 * works + 0.2 * (age - 40), 0, 100)
    income[rng.random(n) < 0.2] = 40.0
    return pd.DataFrame(
        {
            "region": np.array(["n", "e", "s", "w"])[region],
            "age": age.astype(int),
            "income": income,
            "works": np.where(works, "yes", "no"),
        }
    )


def fitted(epsilon=5.0, public=(), **settings):
    columns = {name: {**entry, "public": name in public} for name, entry in SCHEMA.items()}
    schema = dpb.Schema.from_dict({"columns": columns})
    return dpb.Synthesizer(schema, dpb.Measured(epsilon, **settings)).fit(people())


@pytest.mark.parametrize("public", [(), ("region", "age")])
def test_what_is_measured_comes_back(public):
    """At ε = 50 noise is nothing: shares of levels are the records', relations near them."""
    records = people()
    data = fitted(50.0, public).sample(seed=1).datasets[0]
    for name in ("region", "works"):
        shares = [d[name].astype(str).value_counts(normalize=True) for d in (records, data)]
        np.testing.assert_allclose(*(s.sort_index() for s in shares), atol=2e-3)
    assert abs((data["income"].between(37.5, 40.7)).mean() - 0.25) < 0.03  # the atom's bin
    for by in ("works", "region"):
        means = [d.groupby(d[by].astype(str))["age"].mean() for d in (records, data)]
        np.testing.assert_allclose(*(m.sort_index() for m in means), atol=1.0)
    both = [np.corrcoef(d["age"], d["income"].to_numpy())[0, 1] for d in (records, data)]
    assert abs(both[0] - both[1]) < 0.04


def test_data_sets_share_one_measurement():
    fit = fitted(1.0)
    release = fit.sample(5, seed=1)
    assert release.guarantee.epsilon == 1.0
    assert release.guarantee.for_datasets(5) == release.guarantee
    assert len(fit.sample(1, rows=17, seed=1).datasets[0]) == 17


@pytest.mark.parametrize("draw", ["mode", "posterior"])
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 50.0])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_any_noise_gives_valid_rows(epsilon, n, draw):
    schema = dpb.Schema.from_dict({"columns": SCHEMA})
    for seed in range(3):
        fit = dpb.Synthesizer(schema, dpb.Measured(epsilon, draw=draw)).fit(people(n))
        data = fit.sample(seed=seed).datasets[0]
        assert len(schema.validate(data)) == n


@pytest.mark.parametrize("columns", [["works"], ["income"], ["works", "region"]])
def test_few_columns(columns):
    schema = dpb.Schema.from_dict({"columns": {name: SCHEMA[name] for name in columns}})
    fit = dpb.Synthesizer(schema, dpb.Measured(1.0)).fit(people(200))
    schema.validate(fit.sample(seed=1).datasets[0])


def test_the_rule_follows_the_draw():
    """By ``posterior`` the spread between data sets holds all; by ``mode`` no rule fits."""

    def mean(data):
        return data["age"].mean(), data["age"].var() / len(data)

    with pytest.warns(UserWarning, match="draw = mode makes each data set as near"):
        analyse(fitted(2.0).sample(3, seed=1), mean)
    found = analyse(fitted(2.0, draw="posterior").sample(6, seed=1, rows=9000), mean)
    assert found.rule == "reiter2002"
    b = found.between * (1 + 1 / 6) - found.within
    assert found.variance == pytest.approx(b if b >= 0 else 3.0 * found.within)


def test_many_levels():
    """A curve over 300 bins, and 120 levels without order beside as many."""
    rng = np.random.default_rng(7)
    some = {"type": "categorical", "levels": [f"l{i}" for i in range(120)]}
    columns = {"x": {"type": "continuous", "lower": 0, "upper": 1}, "a": some, "b": some}
    levels = np.array(some["levels"])
    data = {"x": rng.beta(2, 5, 4000), **{k: levels[rng.integers(120, size=4000)] for k in "ab"}}
    schema = dpb.Schema.from_dict({"columns": columns})
    fit = dpb.Synthesizer(schema, dpb.Measured(1.0, bins=300)).fit(pd.DataFrame(data))
    found = fit.sample(seed=1).datasets[0]
    schema.validate(found)
    assert abs(found["x"].mean() - 2 / 7) < 0.02
    groups = make_groups(np.full(500, 1 / 500), None, 8)
    assert groups.size == 17


BAD = [
    (lambda: dpb.Measured(1, draw="best"), "must be mode or posterior"),
    (lambda: dpb.Measured(1, bins="sqrt"), "bins = 'sqrt' must be auto, a number, or by column"),
    (lambda: fitted(bins={"region": 3}), "column 'region' has levels and needs no bins"),
    (lambda: fitted(bins={"income": 5000}), "column 'income' has 5,000 levels"),
    (lambda: many({"type": "count"}), "needs a public upper bound"),
    (lambda: many(SCHEMA["works"], 101), "101 columns have 5,050 pairs"),
]


def many(entry, count=1):
    schema = dpb.Schema.from_dict({"columns": {f"c{i}": entry for i in range(count)}})
    return dpb.Synthesizer(schema, dpb.Measured(1.0))


@pytest.mark.parametrize(("make", "words"), BAD)
def test_bad_settings(make, words):
    with pytest.raises(dpb.DpbayesError, match=words):
        make()


def test_smoothing_helps_and_keeps_atoms():
    """Mean squared error over 20 noises, half of the raw counts' at most; an atom stays."""
    rng = np.random.default_rng(1)
    truth = 400 * np.exp(-0.5 * ((np.arange(40) - 15) / 7) ** 2)
    truth[30] += 900
    n = int(truth.sum())
    raw, smooth, atom = [], [], []
    for _ in range(20):
        noisy = truth + rng.laplace(0, 40 / np.sqrt(2), 40)
        found = (
            n * fit_shares(Normal(noisy, np.eye(40) / 40.0**2), n, curve=np.ones(40, bool)).best()
        )
        raw.append(np.mean((noisy - truth) ** 2))
        smooth.append(np.mean((found - truth) ** 2))
        atom.append(found[30])
    assert np.mean(smooth) < 0.5 * np.mean(raw)
    assert abs(np.mean(atom) - truth[30]) < 40


def test_exact_counts_stay():
    counts = np.array([0.0, 500, 3, 0, 10, 900, 100, 0])
    for curve in (np.ones(8, bool), np.zeros(8, bool)):
        found = fit_shares(Normal(counts, np.eye(8) * 100.0), 1513, curve=curve).best()
        np.testing.assert_allclose(1513 * found, counts, atol=0.7)


def test_reconciled_is_least_squares():
    """Against NumPy's solver on the stacked, weighted equations."""
    rng = np.random.default_rng(2)
    fine, member = rng.normal(size=6), np.repeat(np.eye(3), 2, axis=1)
    sums = [(rng.normal(size=3), member, 0.5), (rng.normal(size=1), np.ones((1, 6)), 0.1)]
    rows = np.vstack([np.eye(6) / 2.0, member / 0.5, np.ones((1, 6)) / 0.1])
    sides = np.concatenate([fine / 2.0, sums[0][0] / 0.5, sums[1][0] / 0.1])
    wanted, *_ = np.linalg.lstsq(rows, sides)
    found = reconciled(fine, 2.0, sums)
    np.testing.assert_allclose(found.mean, wanted)
    np.testing.assert_allclose(found.precision, rows.T @ rows)


def test_groups():
    atoms = make_groups(np.array([0.5, 0.05, 0.05, 0.1, 0.1, 0.1, 0.1]), np.arange(7.0), 4)
    assert atoms.of[0] == 0  # a level of half the mass is a group of its own
    assert 1 not in np.unique(atoms.of[1:] == 0)
    assert atoms.size <= 4
    rare = make_groups(np.array([0.3, 0.3, 0.3, 0.05, 0.03, 0.02]), None, 3)
    assert rare.of.tolist() == [0, 1, 2, 3, 4, 4] or rare.size <= 4
    for group in (atoms, rare):
        weighted = group.basis.T @ (group.mass[:, None] * group.basis)
        np.testing.assert_allclose(weighted, np.eye(group.size - 1), atol=1e-9)
        np.testing.assert_allclose(group.mass @ group.basis, 0, atol=1e-9)


def test_the_mode_meets_the_measured_means():
    """Without noise and with a vague prior the model's means are those that were measured."""
    rng = np.random.default_rng(4)
    groups = make_groups(np.full(4, 0.25), np.arange(4.0), 4)
    x = rng.integers(4, size=2000)
    psi = groups.basis[x]
    truth = np.array([[0.7, 0.1, 0.0], [0.2, -0.3, 0.1], [0.0, 0.1, 0.2]])
    chances = softmax(psi @ truth.T @ groups.basis.T)
    mean = (chances @ groups.basis).T @ psi / len(x)
    mass = chances.mean(axis=0)
    target = Target(2000, mean, np.zeros((3, 3)), np.full((3, 3), 1e3))
    found = fit_conditional(mass, groups.basis, target, psi, psi)
    np.testing.assert_allclose(found.weights[:, 1:], truth, atol=1e-4)
    np.testing.assert_allclose(found.probabilities(psi).mean(axis=0), mass, atol=1e-6)


def test_matched_counts_are_met_by_few_changes():
    rng = np.random.default_rng(5)
    chances = rng.dirichlet(np.ones(4), 500)
    drawn = rng.integers(4, size=500)
    before = np.bincount(drawn, minlength=4)
    counts = np.array([200, 100, 150, 50])
    found = matched(chances, drawn, counts, rng)
    np.testing.assert_array_equal(np.bincount(found, minlength=4), counts)
    assert (found != drawn).sum() == np.maximum(before - counts, 0).sum()
