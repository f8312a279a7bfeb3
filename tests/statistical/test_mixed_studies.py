"""Bowen & Liu's studies 3 and 4: what the paper says of their figures, in numbers.

Comparisons have margins of four standard errors and more; each test fails by chance less than once
in 10^3. What the paper says and is not so here is tested, too, and marked.
"""

import numpy as np
import pytest

from studies.bowen_liu import comparison, mixed
from studies.bowen_liu import comparison_3 as location
from studies.bowen_liu import comparison_4 as slomag

# One worker, which makes the fixtures once.
pytestmark = [pytest.mark.statistical, pytest.mark.xdist_group("mixed studies")]
HISTOGRAMS, NOT_PRIVATE = mixed.HISTOGRAMS, mixed.NOT_PRIVATE


def log(k):
    return comparison.EPSILONS[k + 4]


def run(design, replicates, epsilons):
    found = mixed.measures(mixed.run(design, 1, replicates, epsilons))
    return found.set_index(["parameter", "method", "epsilon"]).sort_index()


@pytest.fixture(scope="module")
def glom():
    return run(location.DESIGN, 200, [log(k) for k in (-1, 0, 1, 4)])


@pytest.fixture(scope="module")
def sequence():
    return run(slomag.DESIGN, 60, [log(k) for k in (-1, 0, 1, 4)])


def test_glom_histograms_are_better_for_shares_and_means(glom):
    """Section 4.3.1, result 1."""
    for name in [name for name in location.DESIGN.truths if name.startswith("Pr")]:
        for k in (-1, 0):
            ours, other = (glom.loc[name, m, log(k)] for m in (HISTOGRAMS, "modips"))
            assert ours.rmse < 0.8 * other.rmse
            assert ours.width < 0.75 * other.width
    for name in ("Pr(w2 = 1)", "Pr(w3 = 1)"):  # noise pulls shares to equal ones
        ours, other = (glom.loc[name, m, log(-1)] for m in (HISTOGRAMS, "modips"))
        assert 0 < ours.bias < 0.6 * other.bias
    ours, other = (glom.loc["Pr(w3 = 1)", m, log(0)] for m in (HISTOGRAMS, "modips"))
    assert ours.coverage > other.coverage
    for j in (1, 2):
        for k in (0, 1):
            ours, other = (glom.loc[f"mean {j}, max π", m, log(k)] for m in (HISTOGRAMS, "modips"))
            assert ours.rmse < 0.8 * other.rmse
            assert ours.width < 0.85 * other.width
            # Not so: its coverage is not nearer to the nominal one but above it.
            assert ours.coverage > 0.96


def test_glom_modips_is_better_for_variances(glom):
    """Section 4.3.1, result 2."""
    for name in ("variance 1", "variance 2"):
        for k in (0, 1, 4):
            model, ours = (glom.loc[name, m, log(k)] for m in ("modips", HISTOGRAMS))
            assert abs(model.bias) < 0.4 * ours.bias
            assert model.rmse < 0.5 * ours.rmse
            assert model.coverage > 0.82
    model, ours = (glom.loc["correlation", m, log(1)] for m in ("modips", HISTOGRAMS))
    assert abs(model.bias) < 0.6 * abs(ours.bias)
    assert model.rmse < 0.9 * ours.rmse
    # Not so: at ε = 1 the correlation is as bad by either.
    model, ours = (glom.loc["correlation", m, log(0)] for m in ("modips", HISTOGRAMS))
    assert 0.85 < model.rmse / ours.rmse < 1.2
    for name in ("variance 1", "variance 2", "correlation"):
        assert glom.loc[name, "modips", log(4)].coverage > 0.85
        for k in (-1, 0, 1, 4):
            assert glom.loc[name, HISTOGRAMS, log(k)].coverage < 0.15


def test_glom_without_noise_meets_what_it_is_made_of():
    """Second path: at a large ε MODIPS is plain synthesis and the histograms are exact."""
    found = run(location.DESIGN, 200, [250.0]).droplevel("epsilon")  # 50 for a data set
    for name in location.DESIGN.truths:
        if name.startswith("Pr"):
            same = found.loc[name, HISTOGRAMS].rmse, found.loc[name, "original"].rmse
            assert same[0] == pytest.approx(same[1], rel=1e-9)
        ratio = found.loc[name, "modips"].rmse / found.loc[name, "MS"].rmse
        assert ratio == pytest.approx(1, abs=0.35)
    # Squares of side h add h²/12 by rounding, and as much again by uniform draws inside them; draws
    # scatter about the 24 sample means, not the true ones.
    side = 2 * mixed.EDGE / mixed.scott(mixed.N * location.PI)
    added = float(location.PI @ side**2 / 12)
    lost = len(location.PI) / mixed.N
    variance = (1 + added) * (1 - lost) + added
    for j in (1, 2):
        assert found.loc[f"variance {j}", HISTOGRAMS].bias == pytest.approx(variance - 1, abs=0.02)
    correlation = mixed.RHO * (1 - lost) / variance
    assert found.loc["correlation", HISTOGRAMS].bias == pytest.approx(correlation - 0.5, abs=0.01)


def test_slomag_original_and_plain_synthesis_are_valid(sequence):
    """Firth's regression, its Wald intervals and the model without noise."""
    ratios = []
    for name in slomag.DESIGN.truths:
        original, plain = (sequence.loc[name, m, log(0)] for m in ("original", "MS"))
        assert min(original.coverage, plain.coverage) > 0.8
        assert abs(original.bias) < 0.6 * original.rmse
        assert original.missing == plain.missing == 0
        ratios.append(plain.rmse / original.rmse)
    # W + B/m with a posterior draw and n new records: 1 + 2/m times W.
    assert np.mean(ratios) == pytest.approx(np.sqrt(1 + 2 / comparison.M), abs=0.15)


def test_slomag_means(sequence):
    """Section 4.3.2, result 5."""
    for name in ("mean 1", "mean 2"):
        ours, model = (sequence.loc[name, m, log(-1)] for m in (HISTOGRAMS, "modips"))
        assert ours.rmse < 0.7 * model.rmse
        assert ours.width < 0.7 * model.width
        ours, model = (sequence.loc[name, m, log(4)] for m in (HISTOGRAMS, "modips"))
        assert 0.6 < ours.rmse / model.rmse < 1.5
        for k in (-1, 0, 1, 4):
            # Not so for the misspecified model: its means are right.
            for method in (HISTOGRAMS, "modips", "modips-glom"):
                assert sequence.loc[name, method, log(k)].coverage > 0.82


def test_slomag_variances(sequence):
    """Section 4.3.2, result 6."""
    for name in ("variance 1", "variance 2"):
        for k in (0, 1, 4):
            model, ours = (sequence.loc[name, m, log(k)] for m in ("modips", HISTOGRAMS))
            assert model.rmse < 0.7 * ours.rmse
            assert model.coverage > 0.65
        assert sequence.loc[name, "modips-glom", log(0)].coverage < 0.4
        # Not so with much ε: the misspecified model covers again.
        assert sequence.loc[name, "modips-glom", log(4)].coverage > 0.75
    for name in ("variance 1", "variance 2", "correlation"):
        for k in (-1, 0, 1, 4):
            assert sequence.loc[name, HISTOGRAMS, log(k)].coverage < 0.55
    # Finer squares, as of the table of all columns, cure it: it is the discretisation.
    coverage = [sequence.loc["variance 1", m, log(4)].coverage for m in ("laplace", HISTOGRAMS)]
    assert coverage[0] > coverage[1] + 0.3


def test_slomag_coefficients(sequence):
    """Section 4.3.2, results 1 to 4, for slopes."""
    methods = sequence.index.get_level_values("method").unique()
    for name in ("beta2 z1", "beta2 z2", "beta3 z1"):
        truth = abs(slomag.DESIGN.truths[name])
        at = {k: {m: sequence.loc[name, m, log(k)] for m in methods} for k in (0, 1, 4)}
        # 2 and 3: histograms are biased at any ε, and every method far off the original at small.
        assert abs(at[4][HISTOGRAMS].bias) > 1.5 * at[4]["original"].rmse
        for method in (HISTOGRAMS, "modips", "modips-glom", "laplace", NOT_PRIVATE):
            assert at[0][method].rmse > 2.5 * at[0]["original"].rmse
        # 4: nominal coverage by wide intervals, with the paper's noise but not with enough of it.
        for k in (0, 1):
            assert at[k][NOT_PRIVATE].coverage > 0.85
            assert at[k][NOT_PRIVATE].width > 3 * at[k]["original"].width
        # Not so: the bias does not vanish, as the prior shrinks slopes, so that coverage is lost.
        for k in (0, 1, 4):
            assert 0.15 * truth < abs(at[k][NOT_PRIVATE].bias) < 0.8 * truth
            assert abs(at[k]["modips"].bias) > 0.7 * truth
        assert at[4][NOT_PRIVATE].coverage < 0.3
        assert at[4]["modips"].coverage < 0.15
        # Not so with much ε: the misspecified model is nearly right.
        assert at[4]["modips-glom"].coverage > 0.8
        assert abs(at[4]["modips-glom"].bias) < 0.1 * truth
    for name in ("beta2 z1", "beta2 z2"):  # 1: with little ε it fails
        assert sequence.loc[name, "modips-glom", log(0)].coverage < 0.75
    assert sequence["missing"].max() < 0.3
