"""Reports of studies from made-up or few rows; the studies' numbers are tested elsewhere."""

import numpy as np
import pandas as pd
import pytest

from studies import catalogue
from studies.bowen_liu import comparison, comparison_1, comparison_2, fertility
from studies.coverage import MEASURES
from studies.liu import allocation, number_of_sets
from studies.ours import anchored, earnings


def test_every_study_is_listed_under_its_name_and_its_pieces_are_json():
    import json

    assert set(catalogue.STUDIES) >= {
        "allocation", "anchored", "censoring", "charest", "comparison-1", "comparison-2",
        "comparison-3", "comparison-4", "earnings", "fertility", "known-draws", "modips-rules",
        "pegs", "sdr", "tables", "tables-coverage",
    }  # fmt: skip
    for name, study in catalogue.STUDIES.items():
        assert study.name == name
        pieces = study.pieces(3)
        assert pieces
        assert json.loads(json.dumps(pieces)) == pieces


def test_anchored():
    rng = np.random.default_rng(1)
    rows = [
        (epsilon, name, rng.uniform(1e-4, 2e-4), True, piece)
        for piece in range(3)
        for epsilon in anchored.EPSILONS
        for name in anchored.SPIKE
    ]
    columns = ["epsilon", "synthesizer", "avg_ecdf", "converged", "piece"]
    simulated = pd.DataFrame(rows, columns=columns)
    real = pd.DataFrame(
        {
            "epsilon": [np.inf, 1.0, np.inf, 0.5], "piece": [3, 3, 4, 4],
            "synthesizer": ["unweighted", "censored"] * 2, "avg-ECDF": [0.001, 0.002, 0.001, 0.003],
            "shift": 0.5, "converged": True,
        }
    )  # fmt: skip
    report = anchored.report(pd.concat([simulated, real], ignore_index=True))
    assert "3 replicates" in report.text
    table = report.tables["simulated"].set_index(["synthesizer", "epsilon"])
    same = simulated.query("synthesizer == 'unweighted' and epsilon == 1")["avg_ecdf"]
    assert table.loc[("unweighted", 1.0), "mean"] == pytest.approx(same.mean())
    assert list(report.tables["earnings"]["epsilon"]) == [np.inf, 1.0, 0.5]  # each fit once


@pytest.mark.parametrize(
    ("study", "parameters"),
    [
        (comparison_1, ["share"]),
        (comparison_2, ["mean", "variance", "mean-symmetric", "variance-symmetric"]),
    ],
)
def test_curves(study, parameters):
    epsilons = [comparison.EPSILONS[k] for k in (8, 0)]  # pieces may come in any order
    found = study.report(study.run(20, 1, epsilons).assign(piece=0))
    assert set(found.figures) == set(found.tables) - {"findings"} == set(parameters)
    assert "open " in found.text  # most cases were not run
    for name, chart in found.figures.items():
        figure, table = chart.figure, chart.data
        scenarios = 9 if name == "share" else 3
        assert len(figure.axes) == scenarios * len(MEASURES)
        assert found.tables[name]["epsilon"].is_monotonic_increasing
        line = figure.axes[0].lines[0]
        assert list(np.round(line.get_xdata())) == [-4, 4]
        first = table[(table.panel == table.panel[0]) & (table.method == table.method[0])]
        assert list(line.get_ydata()) == list(first["bias"])
        assert "-" in name or f"{name}, n = 100: coverage by log ε" in found.text


def test_fertility():
    rows = pd.DataFrame(
        [
            {"quantity": q, "method": m, "value": float(k), "piece": k}
            for q in fertility.PRINTED
            for m in fertility.METHODS
            for k in (1, 2)
        ]
    )
    report = fertility.report(rows)
    table = report.tables["fertility"].set_index(["quantity", "method"])
    assert (table["ours"] == 1.5).all()
    assert table.loc[("SVM consistency, %", "private SVM"), "paper"] == 64.9
    assert "1.5 (64.7)" in report.text


@pytest.mark.parametrize("study", [allocation, number_of_sets])
def test_liu(study, monkeypatch):
    monkeypatch.setattr(number_of_sets, "SETS", (2, 5))
    pieces = study.pieces(8)
    found = [study.run(np.random.SeedSequence(k), **piece) for k, piece in enumerate(pieces)]
    report = study.report(pd.concat(found).assign(piece=0))
    assert "not kept by" in report.text
    ((name, chart),) = report.figures.items()
    assert name in ("figure-6", "figure-8")
    rows = 66 if study is allocation else 2 * len(pieces)  # w = 1/10 is the communal one, too
    assert len(chart.data) == rows
    assert len(chart.figure.axes) == len(pieces)
    assert {len(ax.lines) for ax in chart.figure.axes} <= {3, 4}


def test_moments_of_bounded_normal_records():
    """Against 200,000 draws each: errors of a tenth of the tolerances."""
    mu = np.array([-4.5, 0.0, 3.8])
    z = np.random.default_rng(1).normal(mu, 1, (200_000, 3))
    inside = np.abs(z) <= 4
    moved = number_of_sets.bounded_moments(mu, (-4, 4), moved=True)
    again = number_of_sets.bounded_moments(mu, (-4, 4), moved=False)
    assert np.clip(z, -4, 4).mean(axis=0) == pytest.approx(moved[0], abs=0.02)
    assert np.clip(z, -4, 4).var(axis=0) == pytest.approx(moved[1], abs=0.03)
    for j in range(3):
        assert z[inside[:, j], j].mean() == pytest.approx(again[0][j], abs=0.02)
        assert z[inside[:, j], j].var() == pytest.approx(again[1][j], abs=0.03)


def test_earnings():
    table = earnings.run(np.random.SeedSequence(1), 6, datasets=2).assign(piece=0)
    assert list(table["mechanism"]) == ["perturbed-histogram"]
    assert "perturbed-histogram" in earnings.report(table).text
    assert earnings.STUDY.pieces(5)[-1] == {"number": 12, "datasets": 5}
