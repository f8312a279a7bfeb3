"""Output distributions by enumeration: log ratios of neighbours against epsilon."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import gammaln

import dpbayes as dpb
from dpbayes.mechanisms.modips import grid as gridded
from dpbayes.mechanisms.modips.conjugate import Bernoulli
from dpbayes.mechanisms.modips.grid import CellGrid
from dpbayes.mechanisms.modips.modes import fit_logistic
from dpbayes.mechanisms.modips.statistic_model import Spending
from dpbayes.mechanisms.tables.bootstrap import bootstrap, bootstrap_loss, copy_loss
from dpbayes.mechanisms.tables.urns import balls
from dpbayes.privacy import noise as drawing
from dpbayes.privacy.noise import SecureNoise, StudyNoise, _tails
from dpbayes.privacy.statistic import Change, truncated_scale

EPSILONS = [0.3, 1.0, 3.0]


def compositions(total, cells):
    if cells == 1:
        return [(total,)]
    return [(k, *rest) for k in range(total + 1) for rest in compositions(total - k, cells - 1)]


def log_dirichlet_multinomial(counts, alpha):
    """Log probability of a sequence with these counts."""
    a, c = np.asarray(alpha, float), np.asarray(counts)
    return (gammaln(a + c) - gammaln(a)).sum() + gammaln(a.sum()) - gammaln(a.sum() + c.sum())


def log_independent(counts, alpha):
    a = np.asarray(alpha, float)
    return (np.asarray(counts) * np.log(a / a.sum())).sum()


URNS = {
    "doubled": (dpb.MultinomialDirichlet, log_dirichlet_multinomial),
    "plain": (dpb.SmoothedHistogram, log_independent),
}


def worst_ratios(n, cells, size, alpha, log_probability):
    """Largest |log ratio| of any output of ``size`` draws, from n records and all neighbours."""
    outputs = compositions(size, cells)
    worst = {"add-remove": 0.0, "substitution": 0.0}
    for counts in compositions(n, cells):
        here = [log_probability(o, np.add(counts, alpha)) for o in outputs]
        for j in np.flatnonzero(counts):
            fewer = np.array(counts)
            fewer[j] -= 1
            for k in range(-1, cells):
                other = fewer.copy()
                if k >= 0:
                    other[k] += 1
                there = [log_probability(o, other + alpha) for o in outputs]
                ratio = np.abs(np.subtract(here, there)).max()
                name = "substitution" if k >= 0 else "add-remove"
                worst[name] = max(worst[name], ratio)
    return worst


@pytest.mark.parametrize("kind", URNS)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("cells", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_urns_meet_epsilon_for_both_adjacencies(kind, epsilon, cells, n, size):
    """Every output, every pair of neighbours, n records and n - 1; exact up to rounding."""
    mechanism, log_probability = URNS[kind]
    worst = worst_ratios(n, cells, size, mechanism(epsilon).alpha(size), log_probability)
    assert worst["substitution"] <= epsilon
    assert worst["add-remove"] <= epsilon


@pytest.mark.parametrize("kind", URNS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_urns_do_not_pay_for_more_than_epsilon(kind, epsilon):
    """Tight where a data set can come from a cell with one record; the other cell's gain is left.

    Adding a record is nearly as bad in an urn of many cells.
    """
    mechanism, log_probability = URNS[kind]
    alpha = mechanism(epsilon).alpha(5)
    worst = worst_ratios(5, 3, 5, alpha, log_probability)
    assert worst["substitution"] > 0.9 * epsilon
    of_many = np.full(200, alpha)
    one = np.array([5] + [0] * 199)
    more = log_probability(one, of_many + (np.arange(200) == 0)) - log_probability(one, of_many)
    assert 0.9 * epsilon < more <= epsilon


class Enumerating(StudyNoise):
    """Noise that takes every value in turn: all equally likely runs of a program."""

    def __init__(self, path):
        super().__init__(np.random.default_rng(0))
        self.path, self.weight = list(path), 1.0

    def below(self, ends):
        found = []
        for end in ends:
            self.weight /= int(end)
            found.append(self.path.pop(0) if self.path else self.stop(int(end)))
        return np.array(found, dtype=object)

    def stop(self, end):
        raise _Branch(end)


class _Branch(Exception):
    pass


def distribution(run):
    """Exact distribution of ``run(noise)`` by going through all branches."""
    found, todo = {}, [()]
    while todo:
        path = todo.pop()
        noise = Enumerating(path)
        try:
            key = run(noise)
        except _Branch as branch:
            todo += [(*path, k) for k in range(branch.args[0])]
            continue
        found[key] = found.get(key, 0.0) + noise.weight
    return found


@pytest.mark.parametrize("doubled", [True, False])
def test_the_code_of_the_urn_has_the_distribution_that_is_claimed(monkeypatch, doubled):
    """Two records in cells (0, 1) and (1, 0) of a 2 x 2 table, three draws, α = 1/2."""
    monkeypatch.setattr(drawing, "BALLS", 2)
    codes = np.array([[0, 1], [1, 0]])

    def run(noise):
        drawn = noise.urn(codes, [2, 2], 1, 3, doubled=doubled)
        return tuple(int(v) for v in drawn @ [2, 1])

    found = distribution(run)
    assert math.isclose(sum(found.values()), 1.0)
    log_probability = log_dirichlet_multinomial if doubled else log_independent
    for sequence in itertools.product(range(4), repeat=3):
        counts = np.bincount(sequence, minlength=4)
        expected = math.exp(log_probability(counts, np.array([0.5, 1.5, 1.5, 0.5])))
        assert found[sequence] == pytest.approx(expected, rel=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("noise", [SecureNoise(), StudyNoise(4)], ids=["secure", "study"])
def test_beta_binomial_counts(noise):
    """Chi-square at level 1e-6 on 3,000 data sets."""
    codes, n = np.array([[1]] * 3 + [[0]] * 5), 8
    alpha = dpb.BetaBinomial(2.0).alpha(n)
    draws = [noise.urn(codes, [2], balls(alpha), n, doubled=True).sum() for _ in range(3000)]
    expected = stats.betabinom.pmf(np.arange(n + 1), n, alpha + 3, alpha + 5) * 3000
    seen = np.bincount(draws, minlength=n + 1)
    assert stats.chisquare(seen, expected).pvalue > 1e-6


def test_alpha_is_never_rounded_down():
    for alpha in (1e-12, 0.1, 1 / 3, 7.0, 1e6):
        assert balls(alpha) / drawing.BALLS >= alpha
        assert balls(alpha) / drawing.BALLS <= max(alpha * (1 + 1e-8), 2 / drawing.BALLS) + 2e-9


def discrete_laplace(scale, k):
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** np.abs(k)


def copies():
    """Exact distribution of a record's copies: ``Noise.poisson``."""
    tails = np.concatenate([[2**62], _tails()[::-1], [0]])
    return -np.diff(tails) / 2**62


def bootstrap_pmf(records, scale, outputs, *, truncate):
    """P(noisy count) of one cell after a bootstrap of its records."""
    weight = np.ones(1)
    for _ in range(records):
        weight = np.convolve(weight, copies())
    held = np.arange(len(weight))
    given = discrete_laplace(scale, outputs[:, None] - held)
    if truncate:  # drawn again below 0
        given = np.where(outputs[:, None] < 0, 0, given)
        q = math.exp(-1 / scale)
        given = given / (1 - q ** (held + 1) / (1 + q))
    return given @ weight


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("adjacency", ["add-remove", "substitution"])
def test_bootstrap_behind_noise_is_accounted_for(epsilon, adjacency, truncate):
    """Exact, for cells of any number of records: a changed one leaves a cell and enters another."""
    step = copy_loss(epsilon, adjacency)
    scale = truncated_scale(Change(1), math.inf, step, integer=True) if truncate else 1 / step
    outputs = np.arange(0 if truncate else -40, 41)
    rows = [
        np.log(bootstrap_pmf(n, scale, outputs, truncate=truncate)) for n in (0, 1, 2, 3, 4, 30)
    ]
    up = max(float((b - a).max()) for a, b in itertools.pairwise(rows[:5]))
    down = max(float((a - b).max()) for a, b in itertools.pairwise(rows[:5]))
    worst = max(up, down) if adjacency == "add-remove" else up + down
    assert worst <= epsilon * (1 + 1e-9)
    assert worst > (0.5 if truncate else 0.999) * epsilon
    mechanism = dpb.EmpiricalBootstrap(epsilon, adjacency)
    claim = mechanism.guarantee()
    assert max(up, down) <= claim.epsilon * (1 + 1e-9)
    assert up + down <= claim.epsilon_substitution * (1 + 1e-9)
    assert claim.epsilon_setting == epsilon


def test_a_bootstrap_at_the_plain_scale_costs_more_than_epsilon():
    """What the paper's figure 5b says nothing of: noise for one copy, k copies in the sample."""
    outputs = np.arange(-40, 41)
    none, one = (np.log(bootstrap_pmf(n, 1 / 2.0, outputs, truncate=False)) for n in (0, 1))
    worst = float((one - none).max())
    assert worst == pytest.approx(6.389, abs=1e-3)
    assert worst <= bootstrap_loss(2.0, "add-remove") <= worst + 1e-3  # tight


def test_copies_have_poissons_moments_from_below():
    from fractions import Fraction

    p = [Fraction(int(t), 2**62) for t in _tails()[::-1]]  # Pr(k or more), k = 1, 2, ...
    e = sum(Fraction(1, math.factorial(j)) for j in range(60))
    for k, tail in enumerate(p, start=1):
        exact = sum(Fraction(1, math.factorial(j)) for j in range(k, 60)) / e
        assert exact - Fraction(2, 2**62) < tail <= exact
    exact = sum(Fraction(1, math.factorial(j)) for j in range(len(p) + 1, 60)) / e
    assert exact < Fraction(1, 2**62)


def test_a_bootstrap_keeps_records_in_their_cells():
    counts = np.array([[0, 3], [500, 0], [0, 0]])
    found = bootstrap(counts, StudyNoise(1))
    assert found.shape == counts.shape
    assert (found[counts == 0] == 0).all()
    assert abs(found[1, 0] - 500) < 6 * math.sqrt(500)
    assert bootstrap(counts, SecureNoise()).shape == counts.shape


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_cell_of_the_grid_by_enumeration(epsilon):
    """sdd: the probabilities of all cells, for any two data sets, whatever their sizes."""
    bound, logs = 2.0, []

    class Scores:
        rng = np.random.default_rng(1)

        def select(self, scores, scale):
            found = scores / scale
            logs.append(found - np.log(np.exp(found).sum()))
            return 0

    schema = dpb.Schema.from_dict({"rows": 6, "columns": {"x": {"type": "binary"}}})
    for ones, zeros in ((0, 0), (0, 1), (1, 0), (6, 0), (3, 3), (0, 6), (0, 20), (20, 0)):
        records = schema.validate(pd.DataFrame({"x": [1] * ones + [0] * zeros}))
        fitted = Bernoulli().fit(schema, records, Spending.equal(1.0, ["count"]), 6)
        gridded.sdd(fitted, CellGrid.over(fitted.ranges(), 20), bound, epsilon, Scores())
    worst = max(np.abs(a - b).max() for a, b in itertools.combinations(logs, 2))
    assert 0.4 * epsilon < worst <= epsilon


@pytest.mark.parametrize(("draw", "bound"), [("sdd-mc", 2.0), ("sphc", 0.6)])
def test_histograms_of_posterior_draws_move_by_no_more_than_the_noise_is_for(draw, bound):
    """L1 distance over scale, for every pair of data sets and several histograms of each."""
    epsilon, seen = 1.0, []

    class Spy(StudyNoise):
        def reals(self, values, scale):
            seen.append((values, scale))
            return super().reals(values, scale)

        counts = reals

    schema = dpb.Schema.from_dict({"rows": 6, "columns": {"x": {"type": "binary"}}})
    for (ones, zeros), seed in itertools.product(
        [(0, 0), (0, 6), (3, 3), (6, 0), (20, 0)], range(3)
    ):
        records = schema.validate(pd.DataFrame({"x": [1] * ones + [0] * zeros}))
        fitted = Bernoulli().fit(schema, records, Spending.equal(1.0, ["count"]), 6)
        grid = CellGrid.over(fitted.ranges(), 10)
        gridded.GRIDDED[draw](fitted, grid, bound, epsilon, Spy(seed), 50)
    (scale,) = {s for _, s in seen}
    worst = max(np.abs(a - b).sum() for (a, _), (b, _) in itertools.combinations(seen, 2))
    assert 0.15 * epsilon < worst / scale <= epsilon
    # The papers' noise is for one cell.
    one = 2 * bound if draw == "sdd-mc" else 50 * bound * grid.volume
    assert worst / (one / epsilon) > 3 * epsilon


def test_model_statistics_compose_to_epsilon():
    """sbs: privacy of independent noise on each statistic, from scales and sensitivities."""
    schema = dpb.Schema.from_dict(
        {
            "rows": "public",
            "columns": {
                "g": {"type": "binary"},
                "z": {"type": "continuous", "lower": 0, "upper": 1},
            },
        }
    )
    rng = np.random.default_rng(1)
    records = pd.DataFrame({"g": rng.integers(0, 2, 40), "z": rng.uniform(0, 1, 40)})

    class Spy(StudyNoise):
        spent = 0.0
        changes = ()

        def reals(self, values, scale):
            Spy.spent += next(Spy.changes).l1 / scale
            return super().reals(values, scale)

        def counts(self, values, scale):
            Spy.spent += next(Spy.changes).l1 / scale
            return super().counts(values, scale)

    for allocation, weights in (
        ("communal", None), ("individual", None), ("individual", [0.5, 0.3, 0.2]),
    ):  # fmt: skip
        for adjacency in ("add-remove", "substitution"):
            modips = dpb.Modips(
                0.8, "glom", adjacency=adjacency, allocation=allocation, weights=weights
            )
            fit = dpb.Synthesizer(schema, modips).fit(records)
            Spy.spent = 0.0
            Spy.changes = (s.change[adjacency] for s in fit.fitted.model.statistics)
            fit.fitted.draw_private(Spy(1))
            assert Spy.spent == pytest.approx(0.8, rel=1e-9)
            assert Spy.spent <= 0.8


def test_noise_scaled_by_a_confidential_cell_count_has_no_bound():
    """Bowen & Liu, section 4.3.1: a record that leaves a cell of two changes the noise's scale."""
    epsilon, width = 1.0, 8.0
    for far, least in ((20.0, 1.0), (100.0, 10.0), (1000.0, 100.0)):
        two, one = (stats.laplace.logpdf(far, 0.0, width / n / epsilon) for n in (2, 1))
        assert abs(two - one) > least * epsilon


def test_modes_under_the_papers_wide_prior_move_by_more_than_its_sensitivity():
    """Bowen & Liu, section 4.3.2: N(0, 1/λ) has curvature λ, not n λ."""
    rng = np.random.default_rng(2)
    n, ridge = 60, 0.5
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, n)]) / math.sqrt(2)
    y = (rng.random(n) < 0.5).astype(int)
    moved = {}
    for strength in (ridge, n * ridge):
        modes = []
        for change in (None, int(np.argmax(np.abs(x[:, 1])))):
            labels = y.copy()
            if change is not None:
                labels[change] = 1 - labels[change]
            modes.append(fit_logistic(x, labels, 2, strength))
        moved[strength] = float(np.linalg.norm(modes[0] - modes[1]))
    declared = 2 / (n * ridge)
    assert moved[ridge] > 1.5 * declared
    assert moved[n * ridge] < declared
