"""Draws whose log density is another than the chain's are refused."""

import numpy as np
import pytest

from dpbayes.core.errors import EngineError
from dpbayes.engines.agreement import CHECKED_DRAWS, largest_gap, require_own_draws
from dpbayes.engines.draws import make_draws, stacked
from tests.conftest import recording


def chains(draws=20):
    """Two chains of a standard normal that report its log density."""
    tree = recording(np.zeros((2 * draws, 3)))
    tree["sample_stats"]["lp"] = -0.5 * tree["posterior"]["intercept"] ** 2
    return tree


def log_density(draws):
    return -0.5 * stacked(draws, "intercept") ** 2


def moved(draws, amount=0.01):
    return log_density(make_draws({"intercept": draws["posterior"]["intercept"] + amount}))


def test_a_constant_makes_no_difference():
    require_own_draws(chains(), {"itself": lambda draws: log_density(draws) + 17.0}, "a sampler")


@pytest.mark.parametrize(
    "wrong",
    [
        moved,
        lambda draws: np.zeros(len(log_density(draws))),
        lambda draws: np.full(len(log_density(draws)), -np.inf),
        lambda draws: np.full(len(log_density(draws)), np.nan),
        lambda draws: np.append(log_density(draws)[:-1], 5.0),  # the last draw of the last chain
    ],
)
def test_another_density_is_refused(wrong):
    densities = {"the same program": log_density, "the embedded engine": wrong}
    with pytest.raises(EngineError, match=r"CmdStan 9\.9\.9 .* by the embedded engine") as caught:
        require_own_draws(chains(), densities, "CmdStan 9.9.9")
    assert "differ by up to" in caught.value.said
    assert "differ by up to" not in str(caught.value)  # it follows from confidential records


def test_draws_from_the_first_to_the_last_of_each_chain_are_looked_at():
    seen = []

    def density(draws):
        seen.append(draws["posterior"]["intercept"].to_numpy())
        return log_density(draws)

    tree = chains()
    require_own_draws(tree, {"itself": density}, "a sampler")
    (values,) = seen
    assert values.shape == (2, CHECKED_DRAWS)
    whole = tree["posterior"]["intercept"].to_numpy()
    np.testing.assert_array_equal(values[:, [0, -1]], whole[:, [0, -1]])


def test_short_chains_and_large_densities():
    tree = chains(draws=4)
    tree["sample_stats"]["lp"] += 1e9
    # Rounding of a sum of 10^9 is no difference, a nat more than that is one.
    require_own_draws(tree, {"itself": lambda d: log_density(d) + 1e9}, "a sampler")
    assert largest_gap(np.array([1.0, 2.0]), np.array([5.0, 6.5])) == 0.5
    assert largest_gap(np.array([1.0, 2.0]), np.array([5.0, np.nan])) == np.inf
