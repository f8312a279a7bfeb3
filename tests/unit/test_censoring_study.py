"""The report of the censoring study, from made-up rows; its fits are tested elsewhere."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpbayes.mechanisms.posterior.risk import linear_weights
from studies.datasets import SKEWED_SHAPE
from studies.hu_williams_savitsky import censoring


@pytest.fixture(scope="module")
def rows():
    """Five replicates of every case, a different number in each field."""
    rng = np.random.default_rng(1)
    cases = [("data", np.nan, 1.0)]
    cases += [(m.name, epsilon, c1) for epsilon, c1, m in censoring.cases()]
    cases += [("perturbed-histogram", epsilon, 1.0) for epsilon in censoring.EPSILONS]
    found = []
    for piece in range(5):
        for name, epsilon, c1 in cases:
            row = {"piece": piece, "synthesizer": name, "epsilon": epsilon, "c1": c1}
            row |= {measure: rng.uniform(0, 5) for measure in censoring.MEASURES}
            if name in ("data", "perturbed-histogram"):
                row["lipschitz"] = np.nan
            else:
                row |= {"count": float(rng.integers(0, 900)), "converged": piece > 0}
                if name == "censored-weighted" or (name == "weighted-e" and c1 != 1.0):
                    row["count_other"] = float(rng.integers(0, 900))
            found.append(row)
    curves = [
        {"piece": 5, "distribution": name, "at": x, "density": 1.0, "centre": 0.5}
        for name in ("prior", "posterior", "censored")
        for x in (0.2, 0.8)
    ]
    return pd.DataFrame(found + curves)


def test_cases_are_those_of_the_paper_and_ours():
    cases = [(m.name, epsilon, c1) for epsilon, c1, m in censoring.cases()]
    assert len(cases) == len(set(map(str, cases))) == 17
    for _, epsilon, c1, name in censoring.PRINTED:
        assert (name, epsilon, c1) in cases


def test_counts_stand_beside_the_printed_ones(rows):
    index = ["table", "epsilon", "c1", "synthesizer", "quantity"]
    found = censoring.counts(rows).set_index(index).sort_index()
    seconds = 4 + 1  # readings of censored-weighted, and of Table 3's weighted-e
    assert len(found) == (len(censoring.PRINTED) + seconds) * len(censoring.QUANTITIES)
    other = rows[(rows.synthesizer == "censored-weighted") & (rows.epsilon == 3)]["count_other"]
    mean = found.loc[(1, 3.0, 1.0, "censored-weighted, |f|", "mean")]
    assert list(mean) == [pytest.approx(other.mean()), 741]
    assert found.loc[(1, 5.0, 1.0, "censored", "mean"), "paper"] == 247
    for (table, epsilon, c1, name), _ in censoring.PRINTED.items():
        same = rows[(rows.synthesizer == name) & (rows.epsilon == epsilon) & (rows.c1 == c1)][
            "count"
        ]
        assert len(same) == 5
        ours = found.xs((table, epsilon, c1, name))["ours"]
        assert ours["mean"] == pytest.approx(same.mean())
        assert ours["q3"] == pytest.approx(same.quantile(0.75))
        assert ours["sd"] == pytest.approx(same.std())


def test_report(rows):
    report = censoring.report(rows)
    assert "(247)" in report.text
    assert "Not converged: 17 of 85 fits" in report.text
    assert "5 data sets" in report.text
    assert "weighted-e, c1 = 0.9" in report.text
    assert set(report.figures) == {*censoring.MEASURES, "lipschitz-targeted", "figure-1"}
    assert len(report.figures["figure-1"].data) == 6
    chart = report.figures["lipschitz"]
    bound = chart.figure
    titles = [ax.get_title() for ax in bound.axes]
    assert titles == ["ε = 5", "ε = 4", "ε = 3", "ε = 4, c1 = 0.8"]
    for ax, height in zip(bound.axes, (2.5, 2.0, 1.5, 2.0), strict=True):
        assert any(list(line.get_ydata()) == [height, height] for line in ax.lines)
    shown = [label.get_text() for label in bound.axes[0].get_xticklabels()]
    assert shown == [
        "unweighted", "weighted", "weighted-e", "censored-weighted", "censored", "anchored"
    ]  # fmt: skip
    sizes = chart.data.groupby(["panel", "synthesizer"]).size()
    assert (sizes == 5).all()  # a value per data set
    assert len(sizes) == 3 * 6 + 3
    assert chart.data["value"].max() == rows["lipschitz"].max()
    targeted = report.figures["lipschitz-targeted"].figure
    assert "unweighted" not in [label.get_text() for label in targeted.axes[0].get_xticklabels()]


def test_a_weighted_log_likelihood_is_a_hump():
    """|α f| = |f| (1 - |f|/L) is at most L/4; at L = 15 it is above 2.5 for fewer records than the
    printed third quartile of 260: 153 of 2,000 (sd 12) are expected, and 260 are 9 sd away."""
    f = np.append(np.linspace(0, 15, 1501), 15.0)
    bound = f * linear_weights(f)
    assert bound.max() == pytest.approx(15 / 4, abs=0.01)
    assert set(np.round(f[bound > 2.5][[0, -1]], 2)) == {3.17, 11.83}
    density = stats.beta(*SKEWED_SHAPE)
    y = density.ppf((np.arange(100_000) + 0.5) / 100_000)
    shown = np.abs(density.logpdf(y))
    share = np.mean((shown > 3.17) & (shown < 11.83))
    assert 2000 * share == pytest.approx(153, abs=2)
