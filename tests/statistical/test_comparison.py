"""Studies of the comparison synthesizers: what the papers say of their figures, in numbers.

Comparisons have margins of many standard errors; each test fails by chance less than once in 10^4.
"""

import math

import numpy as np
import pandas as pd
import pytest

from dpbayes.studies.bowen_liu import comparison, comparison_1, comparison_2, fertility
from dpbayes.studies.liu import allocation

# One worker, which makes the fixtures once.
pytestmark = [pytest.mark.statistical, pytest.mark.xdist_group("comparison")]


@pytest.fixture(scope="module")
def binary():
    found = comparison_1.run(3000, seed=1)
    return found.set_index(["method", "n", "truth", "epsilon"])


def log(k):
    return comparison.EPSILONS[k + 4]


@pytest.mark.parametrize("n", comparison_1.SIZES)
@pytest.mark.parametrize("truth", [0.10, 0.25])
def test_shares_away_from_one_half(binary, n, truth):
    """Bowen & Liu, section 4.1, results 1, 4, 6 and 7."""
    at = {k: {m: binary.loc[m, n, truth, log(k)] for m in comparison_1.METHODS} for k in (0, 4)}
    # 1: MODIPS and Laplace are alike, and better than the other two.
    for worse in ("beta-binomial", "beta-binomial-mr"):
        for better in ("modips", "laplace"):
            assert at[0][better].rmse < 0.75 * at[0][worse].rmse
            assert abs(at[0][better].bias) < 0.3 * at[0][worse].bias  # 4: towards one half
            assert at[0][better].coverage > at[0][worse].coverage + 0.3
    # 7: with much ε nominal coverage, but for McClure & Reiter's.
    original = at[4]["original"].coverage
    for method in ("modips", "laplace", "beta-binomial"):
        assert abs(at[4][method].coverage - original) < 6 * at[4][method].se + 0.03
    assert at[4]["beta-binomial-mr"].coverage < original - 0.05


@pytest.mark.parametrize("n", comparison_1.SIZES)
def test_a_share_of_one_half_agrees_with_the_prior(binary, n):
    """Result 6: the prior's mean is right by chance, and less ε is better than the data."""
    small, large = (binary.loc["beta-binomial", n, 0.5, log(k)] for k in (-4, 4))
    original = binary.loc["original", n, 0.5, log(0)]
    assert small.rmse < 0.6 * original.rmse < large.rmse


def test_noise_matters_less_in_many_records_except_for_priors(binary):
    """Result 3."""
    for method, falls in (("modips", True), ("laplace", True), ("beta-binomial", False)):
        ratio = (
            binary.loc[method, 1000, 0.1, log(0)].rmse / binary.loc[method, 40, 0.1, log(0)].rmse
        )
        assert (ratio < 0.3) == falls
        assert ratio < 0.3 or ratio > 0.9


def test_widths_at_small_epsilon(binary):
    """Result 8: wide intervals of MODIPS and Laplace below ε = 1/e."""
    for truth in comparison_1.SHARES:
        wide, narrow = (
            binary.loc[m, 100, truth, log(-2)].width for m in ("modips", "beta-binomial")
        )
        assert wide > 2.5 * narrow


def test_without_noise_the_methods_meet_what_they_are_made_of():
    """Second path: at a huge ε ``laplace`` is the data, ``modips`` is plain synthesis."""
    found = comparison_1.run(4000, seed=2, epsilons=(1e4,)).set_index(["method", "n", "truth"])
    for n in comparison_1.SIZES:
        for truth in comparison_1.SHARES:
            same = found.loc["laplace", n, truth], found.loc["original", n, truth]
            assert same[0].rmse == pytest.approx(same[1].rmse, rel=1e-9)
            plain = found.loc["modips", n, truth].rmse / found.loc["MS", n, truth].rmse
            assert plain == pytest.approx(1, abs=0.08)
            # W + B/m with a posterior draw and n new records: 1 + 2/m times p(1-p)/n.
            expected = math.sqrt(truth * (1 - truth) / n * (1 + 2 / comparison.M))
            assert found.loc["MS", n, truth].rmse == pytest.approx(expected, rel=0.08)


@pytest.fixture(scope="module")
def normal():
    epsilons = (log(-2), log(0), log(4))
    found = comparison_2.run(600, seed=1, epsilons=epsilons)
    return found.set_index(["parameter", "method", "n", "truth", "epsilon"])


def test_means_and_variances(normal):
    """Bowen & Liu, section 4.2, results 1 to 3 and 5."""
    for variance in comparison_2.VARIANCES:

        def at(parameter, method, n, k, variance=variance):
            return normal.loc[parameter, method, n, variance, log(k)]

        # 2: many records help, except the smoothed histogram.
        for method in ("modips", "perturbed-histogram"):
            assert at("variance", method, 1000, 0).rmse < 0.4 * at("variance", method, 20, 0).rmse
        smoothed = [at("variance", "smoothed-histogram", n, 0).rmse for n in (20, 1000)]
        assert smoothed[1] > 0.9 * smoothed[0]
        # 3: the bounds' asymmetry pulls means up.
        assert at("mean", "perturbed-histogram", 100, -2).bias > 0.1
        # 5: MODIPS covers, with wide intervals; the smoothed histogram does not.
        for n in comparison_2.SIZES:
            for parameter in ("mean", "variance"):
                assert at(parameter, "modips", n, 0).coverage > 0.85
        assert at("variance", "smoothed-histogram", 1000, 0).coverage < 0.01
        assert (
            at("mean", "modips", 100, -2).width
            > 2 * at("mean", "perturbed-histogram", 100, -2).width
        )
        # 1: with much ε all but the smoothed histogram approach plain synthesis.
        assert at("mean", "modips", 1000, 4).rmse < 1.3 * at("mean", "MS", 1000, 4).rmse


def test_results_scale_with_sigma(normal):
    """The mechanisms are equivariant: nothing but the draws differs between variances."""
    for method in comparison_2.METHODS:
        rmse = [normal.loc["mean", method, 100, v, log(0)].rmse for v in comparison_2.VARIANCES]
        assert max(rmse) / min(rmse) < 1.25


def test_budget_allocation():
    """Liu, section 5.3: more ε for the mean is better for the mean; bias only for uneven bounds."""
    found = allocation.run(1500, seed=1)
    key = ["bounds", "out of range", "n", "w"]
    at = found.set_index(key)
    for bounds in ("-4, 4", "-4, 5"):
        for n in allocation.SIZES:
            little, much = (at.loc[bounds, "bit", n, w] for w in (0.1, 0.75))
            assert much.width < 0.6 * little.width
            assert much.rmse < 0.7 * little.rmse
            for w in (0.5, 0.75, 0.9):
                assert at.loc[bounds, "bit", n, w].coverage > 0.93
    biased = at.loc["-4, 5", "bit", 100]
    assert biased.loc[0.25].bias > 3 * biased.loc[0.25].rmse / math.sqrt(1500)  # 0.14, 5.5 se
    assert abs(biased.loc[0.9].bias) < 0.3 * biased.loc[0.25].bias
    even = at.loc["-4, 4", "bit", 1000]
    assert np.abs(even["bias"] / even["rmse"]).max() < 5 / math.sqrt(1500)
    communal = found[found["communal"]]
    assert set(communal["w"].round(4)) == {round(1 / 9, 4), 0.1}
    # Near the original's width only with many records and most of ε.
    assert at.loc["-4, 4", "bit", 1000, 0.75].width < 3 * at["original width"].max()


def test_fertility_tables_have_the_papers_layout():
    """Five replicates: what noise decides, and what no noise can change."""
    rows = [fertility.run(np.random.SeedSequence(k), 1) for k in range(5)]
    rows.append(fertility.run(np.random.SeedSequence(5), 1, "original"))
    found = fertility.table(pd.concat(rows)).set_index(["quantity", "method"])
    assert found.loc["SVM consistency, %", "original"]["ours"] == 85
    assert found.loc["age, mean", "original"]["ours"] == pytest.approx(0.67, abs=0.02)
    assert found.loc["hours, mean", "original"]["ours"] == pytest.approx(0.41, abs=0.02)
    for method in ("laplace", "modips"):
        tvd = [found.loc[f"TVD, {k}-way", method]["ours"] for k in (1, 2, 3, 8)]
        assert tvd == sorted(tvd)  # coarser tables cannot be farther apart; the printed ones are
        assert found.loc["TVD, 1-way", method]["ours"] == pytest.approx(0.25, abs=0.04)
        assert 0 <= found.loc["SVM consistency, %", method]["ours"] <= 100
    assert set(fertility.PRINTED) == {q for q, _ in found.index}
