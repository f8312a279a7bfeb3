"""The report of the censoring study, from made-up rows; its fits are tested elsewhere."""

import numpy as np
import pandas as pd
import pytest

from dpbayes.studies.hu_williams_savitsky import censoring


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
            found.append(row)
    return pd.DataFrame(found)


def test_cases_are_those_of_the_paper_and_ours():
    cases = [(m.name, epsilon, c1) for epsilon, c1, m in censoring.cases()]
    assert len(cases) == len(set(map(str, cases))) == 17
    for _, epsilon, c1, name in censoring.PRINTED:
        assert (name, epsilon, c1) in cases


def test_counts_stand_beside_the_printed_ones(rows):
    index = ["table", "epsilon", "c1", "synthesizer", "quantity"]
    found = censoring.counts(rows).set_index(index).sort_index()
    assert len(found) == len(censoring.PRINTED) * len(censoring.QUANTITIES)
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
    assert set(report.figures) == {*censoring.MEASURES, "lipschitz-targeted"}
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
