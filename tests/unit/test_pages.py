"""Pages of a release: whole, safe, and nothing confidential on the public one."""

import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dpbayes as dpb
from dpbayes.cli.app import app
from dpbayes.core.errors import DataError, DpbayesError, InferenceError
from dpbayes.pages import figures
from dpbayes.pages.build import confidential_page, public_page
from dpbayes.pages.comparison import PageTopic
from dpbayes.pages.page import Page, PageTable, Section, marked, shown

EVIL = "<script>alert('x')</script>"
COLUMNS = {
    "age": {"type": "count", "upper": 99},
    "sex & more": {"type": "categorical", "levels": [EVIL, "m"]},
    "wage": {"type": "continuous", "lower": 0, "upper": 100, "missing": True, "atoms": [0]},
    "start": {"type": "date", "lower": "2020-01-01", "upper": "2021-12-31"},
}
RULE = {"columns": COLUMNS}


def people(n=300, seed=1):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, n)
    wage = np.where(rng.random(n) < 0.3, np.nan, (0.5 * age + 50 * rng.random(n)).clip(0, 100))
    return pd.DataFrame(
        {
            "age": age,
            "sex & more": rng.choice([EVIL, "m"], n),
            "wage": np.where(rng.random(n) < 0.2, 0, wage),
            "start": (18262 + rng.integers(0, 700, n)).astype("datetime64[D]"),
        }
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A release of a whole table, with what its report leaves behind."""
    folder = tmp_path_factory.mktemp("pages") / "out"
    schema = dpb.Schema.from_dict(RULE)
    synthesizer = dpb.Synthesizer(schema, dpb.Marginals(2.0))
    dpb.Job((synthesizer,), folder).run(people())
    return folder


class Read(HTMLParser):
    """What stands in a page: open tags in order, texts, addresses."""

    VOID = ("meta", "img", "br")

    def __init__(self, content):
        super().__init__()
        self.open, self.text, self.addresses, self.tags, self.alts = [], [], [], [], []
        self.feed(content.decode())
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        self.addresses += [given[key] for key in ("src", "href") if key in given]
        if tag == "img":
            self.alts.append(given["alt"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def question(**more):
    return PageTopic(dpb.Schema.from_dict(RULE), people(), **more)


def test_both_pages_are_whole_and_load_nothing(out):
    """Tags are closed, no script, no address but anchors and figures; figures are told in words."""
    asked = question(
        holdout=people(seed=2), keys=["age", "sex & more"], sensitive="wage",
        formulas=["wage ~ age + `sex & more`", "age ~ 1"],
    )  # fmt: skip
    for content in (confidential_page(out), confidential_page(out, asked), public_page(out)):
        page = Read(content)
        assert "script" not in page.tags
        assert all(a.startswith(("#", "data:image/png;base64,")) for a in page.addresses)
        assert all(len(alt) > 20 for alt in page.alts)
        anchors = {a for a in page.addresses if a.startswith("#")}
        assert all(f'id="{a[1:]}"' in content.decode() for a in anchors)
    # Four columns, pairs, two formulas, risks.
    assert len(Read(confidential_page(out, asked)).alts) == 8


def test_the_public_page_says_what_the_statement_says(out):
    """It is made of guarantee.json alone: without confidential/ it is the same to the byte."""
    before = public_page(out)
    hidden = out / "confidential"
    hidden.rename(out / "elsewhere")
    try:
        assert public_page(out) == before
    finally:
        (out / "elsewhere").rename(hidden)
    text = " ".join(Read(before).text)
    assert "CONFIDENTIAL" not in text
    assert "ε, one record added or removed" in text
    assert "7.39" in text  # e^2


def test_what_the_confidential_page_shows(out):
    page = Read(confidential_page(out, question(formulas=["wage ~ age"], keys=["age"])))
    text = " ".join(page.text)
    assert "CONFIDENTIAL: computed from the records" in text
    for title in ("Guarantee", "Columns one by one", "Columns together", "Regressions",
                  "Disclosure risk", "How it was made"):  # fmt: skip
        assert title in text
    assert "No ledger accounts for this release" in text
    assert "Draw = mode" in text


def test_a_posterior_has_bounds_weights_and_diagnostics(tmp_path):
    """From the files that a weighted release leaves."""
    folder = tmp_path / "out"
    (folder / "release").mkdir(parents=True)
    (folder / "confidential").mkdir()
    claim = dpb.Synthesizer(
        dpb.Schema.from_dict({"columns": {"y": {"type": "binary"}}}),
        dpb.Weighted(),
        dpb.Regression("y ~ 1", "bernoulli"),
    ).guarantee()
    (folder / "release/guarantee.json").write_text(claim.to_json())
    table = pd.DataFrame(
        {
            "weight": [0.1, 0.5, 1.0], "lipschitz_unweighted": [30.0, 1.0, 0.5],
            "lipschitz": [3.0, 0.5, 0.5], "truncated": [False] * 3,
            "censored": [True, False, False],
        }
    )  # fmt: skip
    table.to_csv(folder / "confidential/weights.csv", index_label="record")
    summary = {"guarantee": claim.to_dict(), "diagnostics": {"rhat": 1.01, "ess": float("nan")}}
    (folder / "confidential/fit.json").write_text(json.dumps(summary))
    text = " ".join(Read(confidential_page(folder)).text)
    assert "Risk of each record in the model" in text
    assert re.search(r"released\s+rhat\s+1\.01\s", text)
    assert not re.search(r"\sess\s", text)  # not a number
    assert "no strict guarantee" in text


def test_bad_folders_and_questions(out, tmp_path):
    with pytest.raises(DataError, match="Name the folder that holds release"):
        public_page(tmp_path)
    (tmp_path / "release").mkdir()
    (tmp_path / "release/guarantee.json").write_text("[]")
    with pytest.raises(DataError, match="is no statement"):
        public_page(tmp_path)
    with pytest.raises(InferenceError, match="there is no column 'x'"):
        confidential_page(out, question(formulas=["x ~ 1"]))
    with pytest.raises(DpbayesError, match="not declared"):
        confidential_page(out, question(keys=["nobody"]))
    with pytest.raises(DpbayesError, match="other than the sensitive one"):
        confidential_page(out, question(keys=["age"], sensitive="age"))


def test_the_command(out, tmp_path):
    runner, schema = CliRunner(), dpb.Schema.from_dict(RULE)
    schema.to_toml(tmp_path / "s.toml")
    people().to_csv(tmp_path / "r.csv", index=False)
    args = ["report", str(out), "--records", str(tmp_path / "r.csv"), "--formula", "wage ~ age"]
    assert runner.invoke(app, [*args, "--schema", str(tmp_path / "s.toml")]).exit_code == 0
    assert (out / "confidential/report.html").stat().st_mode & 0o777 == 0o600
    assert (out / "release/report.html").read_bytes() == public_page(out)
    for wrong in (args, ["report", str(out), "--keys", "age"], ["report", str(tmp_path / "no")]):
        assert isinstance(runner.invoke(app, wrong).exception, DpbayesError)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (float("nan"), ""), (0.123456, "0.1235"), (61395.0, "61,395"), (3, "3"),
     (float("inf"), "infinite"), (1e30, "1e+30"), ("a", "a")],
)  # fmt: skip
def test_cells(value, text):
    assert shown(value) == text


def test_whatever_is_in_it_is_text():
    page = Page(EVIL, [(EVIL, EVIL)], [Section(EVIL, [EVIL], [EVIL],
                tables=[PageTable(EVIL, [EVIL], [[EVIL, EVIL]])])], warnings=[EVIL])  # fmt: skip
    assert "script" not in Read(page.html()).tags


def test_many_levels_have_a_bar_each_and_the_rare_ones_one_together():
    """No label is on another, and no share is left out."""
    names = [f"a level whose name differs at its end {i:03d}" for i in range(60)]
    column = dpb.Schema.from_dict({"columns": {"x": {"type": "categorical", "levels": names}}})["x"]
    values = pd.Series(pd.Categorical([n for i, n in enumerate(names) for _ in range(i + 1)]))
    (ax,) = figures.distribution(column, values, values).axes
    labels = [tick.get_text() for tick in ax.get_yticklabels()]
    assert len(labels) == len(set(labels)) == figures.MOST
    assert labels[-1] == "21 others"
    shares = [bar.get_width() for bar in ax.patches[: figures.MOST]]
    assert np.isclose(sum(shares), 1)
    assert labels[-2].endswith("059")  # in the schema's order
    assert ax.figure.get_figheight() > 0.19 * figures.MOST


def test_texts_are_escaped_and_code_is_marked():
    assert marked("run `a <b>` & go") == "run <code>a &lt;b&gt;</code> &amp; go"
    table = PageTable("t", ["a", "b", "c"], [["x", None, 1], ["y", float("nan"), 2]]).filled()
    assert list(table.head) == ["a", "c"]
    assert table.rows == [["x", 1], ["y", 2]]


def test_no_label_of_a_grid_is_cut():
    names = ["sex", "region", "income"]
    figure = figures.pairs(names, np.full((3, 3), 0.1))
    figure.savefig(io.BytesIO(), dpi=110)
    labels = [*figure.axes[0].get_yticklabels(), *figure.axes[0].get_xticklabels()]
    boxes = [label.get_window_extent() for label in labels]
    assert min(min(box.x0, box.y0) for box in boxes) >= 0
