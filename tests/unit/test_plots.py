"""Figures show what they are given; how they look was looked at."""

import numpy as np
import pandas as pd

import dpbayes as dpb
from dpbayes.report import charts as plots


def test_violin_labels_maxima_and_target():
    bounds = {"weighted": np.linspace(0, 3, 50), "censored": np.full(50, 2.5)}
    ax = plots.lipschitz_violin(bounds, epsilon=5).axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["weighted", "censored"]
    texts = {t.get_text() for t in ax.texts}
    assert {"3.00", "2.50", "ε/2 = 2.5"} <= texts
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in dashed] == [2.5]
    assert "ε/2 = 2.5" not in {t.get_text() for t in plots.lipschitz_violin(bounds).axes[0].texts}


def test_density_overlay_integrates_to_one():
    rng = np.random.default_rng(1)
    column = dpb.Column("y", "continuous", lower=0, upper=80)
    data = pd.Series(rng.gamma(2, 8, 500)).clip(0.01, 79)
    ax = plots.density_overlay(column, data, {"censored": data * 0.9}).axes[0]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["data", "censored"]
    for line in ax.lines:
        area = np.trapezoid(line.get_ydata(), line.get_xdata())
        assert abs(area - 1) < 0.02  # the range shown ends a tenth above the largest value


def test_shares_for_counts_and_levels():
    column = dpb.Column("c", "categorical", levels=("a", "b"))
    ax = plots.density_overlay(column, pd.Series(list("aab")), {"s": pd.Series(list("bbb"))}).axes[
        0
    ]
    assert sorted(p.get_height() for p in ax.patches) == [0, 1 / 3, 2 / 3, 1]
    counts = dpb.Column("n", "count", upper=100)
    ax = plots.density_overlay(counts, pd.Series([0, 1, 2]), {"s": pd.Series([2, 2, 2])}).axes[0]
    assert len(ax.patches) == 6
