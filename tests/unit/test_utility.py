import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ks_2samp

import dpbayes as dpb
from dpbayes.evaluate.utility import avg_ecdf, max_ecdf, total_variation, utility

samples = arrays(float, st.integers(1, 20), elements=st.integers(0, 8).map(float))


@given(samples, samples)
def test_ecdf_measures_by_brute_force(a, b):
    pooled = [*a, *b]
    gaps = [np.mean(a <= v) - np.mean(b <= v) for v in pooled]
    assert max_ecdf(a, b) == pytest.approx(max(abs(g) for g in gaps))
    assert avg_ecdf(a, b) == pytest.approx(np.mean(np.square(gaps)))


def test_max_ecdf_is_the_kolmogorov_smirnov_distance():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=300), rng.normal(0.3, 1, size=200)
    assert max_ecdf(a, b) == pytest.approx(ks_2samp(a, b).statistic)


def test_total_variation():
    a, b = pd.Series(list("aabb")), pd.Series(list("abcc"))
    assert total_variation(a, b) == pytest.approx(0.5)
    assert total_variation(a, a) == 0


def test_utility_by_column_type():
    ordinal = dpb.Column("o", "ordinal", levels=("low", "high"))
    a, b = pd.Series(["low", "high"]), pd.Series(["high", "high"])
    found = utility(ordinal, a, b)
    assert found["max_ecdf"] == found["total_variation"] == 0.5
    assert found["synthetic"] == {"share of low": 0.0, "share of high": 1.0}
    assert "max_ecdf" not in utility(dpb.Column("c", "categorical", levels=("low", "high")), a, b)
