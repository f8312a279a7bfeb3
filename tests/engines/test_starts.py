"""Where chains of a posterior with several modes start."""

import numpy as np
import pytest
from conftest import CmdStanEngine

from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.mechanisms.posterior.starts import NEAR, climbed


@pytest.fixture(scope="module")
def humps():
    """Two humps far apart: with two components there is a mode that has both in one of them."""
    rng = np.random.default_rng(4)
    return np.concatenate([rng.normal(0.2, 0.02, 60), rng.normal(0.8, 0.1, 140)])


def test_chains_start_at_the_highest_mode(bind, humps):
    bound, _ = bind(EmbeddedEngine(), "mixture", n=200, y=humps)
    starts = climbed(bound, 200, 6, np.random.default_rng(1))
    posterior = starts["posterior"]
    assert posterior["share"].shape == (1, 6, 2)
    # Every start is at the humps, whichever mode its climb would have ended in.
    np.testing.assert_allclose(posterior["share"].to_numpy()[0, :, 0], 0.3, atol=0.05)
    np.testing.assert_allclose(posterior["sigma"].to_numpy()[0, :, 0], 0.02, atol=0.01)
    assert np.ptp(posterior["intercept"].to_numpy()) > 0  # no two are the same
    lp = bound.log_prob(starts)
    random = bound.log_prob(bound.random_points(20, seed=1))
    assert lp.min() > random.max()
    assert np.ptp(lp) < 2 * NEAR


def test_no_mode_no_starts(bind, humps, monkeypatch):
    """Where the density is 0 everywhere chains start at random, and say so themselves."""
    bound, _ = bind(EmbeddedEngine(), "mixture", n=200, y=humps)
    monkeypatch.setattr(type(bound), "density", lambda self, at: (-np.inf, np.zeros(len(at))))
    assert climbed(bound, 200, 2, np.random.default_rng(1)) is None


def test_other_engines_climb_on_the_embedded_one(cmdstan, bind, humps):
    assert isinstance(cmdstan, CmdStanEngine)
    theirs, _ = bind(cmdstan, "mixture", n=200, y=humps)
    ours, _ = bind(EmbeddedEngine(), "mixture", n=200, y=humps)
    found, expected = (
        climbed(bound, 200, 2, np.random.default_rng(1)) for bound in (theirs.embedded(), ours)
    )
    for name in found["posterior"].data_vars:
        np.testing.assert_array_equal(found["posterior"][name], expected["posterior"][name])
