"""Where chains of a posterior with several modes start."""

import numpy as np
import pytest
from conftest import CmdStanEngine

from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.mechanisms.posterior.starts import CLIMBS, NEAR, climbed

N = 120


@pytest.fixture(scope="module")
def humps():
    """Three humps for two components: a mode has the first or the last one alone."""
    rng = np.random.default_rng(4)
    hump = rng.choice(3, N, p=(0.45, 0.4, 0.15))
    return np.array([0.1, 0.5, 0.9])[hump] + np.array([0.02, 0.1, 0.02])[hump] * rng.normal(size=N)


def test_chains_start_at_the_highest_mode(bind, humps):
    bound, _ = bind(EmbeddedEngine(), "mixture", n=N, y=humps)
    size = len(bound.coordinates())
    climbs = np.random.default_rng(1).uniform(-2, 2, (CLIMBS, size))  # those of the first call
    heights = [bound.density(bound.mode(start))[0] for start in climbs]
    assert np.ptp(heights) > 5 * NEAR  # a chain would stay in the lower one
    starts = climbed(bound, N, 20, np.random.default_rng(1))
    posterior = starts["posterior"]
    assert posterior["share"].shape == (1, 20, 2)
    at = [bound.density(point)[0] for point in bound.unconstrain(starts)]
    assert min(at) > max(heights) - 2 * NEAR
    np.testing.assert_allclose(posterior["sigma"].to_numpy()[0, :, 0], 0.02, atol=0.01)
    assert len(set(posterior["intercept"].to_numpy()[0])) == 20


def test_no_mode_no_starts(bind, humps, monkeypatch):
    """Where the density is 0 everywhere chains start at random, and say so themselves."""
    bound, _ = bind(EmbeddedEngine(), "mixture", n=N, y=humps)
    monkeypatch.setattr(type(bound), "density", lambda self, at: (-np.inf, np.zeros(len(at))))
    assert climbed(bound, N, 2, np.random.default_rng(1)) is None


def test_other_engines_climb_on_the_embedded_one(cmdstan, bind, humps):
    assert isinstance(cmdstan, CmdStanEngine)
    theirs, _ = bind(cmdstan, "mixture", n=N, y=humps)
    ours, _ = bind(EmbeddedEngine(), "mixture", n=N, y=humps)
    found, expected = (
        climbed(bound, N, 2, np.random.default_rng(1)) for bound in (theirs.embedded(), ours)
    )
    for name in found["posterior"].data_vars:
        np.testing.assert_array_equal(found["posterior"][name], expected["posterior"][name])
