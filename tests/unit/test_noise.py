"""Noise and scales: the two sources agree, and budgets are met to the last digit."""

import math

import numpy as np
import pytest
from scipy import special, stats

from dpbayes.core.errors import GuaranteeError
from dpbayes.privacy.noise import SecureNoise, StudyNoise, opendp
from dpbayes.privacy.statistic import Change, Statistic, shares, truncated_cost, truncated_scale

SOURCES = [SecureNoise, lambda: StudyNoise(11)]
ids = ["secure", "study"]
# Secure draws cannot be seeded: a test against them fails by chance once in a million runs.
ALPHA = 1e-6


def discrete_laplace(scale, k):
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** np.abs(k)


@pytest.mark.statistical
@pytest.mark.parametrize("source", SOURCES, ids=ids)
def test_counts_have_the_discrete_laplace_distribution(source):
    scale, size = 1.7, 20_000
    found = source().counts(np.full((100, size // 100), 5), scale)
    assert found.shape == (100, 200)
    values, seen = np.unique(np.clip(found.ravel() - 5, -6, 6), return_counts=True)
    k = np.arange(-60, 61)
    expected = np.bincount(np.clip(k, -6, 6) + 6, discrete_laplace(scale, k)) * size
    assert list(values) == list(range(-6, 7))
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > ALPHA


def discrete_gaussian(scale):
    """Whole numbers that have any, and their probabilities."""
    k = np.arange(-math.ceil(40 * scale) - 1, math.ceil(40 * scale) + 2)
    weight = np.exp(-((k / scale) ** 2) / 2)
    return k, weight / weight.sum()


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [0.4, 1.7, 6.0])
@pytest.mark.parametrize("source", SOURCES, ids=ids)
def test_gaussian_noise_has_the_discrete_gaussian_distribution(source, scale):
    size, most = 20_000, math.ceil(2 * scale)
    found = source().gaussian(np.full((100, size // 100), 5), scale)
    assert found.shape == (100, 200)
    values, seen = np.unique(np.clip(found.ravel() - 5, -most, most), return_counts=True)
    k, chance = discrete_gaussian(scale)
    expected = np.bincount(np.clip(k, -most, most) + most, chance) * size
    assert list(values) == list(range(-most, most + 1))
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > ALPHA


@pytest.mark.parametrize("scale", [0.05, 0.3, 0.5, 1.0, 3.0, 50.0])
def test_the_sd_of_discrete_gaussian_noise_is_its_scale_or_less(scale):
    """Models take sigma for the sd: exact to 1e-6 from 1 on, too large below."""
    k, chance = discrete_gaussian(scale)
    sd = math.sqrt(chance @ k**2)
    assert sd <= scale * (1 + 1e-12)
    if scale >= 1:
        assert sd == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("scale", [0.7, 2.0, 9.0])
@pytest.mark.parametrize("moved", [1, 2, 5])
def test_gaussian_noise_costs_rho_by_enumeration(scale, moved):
    """Rényi divergences of every order between two counts that differ by ``moved``."""
    k, _ = discrete_gaussian(scale)
    rho = moved**2 / (2 * scale**2)
    ratio = ((k - moved) ** 2 - k**2) / (2 * scale**2)  # log, of the other count's probabilities
    for order in (1.01, 1.5, 2.0, 4.0, 8.0):
        terms = (order - 1) * ratio - k**2 / (2 * scale**2)
        total = special.logsumexp(terms) - special.logsumexp(-(k**2) / (2 * scale**2))
        divergence = total / (order - 1)
        assert divergence <= order * rho * (1 + 1e-9)
        if scale >= 2:
            assert divergence == pytest.approx(order * rho, rel=1e-6)


def radii(most):
    """Whole points of the plane within a distance, and their norms, rounded up."""
    k = np.stack(np.meshgrid(*2 * [np.arange(-most, most + 1)]), axis=-1).reshape(-1, 2)
    return k, np.ceil(np.sqrt((k**2).sum(axis=1)) - 1e-12)


@pytest.mark.statistical
def test_radial_noise_has_its_distribution_exactly():
    scale, size = 1.3, 1500
    noise = SecureNoise()
    found = np.stack([noise.radial([3, -2], scale) for _ in range(size)]) - [3, -2]
    k, r = radii(60)
    chance = np.exp(-r / scale) / np.exp(-r / scale).sum()
    cells = [(0, 0), (1, 0), (0, -1), (1, 1), (-1, 1), (2, 1), (0, 3)]
    expected = np.array([chance[(k == cell).all(axis=1)][0] for cell in cells])
    seen = np.array([(found == cell).all(axis=1).sum() for cell in cells])
    rest = [size - seen.sum()], [1 - expected.sum()]
    observed, wanted = np.append(seen, rest[0]), np.append(expected, rest[1])
    assert stats.chisquare(observed, size * wanted).pvalue > ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize(("source", "size"), [(SOURCES[0], 400), (SOURCES[1], 4000)], ids=ids)
def test_radial_noise_has_the_length_and_directions_of_its_density(source, size):
    """exp(-|e| / scale) in four dimensions: length Gamma(4), every coordinate alike."""
    scale, noise = 5000.0, source()
    found = np.stack([noise.radial(np.zeros((2, 2)), scale).ravel() for _ in range(size)])
    assert (
        stats.kstest(np.linalg.norm(found, axis=1), stats.gamma(4, scale=scale).cdf).pvalue > ALPHA
    )
    positive = (found > 0).sum(axis=0)
    assert (np.abs(positive - size / 2) < 5.5 * math.sqrt(size / 4)).all()


def test_radial_noise_costs_what_its_norm_moves_by_enumeration():
    """log P(k) - log P(k - d) = (r(k - d) - r(k)) / scale: at most |d|, rounded up, over scale."""
    k, _ = radii(25)
    for d in ((1, 0), (2, 1), (3, 4), (-2, 2)):
        here, there = (np.ceil(np.sqrt((a**2).sum(axis=1)) - 1e-12) for a in (k, k - d))
        assert np.abs(here - there).max() == math.ceil(math.hypot(*d) - 1e-12)


def test_real_statistics_get_radial_noise_where_that_is_less():
    class Spy(StudyNoise):
        asked = None

        def radial(self, values, scale):
            self.asked = ("radial", values, scale)
            return super().radial(values, scale)

        def reals(self, values, scale):
            self.asked = ("reals", values, scale)
            return super().reals(values, scale)

    def drawn(entries, epsilon=0.5):
        change = {"add-remove": Change(math.sqrt(entries) * 0.3, norm=0.3)}
        value = np.linspace(-1, 1, entries)
        noise = Spy(1)
        found = Statistic("b", value, change, -math.inf, math.inf)
        errors = [found.sanitised(epsilon, "add-remove", noise) - value for _ in range(300)]
        return noise.asked, np.sqrt(np.mean(np.square(errors)))

    for entries in (2, 5, 24):
        (how, whole, scale), sd = drawn(entries)
        assert how == "radial"
        # In grains: what a record moves, and what rounding adds, cost at most epsilon.
        grain = 0.3 / 2**20
        assert np.abs(whole * grain - np.linspace(-1, 1, entries)).max() <= 0.51 * grain
        assert math.ceil(0.3 / grain + math.sqrt(entries)) / scale <= 0.5
        # sqrt((d + 1) theta^2), within 5 standard errors.
        assert sd == pytest.approx(math.sqrt(entries + 1) * 0.6, rel=0.2)
    assert drawn(1)[0][0] == drawn(25)[0][0] == drawn(5, 1e-12)[0][0] == "reals"


@pytest.mark.parametrize("integer", [True, False])
def test_gaussian_noise_of_statistics_has_the_sigma_that_rho_buys(integer):
    class Spy(StudyNoise):
        def gaussian(self, values, scale):
            self.scale = scale
            return super().gaussian(values, scale)

    change = {"substitution": Change(1, 4, norm=2.0)}
    bounds = (0, 50) if integer else (-math.inf, math.inf)
    value = np.array([0, 3, 7, 50]) if integer else np.array([0.1, 3, 7, 50])
    noise, rho = Spy(1), 0.02
    statistic = Statistic("s", value, change, *bounds, integer=integer)
    found = np.array([statistic.with_gaussian(rho, "substitution", noise) for _ in range(2000)])
    unit = 1.0 if integer else 2 / 2**20
    assert (2 / unit) ** 2 / (2 * noise.scale**2) <= rho  # zCDP of what a neighbour changes
    assert noise.scale * unit == pytest.approx(2 / math.sqrt(2 * rho), rel=1e-4)
    if integer:
        assert found.min() == 0
        assert found.max() == 50
    else:
        assert found[:, 1].std() == pytest.approx(2 / math.sqrt(2 * rho), rel=0.1)


@pytest.mark.statistical
@pytest.mark.parametrize("source", SOURCES, ids=ids)
def test_reals_have_the_laplace_distribution(source):
    found = source().reals(np.full(5000, -2.0), 0.3)
    assert stats.kstest(found, stats.laplace(-2, 0.3).cdf).pvalue > ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("source", SOURCES, ids=ids)
def test_select_is_the_exponential_mechanism(source):
    noise, scores, scale = source(), np.array([0.0, 1.0, -2.0]), 0.7
    seen = np.bincount([noise.select(scores, scale) for _ in range(6000)], minlength=3)
    weight = np.exp(scores / scale)
    assert stats.chisquare(seen, 6000 * weight / weight.sum()).pvalue > ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("source", SOURCES, ids=ids)
def test_below_is_uniform_also_for_numbers_beyond_64_bits(source):
    noise = source()
    found = noise.below(np.full(6000, 7))
    assert stats.chisquare(np.bincount(found.astype(int), minlength=7)).pvalue > ALPHA
    large = noise.below(np.full(2000, 2**70, dtype=object))
    assert all(0 <= v < 2**70 for v in large)
    part = np.bincount([int(v >> 67) for v in large], minlength=8)
    assert stats.chisquare(part).pvalue > ALPHA


@pytest.mark.parametrize("source", SOURCES, ids=ids)
def test_totals_beyond_32_bits_keep_their_size(source):
    value = 10**13
    assert abs(int(source().counts(np.array(value), 3.0)) - value) < 200  # 1e-28 by chance


@pytest.mark.statistical
@pytest.mark.parametrize("source", SOURCES, ids=ids)
def test_copies_have_poissons_distribution(source):
    seen = np.bincount(np.minimum(source().poisson(20_000), 6), minlength=7)
    expected = 20_000 * np.append(stats.poisson.pmf(range(6), 1), stats.poisson.sf(5, 1))
    assert stats.chisquare(seen, expected).pvalue > ALPHA
    assert source().poisson(0).tolist() == []


def test_study_noise_repeats_and_is_not_for_release():
    a, b = (StudyNoise(3).reals(np.zeros(4), 1.0) for _ in range(2))
    assert (a == b).all()
    assert (SecureNoise.releasable, StudyNoise.releasable) == (True, False)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1 / 3, 1.0, math.e, 60])
@pytest.mark.parametrize("l1", [1, 2, 7])
def test_opendp_agrees_that_the_scale_costs_at_most_epsilon(epsilon, l1):
    """Second path: OpenDP's own privacy map, which rounds up."""
    seen = []

    class Spy(SecureNoise):
        def _added(self, values, measurement, kind):
            seen.append(measurement.map(kind(l1)))
            return super()._added(values, measurement, kind)

    for integer in (True, False):
        change = {"add-remove": Change(1, l1), "substitution": Change(l1)}
        one = Statistic("s", np.array([0]), change, -math.inf, math.inf, integer)
        for adjacency in change:
            one.sanitised(epsilon, adjacency, Spy())
    assert len(seen) == 4
    assert all(0.999999 * epsilon < spent <= epsilon for spent in seen)


def test_opendp_agrees_on_the_exponential_mechanism():
    dp = opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    choose = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=2.0)
    assert choose.map(1.0) == pytest.approx((2 * 1.0 / 2.0) ** 2 / 8)  # rho of bounded range 1


def truncated_table(scale, n):
    """P(s* | s) for s, s* = 0..n: discrete Laplace, drawn again until inside."""
    s = np.arange(n + 1)
    table = discrete_laplace(scale, s[:, None] - s[None, :]).T
    return table / table.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_truncation_costs_epsilon_and_no_more_by_enumeration(n, epsilon):
    """Exact: every output for every pair of neighbouring counts."""
    scale = truncated_scale(Change(1), n, epsilon, integer=True)
    ratio = np.abs(np.diff(np.log(truncated_table(scale, n)), axis=0)).max()
    assert ratio <= epsilon
    assert ratio == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_truncation_of_counts_without_a_largest_one(epsilon):
    scale = truncated_scale(Change(1), math.inf, epsilon, integer=True)
    ratio = np.abs(np.diff(np.log(truncated_table(scale, 20 + int(60 * scale))[:20]), axis=0)).max()
    assert ratio == pytest.approx(epsilon, rel=1e-6)
    assert truncated_scale(Change(1), 40, epsilon, integer=True) == pytest.approx(scale, rel=0.02)


@pytest.mark.parametrize("value", [6, 9, 10**6, -3])
def test_a_value_outside_its_range_is_drawn_as_the_boundary(value):
    """Where the true number of records is above the public one. Its distance is not told."""
    change = {"add-remove": Change(1), "substitution": Change(1)}
    edge = 5 if value > 5 else 0
    for how in ("bit", "truncate"):
        seen = []

        class Spy(StudyNoise):
            def counts(self, values, scale, seen=seen):
                seen.append((np.array(values), scale))
                return super().counts(values, scale)

        outside, at_edge = (
            Statistic("s", np.array([v]), change, 0, 5, True, unit=0.5, origin=1.0)
            for v in (value, edge)
        )
        drawn = [s.sanitised(0.5, "add-remove", Spy(1), how) for s in (outside, at_edge)]
        assert ((drawn[0] >= 1.0) & (drawn[0] <= 3.5)).all()
        assert outside.exact == at_edge.exact
        if how == "truncate":
            assert drawn[0] == drawn[1]
            assert len({(int(v[0]), scale) for v, scale in seen}) == 1


def test_the_cost_of_truncation_is_exact_for_wide_noise():
    """Sums in small units: noise much wider than the range, where differences cancel."""
    from fractions import Fraction

    for width, scale in ((2**20, 2.0**42), (1, 1e9), (2**40, 2.0**41)):
        step = 2**18 if width > 1 else 1
        far = min(step, width // 2) or 1

        def inside(s, scale=scale, width=width):  # by series in Fractions: exp(-x) to x^30
            def exp(x):
                terms, found = Fraction(1), Fraction(1)
                for j in range(1, 31):
                    terms *= -x / j
                    found += terms
                return found

            b = Fraction(scale)
            q = exp(1 / b)
            return 1 + q - exp((s + 1) / b) - exp((width - s + 1) / b)

        ratio = inside(far) / inside(0)
        exact = min(step, width) / scale + math.log1p(float(ratio - 1))
        assert truncated_cost(Change(step), width, scale, integer=True) == pytest.approx(
            exact, rel=1e-12
        )


def test_the_papers_truncation_costs_nearly_twice_epsilon():
    """Noise of scale 1/epsilon, drawn again until inside, is not post-processing."""
    ratio = np.abs(np.diff(np.log(truncated_table(1 / 0.5, 40)), axis=0)).max()
    assert ratio > 1.3 * 0.5
    ratio = np.abs(np.diff(np.log(truncated_table(1 / 0.01, 4000)), axis=0)).max()
    assert ratio > 1.9 * 0.01


@pytest.mark.parametrize("step", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_truncation_of_real_numbers_on_a_fine_grid(step, epsilon):
    width = 1.0
    scale = truncated_scale(Change(step), width, epsilon, integer=False)
    s = np.linspace(0, width, 201)
    inside = stats.laplace.cdf(width, s, scale) - stats.laplace.cdf(0, s, scale)
    log = -np.abs(s[:, None] - s[None, :]) / scale - np.log(inside)[:, None]
    near = np.abs(s[:, None] - s[None, :]) <= step + 1e-9
    ratio = max(np.abs(log[i] - log[j]).max() for i, j in np.argwhere(near))
    assert ratio <= epsilon * (1 + 1e-9)
    assert ratio > 0.6 * epsilon


def test_truncated_cost_adds_over_entries():
    one = truncated_cost(Change(1), 10, 3.0, integer=True)
    assert truncated_cost(Change(1, 2), 10, 3.0, integer=True) == pytest.approx(2 * one)


@pytest.mark.parametrize("integer", [True, False])
def test_both_ways_stay_in_range(integer):
    change = {"add-remove": Change(1), "substitution": Change(1)}
    for value in (np.array(0), np.array([0, 3, 5])):
        one = Statistic("s", value, change, 0, 5, integer)
        for how in ("bit", "truncate"):
            found = one.sanitised(0.05, "add-remove", StudyNoise(2), how)
            assert found.shape == value.shape
            assert ((found >= 0) & (found <= 5)).all()


def test_weights_are_parts_of_one():
    assert shares(["a", "b"], None, "it") == {"a": 0.5, "b": 0.5}
    assert shares(["a", "b"], [0.25, 0.75], "it") == {"a": 0.25, "b": 0.75}
    assert shares(["a", "b"], {"b": 0.9, "a": 0.1}, "it") == {"a": 0.1, "b": 0.9}
    for weights, message in (
        ([0.5, 0.6], r"must be numbers above 0 that sum to 1; they sum to 1\.1"),
        ([1.5, -0.5], "must be numbers above 0"),
        ([0.0, 1.0], "must be numbers above 0"),
        (["x", 1.0], "must be numbers above 0"),
        ([1.0], "has 1 entries; it needs 2: a, b"),
        ({"a": 1.0}, "weights name a; it needs a, b"),
    ):
        with pytest.raises(GuaranteeError, match=message):
            shares(["a", "b"], weights, "it")
