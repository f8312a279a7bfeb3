"""Studies of the comparison synthesizers: what the papers say of their figures, in numbers.

Comparisons have margins of many standard errors; each test fails by chance less than once in 10^4.
"""

import math

import numpy as np
import pandas as pd
import pytest

from studies.bowen_liu import comparison, comparison_1, comparison_2, fertility
from studies.liu import allocation
from studies.liu.bounding import BOUNDING, BOUNDS, NOT_PRIVATE

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
    return found[found["bounds"] == "asymmetric"].set_index(
        ["parameter", "method", "n", "truth", "epsilon"]
    )


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


@pytest.fixture(scope="module")
def parts():
    pieces = [p for p in allocation.pieces(600) if p["n"] == 100]
    pieces += [p for p in allocation.pieces(250) if p["n"] == 1000 and p["bounds"] == "-4, 5"]
    seeds = np.random.SeedSequence(1).spawn(len(pieces))
    found = [allocation.run(seed, **p) for seed, p in zip(seeds, pieces, strict=True)]
    return pd.concat(found).set_index(["bounds", "bounding", "n", "w"]).sort_index()


def test_budget_allocation(parts):
    """Liu, section 5.3. Margins of 5 standard errors: 0.01 of a coverage at n = 100."""
    for bounds in BOUNDS:
        for how in BOUNDING:
            little, much = (parts.loc[bounds, how, 100, w] for w in (0.1, 0.75))
            assert much.width < 0.85 * little.width
        for w in (0.5, 0.75, 0.9):
            assert parts.loc[bounds, "bit", 100, w].coverage > 0.91
    even, uneven = (parts.loc[bounds, "bit", 100] for bounds in BOUNDS)
    assert np.abs(even["bias"] / even["rmse"]).max() < 5 / math.sqrt(600)
    assert uneven.loc[0.1].bias > 0.2
    assert uneven.loc[0.9].bias < 0.75 * uneven.loc[0.1].bias
    assert set(parts.index.get_level_values("w").unique().map(lambda w: round(w, 4))) == {
        0.1, round(1 / 9, 4), 0.25, 0.5, 0.75, 0.9
    }  # fmt: skip


def test_the_papers_truncation_covers_too_rarely(parts):
    """n = 1,000: 0.67 at w = 0.9, as in Figure 8, by the paper's accounting alone."""
    theirs = parts.loc["-4, 5", NOT_PRIVATE, 1000]
    assert abs(theirs.loc[0.9].coverage - 0.67) < 5 * theirs.loc[0.9].se
    assert theirs.loc[0.25].coverage > 0.9
    assert parts.loc["-4, 5", "bit", 1000, 0.9].coverage > 0.9


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
