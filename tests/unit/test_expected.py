"""Which way to a whole table is expected to keep more, by public facts."""

import numpy as np
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.marginals.expected import RELATIONS


def winner(n, d, q, epsilon, L):
    found = dpb.expected_information(n, d, epsilon, groups=q, range=L)
    return found.better


def test_the_boundary_is_the_one_of_the_formula():
    """P q > 0.8 sqrt(L n epsilon) where tempering is strong, which a small epsilon makes it."""
    rng = np.random.default_rng(1)
    for _ in range(500):
        n, d = int(rng.integers(50, 100_000)), int(rng.integers(2, 40))
        epsilon, L = 10 ** rng.uniform(-3, -1.5), rng.uniform(1, 2)
        edge = np.sqrt(RELATIONS * L * n * epsilon) / (d * (d - 1) / 2)
        assert winner(n, d, 1.05 * edge, epsilon, L) == "sequence"
        assert winner(n, d, 0.95 * edge, epsilon, L) == "marginals"
    assert np.isclose(np.sqrt(RELATIONS), 0.8, atol=0.01)


def test_the_information_of_noisy_tables_by_simulation():
    """The variance of an association's estimate, from a table with Laplace noise of its scale.

    Means of 4,000 runs: relative standard error of a variance 2.2 %, tolerance 5 of them.
    """
    rng = np.random.default_rng(3)
    n, d, q, epsilon, runs = 900, 5, 4, 2.0, 4000
    score = (np.arange(q) - (q - 1) / 2) / np.sqrt((q**2 - 1) / 12)  # mean 0, variance 1
    pairs = d * (d - 1) / 2
    moments = np.empty((2, runs))
    for r in range(runs):
        table = rng.multinomial(n, np.full(q * q, 1 / q**2)).reshape(q, q)
        noisy = table + rng.laplace(0, pairs / (RELATIONS * epsilon), (q, q))
        moments[:, r] = score @ table @ score, score @ noisy @ score
    without, noise = moments.var(axis=1)
    found = dpb.expected_information(n, d, epsilon, groups=q)
    assert found.measured == pytest.approx(without / noise, rel=0.15)
    assert found.sequence == pytest.approx(RELATIONS * epsilon / 4)


def test_many_records_are_counted_and_many_columns_are_modelled():
    assert dpb.expected_information(1_601, 5, 1.0).better == "marginals"
    assert dpb.expected_information(61_395, 5, 1.0).better == "marginals"
    assert dpb.expected_information(300, 15, 1.0).better == "sequence"
    assert dpb.expected_information(10**9, 3, 3.0).measured == pytest.approx(1)
    assert dpb.expected_information(100, 3, 50.0).sequence == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0, 5, 1.0), "rows = 0"),
        ((100, 1, 1.0), "columns = 1"),
        ((100.5, 5, 1.0), "rows = 100.5"),
        ((100, True, 1.0), "columns = True"),
        ((100, 5, 0.0), "epsilon"),
        ((100, 5, float("nan")), "epsilon"),
    ],
)
def test_bad_arguments(given, message):
    with pytest.raises(dpb.GuaranteeError, match=message):
        dpb.expected_information(*given)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_settings(bad):
    with pytest.raises(dpb.GuaranteeError, match="range"):
        dpb.expected_information(100, 5, 1.0, range=bad)
    with pytest.raises(dpb.GuaranteeError, match="groups"):
        dpb.expected_information(100, 5, 1.0, groups=bad)


@pytest.mark.parametrize("name", ["rows", "columns"])
def test_numbers_that_no_float_holds_are_refused(name):
    with pytest.raises(dpb.GuaranteeError, match="must be at most 1,000,000,000,000,000"):
        dpb.expected_information(**{"rows": 9, "columns": 3, "epsilon": 1.0, name: 10**400})
