"""The demo: a table with a public seed, and beside it a release that has none."""

import json
import stat

import pandas as pd
import pytest

from dpbayes.demo import run as demo
from dpbayes.publication.output import CONFIDENTIAL, RELEASE

# One worker, which makes the fixture once.
pytestmark = pytest.mark.xdist_group("demo")

POSTERIORS = [
    "unweighted", "weighted", "weighted-e", "censored-weighted", "censored", "anchored",
]  # fmt: skip
NAMES = [*POSTERIORS, "score", "perturbed-histogram"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A demo on some of the records, its folder, and its figures with their marks."""
    out = tmp_path_factory.mktemp("demo") / "out"
    records, schema = demo.earnings()
    figures, png = [], demo.charts.png

    def kept(figure, mark):
        figures.append((figure, mark))
        return png(figure, mark)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "earnings", lambda: (records.iloc[::2], schema))  # of which quick: 1/4
        patch.setattr(demo.charts, "png", kept)
        return demo.run_demo(quick=True, out=out), out, figures


def test_anchored_stands_beside_the_others_at_the_same_epsilon(ran):
    found, _, _ = ran
    assert list(found.table.columns) == ["Data", *NAMES]
    assert found.table.loc["ε = 2Δ", "anchored"] <= 5
    assert found.n == 201
    assert found.title.endswith("gamma regression, n = 201, ε = 5 of each data set")
    assert [line.split(":")[0] for line in found.lines] == NAMES
    assert list(found.diagnostics) == POSTERIORS
    assert found.lines[5].startswith("anchored: ε = 10 (substitution), 5 (add/remove, a bound")


def test_the_release_is_of_the_whole_table_strict_and_of_no_public_seed(ran):
    found, out, _ = ran
    statement = json.loads((out / RELEASE / "guarantee.json").read_text())
    assert (statement["mechanism"], statement["basis"]) == ("marginals", "strict")
    assert (statement["asked"], statement["rows"], statement["datasets"]) == (1.0, "noisy", 20)
    assert found.released.guarantee.asked == 1.0
    tables = [pd.read_csv(out / RELEASE / f"synthetic_{k}.csv") for k in range(1, 6)]
    assert all(list(t) == list(tables[0]) for t in tables)
    assert len(tables[0].columns) == 5
    assert not tables[0].equals(tables[1])
    assert not (out / CONFIDENTIAL / "release_seed.json").exists()
    for folder, text in ((RELEASE, "ε"), (CONFIDENTIAL, "confidential")):
        assert text in (out / folder / "report.html").read_text()


def test_table_and_figures_are_on_the_confidential_side(ran):
    found, out, figures = ran
    assert {path.name for path in out.iterdir()} == {RELEASE, CONFIDENTIAL}
    assert stat.S_IMODE((out / CONFIDENTIAL).stat().st_mode) == 0o700
    for name in ("comparison.csv", "comparison-lipschitz.png", "comparison-density.png"):
        assert stat.S_IMODE((out / CONFIDENTIAL / name).stat().st_mode) == 0o600
    written = pd.read_csv(out / CONFIDENTIAL / "comparison.csv", index_col=0)
    pd.testing.assert_frame_equal(written, found.table)
    (bounds, mark), (densities, same) = figures[-2:]  # after those of the release
    assert mark == same == "CONFIDENTIAL · n = 201 · ε = 10 (substitution)"  # as in the statement
    labels = [label.get_text().split("\n") for label in bounds.axes[0].get_xticklabels()]
    assert [name for name, _ in labels] == POSTERIORS
    assert labels[0][1] == "no privacy"
    assert labels[5][1] == "strict ε-DP"
    panels = [ax.get_title().split("\n")[0] for ax in densities.axes if ax.axison]
    assert panels == NAMES
