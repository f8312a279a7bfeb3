"""The application study: its data, its rows, its layout."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.demo.earnings import earnings
from studies.hu_williams_savitsky import sdr

# One worker, which makes the fixture once.
pytestmark = pytest.mark.xdist_group("sdr")
SEED = np.random.SeedSequence(1)


def test_all_records_hold_the_sample():
    whole, schema = earnings(whole=True)
    sample, same = earnings()
    assert (len(whole), len(sample)) == (61_395, 1_601)
    assert schema == same
    assert len(schema.validate(whole)) == len(whole)
    numeric = sample.astype({"earnings": float, "age": int, "education": int})
    held = numeric.merge(whole.drop_duplicates(), how="left", indicator=True)
    assert (held["_merge"] == "both").all()


@pytest.fixture(scope="module")
def rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sdr.SAMPLES, "sample", (200, 100))
        return pd.concat(
            sdr.run(SEED, "sample", name, datasets=2).assign(piece=k)
            for k, name in enumerate(("data", "censored", "perturbed-histogram"))
        )


def test_rows(rows):
    found = rows.set_index(["synthesizer", "quantity", "set"])["value"].sort_index()
    original = earnings()[0]["earnings"].astype(float)
    assert found["data", "mean", 0] == pytest.approx(original.mean())
    assert found["data", "q15", 0] == pytest.approx(original.quantile(0.15))
    assert found["censored", "epsilon", 0] == 2 * found["censored", "lipschitz", 0] <= 5.0
    assert len(found["censored", "avg_ecdf"]) == 2
    for name in ("data", "censored", "perturbed-histogram"):
        curve = rows[(rows["synthesizer"] == name) & (rows["quantity"] == "density")]
        assert np.trapezoid(curve["value"], curve["at"]) == pytest.approx(1, abs=0.02)


def test_the_histogram_has_the_papers_noise():
    """Scale 2/ε: ε is for a changed record, as in supplement 1 and in the study `censoring`."""
    records, schema = earnings()
    fit, known = sdr._fit(sdr.PerturbedHistogram.name, records, schema, dpb.SamplerSettings())
    assert fit.guarantee.epsilon_substitution == pytest.approx(sdr.EPSILON)
    assert fit.guarantee.epsilon == pytest.approx(sdr.EPSILON / 2)
    assert known["epsilon"] == sdr.EPSILON


def test_report(rows):
    report = sdr.report(rows)
    table = report.tables["table-2"].set_index(["synthesizer", "quantity"])
    assert table.loc[("censored", "mean"), "paper"] == 88840
    sets = rows.query("synthesizer == 'censored' and quantity == 'mean'")["value"]
    assert table.loc[("censored", "mean"), "ours"] == pytest.approx(sets.mean())
    assert "Earnings, sample, n = 1,601: means over 2 synthetic sets" in report.text
    assert "all records" not in report.text.split("The paper's")[0]
    assert "163,872.00" in report.text
    chart = report.figures["density-sample"]
    assert [line.get_label() for line in chart.figure.axes[0].lines] == [
        "data", "censored", "perturbed-histogram"
    ]  # fmt: skip
    assert set(chart.data.columns) == {"synthesizer", "at", "density"}


def test_pieces_are_a_fit_each():
    pieces = sdr.STUDY.pieces(3)
    assert len(pieces) == 2 * 7
    assert {"data": "all records", "synthesizer": "anchored", "datasets": 3} in pieces
