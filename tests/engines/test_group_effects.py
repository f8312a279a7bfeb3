"""Coordinates of group effects: another way through the same posterior, and one that mixes."""

import numpy as np
import pytest

from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedEngine
from dpbayes.mechanisms.posterior import coordinates
from dpbayes.mechanisms.posterior.coordinates import group_coordinates, non_centred
from dpbayes.stan.families import FAMILIES
from tests.programs import one_of_each_program

COVARIATES, POINTS = 2, 3
ONE_PART = [name for name in one_of_each_program() if not FAMILIES[name].parts]
SHAPES = (3, "terms")  # as in conftest.columns_of


def given(data, rng):
    """Coordinates of any kind: groups that say little, much and nothing."""
    shape = data["group_estimate"].shape
    found = {
        "group_information": rng.choice([0.0, 0.3, 4000.0], shape),
        "group_estimate": rng.normal(size=shape),
        "group_mean": rng.normal(size=data["group_mean"].shape),
        "group_free": rng.choice([0.0, 0.5, 3.0], data["T"]),
        "group_apart": rng.choice([0.0, 0.2], data["group_apart"].shape),
        "overlap": rng.normal(size=data["O"]),
        "slope_part": rng.normal(size=data["slope_part"].shape),
    }
    found["group_information"].flat[0] = 7.0
    if "gap_share" in data:
        found["gap_share"] = rng.uniform(size=data["gap_share"].shape)
    return found


def told(walk, plain, data, points):
    """Unconstrained coordinates in plain of points of shape (S, d) in walk."""
    return plain.unconstrain(non_centred(make_draws(walk.constrain(points[None])), data))


@pytest.mark.parametrize("J", SHAPES)
@pytest.mark.parametrize("family", ONE_PART)
def test_the_density_is_the_same_whatever_they_are(bind, family, J):
    """log p(v) + log |dv / du|, v told in other coordinates, by differences."""
    plain, data = bind(EmbeddedEngine(), family, K=COVARIATES, J=J)
    walk = plain.rebind(**given(data, np.random.default_rng(8)))
    d = len(walk.coordinates())
    change = []
    for point in np.random.default_rng(5).uniform(-1.5, 1.5, (POINTS, d)):
        steps = 1e-5 * np.eye(d)
        up, down = (told(walk, plain, data, point + sign * steps) for sign in (1, -1))
        _, jacobian = np.linalg.slogdet((up - down) / 2e-5)
        (there,) = told(walk, plain, data, point[None])
        here = walk.log_density(point[None])[0]
        change.append(here - plain.log_density(there[None])[0] - jacobian)
        np.testing.assert_allclose(
            next(walk.log_lik_at(point[None])), next(plain.log_lik_at(there[None])),
            rtol=1e-8, atol=1e-10,
        )  # fmt: skip
    np.testing.assert_allclose(change, change[0], atol=1e-6 * (1 + abs(here)))


def curvature(bound):
    """Second derivatives in group_raw at the mode, negative, by differences over one sd."""
    at = bound.mode()
    where = [i for i, n in enumerate(bound.coordinates()) if n.startswith("group_raw")]
    found = []
    for i in where:
        step = np.zeros(len(at))
        step[i] = 0.5
        found.append((bound.density(at - step)[1] - bound.density(at + step)[1])[where])
    return np.array(found)


def given_all_else(bound):
    """Means and sds of each of group_raw with all else at the mode, by densities on a fine grid."""
    fine = np.linspace(-8, 8, 161)
    at = bound.mode(coordinates._start(bound, 300))  # clamped ones have several
    found = []
    for i, name in enumerate(bound.coordinates()):
        if name.startswith("group_raw"):
            moved = np.tile(at, (len(fine), 1))
            moved[:, i] = fine
            log_density = bound.log_density(moved)
            weight = np.exp(log_density - log_density.max())
            weight /= weight.sum()
            mean = weight @ fine
            found.append((mean, np.sqrt(weight @ (fine - mean) ** 2)))
    return np.array(found).T


@pytest.mark.parametrize("family", ONE_PART)
@pytest.mark.parametrize("clamp", [np.inf, 2.0])
def test_a_groups_own_records_are_found_out(bind, family, clamp):
    """In coordinates effects are about standard normal, where the non-centred ones are not."""
    plain, data = bind(EmbeddedEngine(), family, K=COVARIATES, J=3, n=300)
    bound = plain.rebind(clip_lower=-clamp, clip_upper=clamp)
    mean, sd = given_all_else(bound.rebind(**group_coordinates(bound, data)))
    assert np.abs(mean).max() < 0.3
    assert np.abs(np.log(sd)).max() < 0.3
    assert np.abs(np.log(given_all_else(bound)[1])).max() > 0.3


@pytest.mark.parametrize("spread", [0.1, 0.01, 0.002])
def test_records_far_closer_than_the_groups_prior(bind, spread):
    """Clamped at both ends, their terms have a slope next to the mode and nowhere else."""
    plain, data = bind(EmbeddedEngine(), "normal", K=COVARIATES, J=3, n=300)
    near = 5 + spread * np.random.default_rng(1).normal(size=300)
    top = -np.log(spread) - 0.9  # about the log density of records at their mean
    bound = plain.rebind(y=near, clip_lower=-3.0, clip_upper=top)
    found = group_coordinates(bound, {**data, "y": near})
    assert (found["group_information"] > 5 / spread**2).all()
    mean, sd = given_all_else(bound.rebind(**found))
    assert np.abs(mean).max() < 0.3
    assert np.abs(np.log(sd)).max() < 0.3


def test_small_groups_that_are_alike_say_as_much_as_their_size(bind):
    """Normal records: information is their number over the variance, though little for each."""
    bound, data = bind(EmbeddedEngine(), "normal", J=300, n=1500)
    count = np.bincount(data["group_index"][:, 0] - 1, minlength=300)
    found = group_coordinates(bound, data)["group_information"] / np.maximum(count, 1)
    np.testing.assert_allclose(found[count > 0], np.median(found), rtol=0.01)


def test_many_groups_of_few_records_settle(bind, monkeypatch):
    """Twice as many rounds hardly change what they say; one round instead of two, by a sixth."""
    bound, data = bind(EmbeddedEngine(), "bernoulli", J=300, n=300)
    rng = np.random.default_rng(3)
    effect = rng.normal(size=300)[data["group_index"][:, 0] - 1]
    bound = bound.rebind(y=(rng.logistic(effect) > 0).astype(int))
    found = []
    for rounds in (coordinates._ROUNDS, 2 * coordinates._ROUNDS):
        monkeypatch.setattr(coordinates, "_ROUNDS", rounds)
        found.append(group_coordinates(bound, data)["group_information"].mean())
    assert found[0] / found[1] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("family", ["hurdle_poisson", "semicontinuous_gamma"])
def test_both_parts_of_a_family_have_some(bind, family):
    """The density is the same in them, but for a constant and the volume of the effects."""
    plain, data = bind(EmbeddedEngine(), family, K=COVARIATES, J=3, n=200)
    labels = tuple(FAMILIES[family].parts)
    found = group_coordinates(plain, data, labels=labels)
    for label in labels:
        assert (found[f"group_information__{label}"] > 1).all()
    walk = plain.rebind(**found)
    points = walk.random_points(POINTS, seed=2)
    moved = make_draws(walk.constrain(walk.unconstrain(points)[None]))
    for label in labels:
        moved = non_centred(moved, data, label)
    np.testing.assert_allclose(
        np.array(list(plain.log_lik(moved))), np.array(list(walk.log_lik(points))), rtol=1e-8
    )


@pytest.mark.parametrize("family", ["normal", "poisson"])
def test_they_are_found_from_the_clamped_target_alone(bind, family, monkeypatch):
    """No other target of the records is looked at; far from them, its terms have no slope."""
    plain, data = bind(EmbeddedEngine(), family, K=COVARIATES, J=3, n=300)
    far, lower = {"normal": (5 + 0.1 * data["y"], -2.0), "poisson": (6 + data["y"], -4.0)}[family]
    narrow = {"y": far, "clip_lower": lower, "clip_upper": lower + 4}
    bound = plain.rebind(**narrow)
    rebind, changed = EmbeddedBinding.rebind, set()

    def watched(binding, **changes):
        changed.update(changes)
        return rebind(binding, **changes)

    monkeypatch.setattr(EmbeddedBinding, "rebind", watched)
    found = group_coordinates(bound, {**data, **narrow})
    assert (found["group_information"] > 10).all()
    assert changed == {"group_information", "group_estimate", "slope_part"}


def test_mean_and_sd_of_a_likelihood_with_two_modes():
    """A narrow and a wide mode, and one that is narrow and far out, by fine quadrature."""
    sd, weights = 0.5, np.array([[0.7, 0.3], [1e-3, 1.0], [0.0, 1.0]])
    modes, scales = np.array([1.6, 0.2]), np.array([0.1, 0.6])
    fine = np.linspace(-4, 4, 200_001)[:, None, None]

    def likelihood(x):
        return weights * np.exp(-0.5 * ((x - modes) / scales) ** 2)

    density = np.exp(-0.5 * (fine[..., 0] / sd) ** 2) * likelihood(fine).sum(axis=-1)
    density /= density.sum(axis=0)
    true_mean = (density * fine[..., 0]).sum(axis=0)
    true_sd = np.sqrt((density * (fine[..., 0] - true_mean) ** 2).sum(axis=0))
    mean, width = np.full(3, 1.6), np.full(3, 2.0)
    for _ in range(coordinates._PASSES):
        x = mean + width * coordinates._stretched(2.0 / width)
        parts = likelihood(x[..., None])
        slopes = -((x[..., None] - modes) / scales**2 * parts).sum(axis=-1) / parts.sum(axis=-1)
        mean, width = coordinates._moments(x, np.nan_to_num(slopes), sd, width)
    np.testing.assert_allclose(mean, true_mean, atol=0.1)
    np.testing.assert_allclose(width, true_sd, rtol=0.2)


@pytest.mark.parametrize("family", ONE_PART)
def test_columns_are_told_apart(bind, family):
    """No direction in the effects of all columns is narrow, where non-centred some are."""
    bound, data = bind(EmbeddedEngine(), family, K=COVARIATES, J="terms", n=300)
    walk = bound.rebind(**group_coordinates(bound, data))
    ours, plain = (np.linalg.eigvalsh(curvature(b))[[0, -1]] for b in (walk, bound))
    assert ours[0] > 0.4
    assert ours[1] < 12
    assert ours[1] < plain[1] / 20


@pytest.mark.parametrize("J", SHAPES)
@pytest.mark.parametrize("family", ["normal", "categorical"])
def test_draws_are_told_without_coordinates(bind, family, J):
    plain, data = bind(EmbeddedEngine(), family, K=COVARIATES, J=J)
    walk = plain.rebind(**given(data, np.random.default_rng(8)))
    points = walk.random_points(4, seed=1)
    everything = make_draws(walk.constrain(walk.unconstrain(points)[None]))
    told = non_centred(everything, data)
    np.testing.assert_allclose(
        np.array(list(plain.log_lik(told))), np.array(list(walk.log_lik(points))), rtol=1e-9
    )
    assert not np.allclose(told["posterior"]["group_raw"], everything["posterior"]["group_raw"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e308])
@pytest.mark.parametrize("family", ["normal", "categorical"])
@pytest.mark.parametrize("J", SHAPES)
def test_there_are_always_some(bind, family, J, value, monkeypatch):
    """A mode that fails at some records must not end a fit: that would tell of the records."""
    plain, data = bind(EmbeddedEngine(), family, K=COVARIATES, J=J)
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
