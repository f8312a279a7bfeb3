"""Weights and bounds against brute force on small arrays, and properties on drawn ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpbayes as dpb
from dpbayes.mechanisms.posterior.risk import (
    largest_scaling,
    linear_weights,
    record_risk,
    scaled_weights,
    truncated_weights,
)

finite = st.floats(-1e6, 1e6, allow_nan=False)
sensitivities = arrays(float, st.integers(1, 30), elements=st.floats(0, 1e6))


def test_record_risk_by_brute_force():
    rng = np.random.default_rng(1)
    f = rng.normal(scale=4, size=(7, 5))  # draws, records
    weights = rng.uniform(size=5)
    risk = record_risk(f, weights, (-1.5, 2.0))
    for i in range(5):
        terms = [weights[i] * f[s, i] for s in range(7)]
        assert risk.sensitivity[i] == max(abs(v) for v in f[:, i])
        assert risk.lipschitz[i] == max(abs(min(max(t, -1.5), 2.0)) for t in terms)
        assert risk.censored[i] == any(t < -1.5 or t > 2.0 for t in terms)
    assert risk.bound == max(risk.lipschitz)


def test_non_finite_log_likelihoods():
    f = np.array([[0.0, -np.inf, np.nan, 1.0], [1.0, 0.0, 0.0, np.inf]])
    risk = record_risk(f, np.array([1.0, 1.0, 1.0, 0.0]))
    assert risk.sensitivity.tolist() == [1.0, np.inf, np.inf, np.inf]
    assert risk.lipschitz.tolist() == [1.0, np.inf, np.inf, 0.0]
    clamped = record_risk(f, np.ones(4), (-2.0, 2.0))
    assert clamped.lipschitz.tolist() == [1.0, 2.0, 2.0, 2.0]
    assert clamped.censored.tolist() == [False, True, True, True]


def test_record_risk_needs_draws():
    with pytest.raises(ValueError, match="at least one draw"):
        record_risk(iter([]), np.ones(2))


@pytest.mark.parametrize("high", [0.0, 5e-324, 1e-300, 1.0, 1e300, np.inf])
@pytest.mark.parametrize("c1", [0.0, 1e-300, 1.0, 1e300])
@pytest.mark.parametrize("c2", [-1e308, 0.5, 1e308])
def test_every_record_has_a_weight_whatever_a_reference_file_says(high, c1, c2):
    """Not a number would end the fit of some tables, and tell a record."""
    weights = scaled_weights(np.array([0.0, 5e-324, 1.0, 800.0, 1e308, np.inf]), 0.0, high, c1, c2)
    assert ((weights >= 0) & (weights <= 1)).all()


def test_linear_weights_by_hand():
    f = np.array([1.0, 2.0, 5.0, np.inf])
    assert linear_weights(f).tolist() == [1.0, 0.75, 0.0, 0.0]
    assert linear_weights(f, c1=0.8, c2=0.1).tolist() == pytest.approx([0.9, 0.7, 0.1, 0.0])
    assert linear_weights(np.full(3, 2.0), c1=0.6, c2=0.1).tolist() == pytest.approx([0.7] * 3)
    assert linear_weights(np.full(2, np.inf)).tolist() == [0.0, 0.0]


@given(sensitivities, st.floats(0, 3), st.floats(-2, 2))
def test_weights_are_in_the_unit_interval_and_fall_with_risk(f, c1, c2):
    weights = linear_weights(f, c1, c2)
    assert ((weights >= 0) & (weights <= 1)).all()
    order = np.argsort(f)
    assert (np.diff(weights[order]) <= 0).all()


@given(sensitivities, st.randoms(use_true_random=False))
def test_weights_are_equivariant_under_permutation(f, random):
    order = list(range(len(f)))
    random.shuffle(order)
    np.testing.assert_array_equal(linear_weights(f)[order], linear_weights(f[order]))


@given(sensitivities, st.floats(0.01, 20))
def test_truncation_meets_the_target_on_the_unweighted_draws(f, epsilon):
    weights, truncated = truncated_weights(linear_weights(f), f, epsilon)
    assert (weights * f <= epsilon / 2).all()
    assert (weights[truncated] == 0).all()
    np.testing.assert_array_equal(weights[~truncated], linear_weights(f)[~truncated])


@given(
    arrays(float, (4, 6), elements=st.floats(-50, 50)),
    arrays(float, 6, elements=st.floats(0, 1)),
    st.floats(0.01, 20),
)
def test_a_clamp_bounds_every_record(f, weights, epsilon):
    risk = record_risk(f, weights, (-epsilon / 2, epsilon / 2))
    assert risk.bound <= epsilon / 2
    inside = np.abs(weights * f).max(axis=0) <= epsilon / 2
    np.testing.assert_array_equal(risk.censored, ~inside)


@pytest.mark.parametrize(("c1", "c2"), [(-1, 0), (np.nan, 0), (1, np.inf)])
def test_bad_scaling(c1, c2):
    with pytest.raises(dpb.GuaranteeError, match=r"c1|c2"):
        linear_weights(np.ones(3), c1, c2)


@given(
    f=arrays(float, st.integers(2, 30), elements=st.floats(0, 20)),
    bound=st.floats(0.05, 15),
    c1=st.floats(0, 8),
    c2=st.floats(-8, 1),
)
def test_largest_scaling_keeps_the_bound_and_no_pair_keeps_more(f, bound, c1, c2):
    pair = largest_scaling(f, bound)
    weights = linear_weights(f, *pair)
    assert (weights * f <= bound * (1 + 1e-9)).all()
    rival = linear_weights(f, c1, c2)
    if (rival * f <= bound).all():
        # c1 is searched in steps of 0.05, which move a weight by 0.05 at most.
        assert rival.sum() <= weights.sum() + 0.05 * f.size
