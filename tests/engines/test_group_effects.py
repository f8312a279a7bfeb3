"""Coordinates of group effects: another way through the same posterior, and one that mixes."""

import numpy as np
import pytest

from dpbayes.engines.draws import make_draws, stacked
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedEngine
from dpbayes.mechanisms.posterior.coordinates import group_coordinates, non_centred
from dpbayes.stan.families import FAMILIES

GROUPS, COVARIATES, POINTS = 3, 2, 6


def given(data, rng):
    """Coordinates of any kind: groups that say little, much and nothing."""
    shape = data["group_estimate"].shape
    found = {
        "group_information": rng.choice([0.0, 0.3, 4000.0], shape),
        "group_estimate": rng.normal(size=shape),
        "group_mean": rng.normal(size=(GROUPS, COVARIATES)),
    }
    found["group_information"].flat[0] = 7.0
    if "gap_share" in data:
        found["gap_share"] = rng.uniform(size=data["gap_share"].shape)
    return found


def effects(data, point, coordinates):
    """Effects (J, levels) and the log of d(intercept, effects) / d(coordinates), by hand."""
    information = coordinates["group_information"].reshape(GROUPS, -1)
    sd = np.logaddexp(0, point["group_sd_raw"].reshape(1, -1)) * data["prior_group_sd"]
    precision = information + 1 / sd**2  # of an effect, given the intercept
    prior_sd = data["prior_cutpoint" if "gap" in point else "prior_intercept"][1]
    marginal = 1 / prior_sd**2 + (1 / (1 / np.maximum(information, 1e-300) + sd**2)).sum(axis=0)
    if "gap" in point:
        intercept = -point["first_cutpoint"] - coordinates["gap_share"] @ point["gap"]
    else:
        intercept = point["intercept"]
    covariates = (coordinates["group_mean"] @ point["coefficient"]).reshape(GROUPS, -1)
    estimate = coordinates["group_estimate"].reshape(GROUPS, -1) - covariates - intercept
    raw = point["group_raw"].reshape(GROUPS, -1)
    found = information * estimate / precision + raw / np.sqrt(precision)
    jacobian = -0.5 * np.log(precision).sum() - 0.5 * np.log(marginal).sum()
    return found, sd, jacobian


@pytest.mark.parametrize("family", FAMILIES)
def test_the_density_is_the_same_whatever_they_are(engine, bind, family):
    """log p(θ) less the logarithms of both Jacobians, at points of one and told in the other."""
    plain, data = bind(engine, family, K=COVARIATES, J=GROUPS)
    coordinates = given(data, np.random.default_rng(8))
    walk = plain.rebind(**coordinates)
    points = walk.random_points(POINTS, seed=5)
    values = {str(name): stacked(points, name) for name in points["posterior"].data_vars}
    raw, change = np.empty_like(values["group_raw"]), np.empty(POINTS)
    for s in range(POINTS):
        point = {name: value[s] for name, value in values.items()}
        effect, sd, jacobian = effects(data, point, coordinates)
        raw[s] = (effect / sd).reshape(raw[s].shape)
        change[s] = jacobian - GROUPS * np.log(sd).sum()
    told = make_draws({**{n: v[None] for n, v in values.items()}, "group_raw": raw[None]})
    found = walk.log_prob(points) - plain.log_prob(told) - change
    size = np.abs(walk.log_prob(points)) + np.abs(change) + 1
    assert (np.abs(found - found[0]) <= 1e-9 * size.max()).all()
    np.testing.assert_allclose(
        np.array(list(walk.log_lik(points))), np.array(list(plain.log_lik(told))),
        rtol=1e-8, atol=1e-10,
    )  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("clamp", [np.inf, 2.0])
def test_a_groups_own_records_are_found_out(bind, family, clamp):
    """With a wide sd, effects have about mean and precision that the coordinates say.

    By quadratic differences of the log density: the gradient at raw = 0 is small and the second
    derivatives are near -1 in all effects, where those of the non-centred form are not.
    """
    engine = EmbeddedEngine()
    plain, data = bind(engine, family, K=COVARIATES, J=GROUPS, n=300)
    bound = plain.rebind(clip_lower=-clamp, clip_upper=clamp)
    walk = bound.rebind(**group_coordinates(bound, data))
    curvature = {}
    for name, binding in (("walk", walk), ("plain", bound)):
        at = binding.mode()
        where = [i for i, n in enumerate(binding.coordinates()) if n.startswith("group_raw")]
        step = np.zeros(len(at))
        step[where] = 0.5
        second = (binding.density(at - step)[1] - binding.density(at + step)[1])[where]
        curvature[name] = second.reshape(-1)
    assert np.abs(curvature["walk"] - 1).max() < 0.5
    assert np.abs(curvature["plain"] - 1).max() > 1


def test_draws_are_told_without_coordinates(bind):
    plain, data = bind(EmbeddedEngine(), "normal", K=COVARIATES, J=GROUPS)
    walk = plain.rebind(**given(data, np.random.default_rng(8)))
    points = walk.random_points(4, seed=1)
    everything = make_draws(walk.constrain(walk.unconstrain(points)[None]))
    told = non_centred(everything)
    np.testing.assert_allclose(
        np.array(list(plain.log_lik(told))), np.array(list(walk.log_lik(points))), rtol=1e-9
    )
    assert not np.allclose(told["posterior"]["group_raw"], everything["posterior"]["group_raw"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e308, 1e308])
@pytest.mark.parametrize("family", ["normal", "ordinal", "categorical"])
def test_there_are_always_some(bind, family, value, monkeypatch):
    """A mode that fails at some records must not end a fit: that would tell of the records."""
    plain, data = bind(EmbeddedEngine(), family, K=COVARIATES, J=GROUPS)
    mode = EmbeddedBinding.mode

    def lost(bound, start=None):
        found = mode(bound, start)
        found[-1] = value  # an effect of the last group
        return found

    for broken in (lost, lambda bound, start=None: np.full_like(mode(bound, start), value)):
        monkeypatch.setattr(EmbeddedBinding, "mode", broken)
        found = group_coordinates(plain, data)
        points = plain.rebind(**found).random_points(POINTS, seed=5)
        assert np.isfinite(plain.rebind(**found).log_prob(points)).all()
