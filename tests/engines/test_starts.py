"""Where chains start, and with which metric."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import CmdStanEngine

from dpbayes.core.errors import EngineError
from dpbayes.engines.base import SamplerSettings
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.mechanisms.posterior.starts import CLIMBS, climbed, random_starts
from dpbayes.stan.program import StanProgram
from tests.programs import GOOD, write

N = 120


@pytest.fixture(scope="module")
def humps():
    """Three humps for two components: a mode has the first or the last one alone."""
    rng = np.random.default_rng(4)
    hump = rng.choice(3, N, p=(0.45, 0.4, 0.15))
    return np.array([0.1, 0.5, 0.9])[hump] + np.array([0.02, 0.1, 0.02])[hump] * rng.normal(size=N)


def test_chains_start_at_the_mode_that_holds_the_posterior(bind, humps):
    bound, _ = bind(EmbeddedEngine(), "mixture", n=N, y=humps)
    size = len(bound.coordinates())
    climbs = np.random.default_rng(1).uniform(-2, 2, (CLIMBS, size))  # those of the first call
    heights = [bound.density(bound.mode(start))[0] for start in climbs]
    assert np.ptp(heights) > 50  # a chain would stay in the lower one
    starts = climbed(bound, N, 20, np.random.default_rng(1))
    posterior = starts["posterior"]
    assert posterior["share"].shape == (1, 20, 2)
    at = [bound.density(point)[0] for point in bound.unconstrain(starts)]
    assert min(at) > max(heights) - 20
    np.testing.assert_allclose(posterior["sigma"].to_numpy()[0, :, 0], 0.02, atol=0.01)
    assert len(set(posterior["intercept"].to_numpy()[0])) == 20


def test_two_modes_are_started_at_by_what_they_hold(bind):
    """Three humps alike: each of the outer ones may be alone, with the same right.

    A share of .5 of 400 starts is within .4 and .6 but for 1 in 15,000 times.
    """
    y = np.concatenate([c + np.linspace(-0.03, 0.03, 40) for c in (0.2, 0.5, 0.8)])
    bound, _ = bind(EmbeddedEngine(), "mixture", n=N, y=y)
    starts = climbed(bound, N, 400, np.random.default_rng(1))
    first = starts["posterior"]["share"].to_numpy()[0, :, 0]
    assert set(np.round(first, 1)) == {0.3, 0.7}
    assert 0.4 < (first > 0.5).mean() < 0.6


def test_starts_are_drawn_here_also_where_few_points_are_possible(tmp_path):
    """An engine that is left to find starts takes them from its seed, which has 31 bits."""
    for prior, possible in (("uniform(1.9, 1.95)", True), ("uniform(5, 6)", False)):
        program = StanProgram.from_file(write(tmp_path, GOOD.replace("normal(0, 2)", prior)))
        data = {"n": 3, "y": np.zeros(3), **contract_defaults(3)}
        bound = EmbeddedEngine().compile(program).bind(data)
        rng = np.random.default_rng(1)
        if possible:
            starts = random_starts(bound, bound, 4, rng, None)["posterior"]["mu"].to_numpy()
            assert starts.shape == (1, 4)
            assert ((starts > 1.9) & (starts < 1.95)).all()
        else:
            with pytest.raises(EngineError, match="no start"):
                random_starts(bound, bound, 4, rng, None)


class Humps:
    """Two normal humps of one coordinate, at -1 and 1, with log heights and sds."""

    def __init__(self, heights, sds):
        self.heights, self.sds = np.array(heights), np.array(sds)

    def coordinates(self):
        return ["x"]

    def mode(self, start):
        return np.sign(start)

    def density(self, at):
        which = int(at[0] > 0)
        away = (at - (-1, 1)[which]) / self.sds[which]
        return float(self.heights[which] - away @ away / 2), -away / self.sds[which]

    def constrain(self, points):
        return {"x": points[..., 0]}


@pytest.mark.parametrize(
    ("heights", "sds", "share"),
    [
        ((0.0, -9.9), (0.01, 0.01), np.exp(-9.9)),
        ((0.0, -10.1), (0.01, 0.01), np.exp(-10.1)),  # of a neighbour: on no threshold's other side
        ((0.0, -1.0), (0.01, 0.01), np.exp(-1) / (1 + np.exp(-1))),
        ((0.0, 0.0), (0.01, 0.03), 0.75),
    ],
)
def test_modes_are_started_at_by_height_and_width(heights, sds, share):
    """Of 2,000 starts: five standard errors, and one more start."""
    found = climbed(Humps(heights, sds), 10_000, 2000, np.random.default_rng(1))
    right = (found["posterior"]["x"].to_numpy() > 0).mean()
    assert abs(right - share) < 5 * np.sqrt(share * (1 - share) / 2000) + 1 / 2000


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
        climbed(bound, N, 2, np.random.default_rng(1)) for bound in (theirs.density_model(), ours)
    )
    for name in found["posterior"].data_vars:
        np.testing.assert_array_equal(found["posterior"][name], expected["posterior"][name])


@pytest.mark.parametrize("metric", ["diag_e", "dense_e"])
def test_chains_begin_with_a_metric(bind, metric):
    """Kept where warm-up is too short to find another; one by one as all at once."""
    bound, _ = bind(EmbeddedEngine(), "normal", 2)
    settings = SamplerSettings(chains=2, warmup=100, draws=50, seed=1, metric=metric)
    size = len(bound.coordinates())
    near = np.cov(bound.unconstrain(bound.sample(replace(settings, warmup=1000, draws=500))).T)
    assert near.shape == (size, size)
    given = near if metric == "dense_e" else np.diag(near).copy()
    apart = np.outer(*2 * [np.geomspace(1, 1e-3, size)])
    warm = bound.warmed(given)
    far = bound.warmed(given * (apart if metric == "dense_e" else np.diag(apart)))
    assert len({b.identity() for b in (bound, warm, far)}) == 3
    joint = warm.sample(settings)
    steps = [b.sample(settings)["sample_stats"]["n_steps"].mean() for b in (warm, far)]
    assert 5 * steps[0] < steps[1]
    single = {}
    warm.sample_chains(settings, [1], single.__setitem__)
    for name, values in joint["posterior"].data_vars.items():
        np.testing.assert_array_equal(single[1]["posterior"][name][0], values[1])
