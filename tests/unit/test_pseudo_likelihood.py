"""The shared Stan function against a NumPy twin."""

import numpy as np
import pytest
import stanli
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpbayes.stan.program import stan_directory

SOURCE = (stan_directory() / "include" / "pseudo_likelihood.stan").read_text()
CODE = "functions {\n" + SOURCE + "\n}"
TYPES = "vector,vector,vector,real,real"
stan = stanli.Function(f"pseudo_log_lik({TYPES})", stan_code=CODE)
counted = stanli.Function(f"pseudo_log_lik({TYPES},vector)", stan_code=CODE)


def twin(log_lik, weights, anchor, lower, upper):
    total = 0.0
    for f, w, h in zip(log_lik, weights, anchor, strict=True):
        total += min(max(w * (f - h), lower), upper)
    return total


def call(log_lik, weights, anchor, lower, upper):
    arrays_ = (np.asarray(a, dtype=float) for a in (log_lik, weights, anchor))
    names = ("log_lik", "weights", "anchor")
    given = dict(zip(names, arrays_, strict=True)) | {"clip_lower": lower, "clip_upper": upper}
    found = stan(**given)
    for times in (1.0, 3.0):  # the same with counts
        several = counted(**given, multiplicity=np.full(len(log_lik), times))
        assert several == pytest.approx(times * found, rel=1e-12, abs=1e-12, nan_ok=True)
    return found


vectors = arrays(float, 5, elements=st.floats(-50, 50))
units = arrays(float, 5, elements=st.floats(0, 1))


@given(vectors, units, vectors, st.floats(-10, 0), st.floats(0, 10))
def test_twin_with_window(log_lik, weights, anchor, lower, upper):
    expected = twin(log_lik, weights, anchor, lower, upper)
    assert call(log_lik, weights, anchor, lower, upper) == pytest.approx(expected, abs=1e-9)


@given(st.floats(allow_nan=False), st.floats(-10, 9), st.floats(0, 10))
def test_a_term_however_far_is_at_an_end(f, lower, width):
    """To the last bits of the window: a difference of large numbers has none of them."""
    found = call([f], [1.0], [0.0], lower, lower + width)
    if abs(f) < 1e307:
        assert found == pytest.approx(min(max(f, lower), lower + width), abs=1e-14)
    assert lower - 1e-14 <= found <= lower + width + 1e-14


@given(vectors, units, vectors)
def test_twin_without_window(log_lik, weights, anchor):
    expected = twin(log_lik, weights, anchor, -np.inf, np.inf)
    assert call(log_lik, weights, anchor, -np.inf, np.inf) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_no_record_leaves_the_window(value, weight):
    """Whatever one record's log-likelihood is, its term stays inside: the guarantee's premise."""
    rest = call([0.25], [1.0], [0.0], -2.0, 2.0)
    both = call([0.25, value], [1.0, weight], [0.0, 0.0], -2.0, 2.0)
    assert -2.0 <= both - rest <= 2.0


def test_weight_zero_removes_a_record_without_a_clamp():
    for value in (-np.inf, -1e10):
        assert call([1.5, value], [1.0, 0.0], [0.0, 0.0], -np.inf, np.inf) == 1.5
