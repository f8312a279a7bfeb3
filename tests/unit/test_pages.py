"""Pages of a release: whole, safe, and nothing confidential on the public one."""

import ast
import contextlib
import datetime
import html
import io
import json
import math
import re
import shutil
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dpbayes as dpb
from dpbayes.cli.app import app
from dpbayes.core.errors import DataError, DpbayesError, GuaranteeError, SchemaError
from dpbayes.evaluate.utility import max_ecdf
from dpbayes.inference import analyse, combine, read_release
from dpbayes.inference.regressions import formula_fit
from dpbayes.pages import analysis, codebook, figures
from dpbayes.pages.comparison import PageTopic
from dpbayes.pages.confidential import confidential_page
from dpbayes.pages.page import Link, Page, PageTable, Section, marked, shown, to_spread
from dpbayes.pages.readers import public_page
from dpbayes.pages.verdict import (
    BY_CHANCE,
    Comparison,
    chance_of_ecdf,
    chance_of_shares,
    lost_distance,
    of_column,
    over_data_sets,
    verdict,
    worst_correlations,
    worst_pairs,
)
from dpbayes.report.whole import stated
from dpbayes.stan.families import FAMILIES

EVIL = "<script>alert('x')</script>"
COLUMNS = {
    "age": {"type": "count", "upper": 99},
    "sex & more": {"type": "categorical", "levels": [EVIL, "m"]},
    "wage": {"type": "continuous", "lower": 0, "upper": 100, "missing": True, "atoms": [0]},
    "start": {"type": "date", "lower": "2020-01-01", "upper": "2021-12-31"},
}
TITLES = {"title": f"Wages {EVIL}", "publisher": "Office & Co", "unit_of_record": "a person"}
RULE = {**TITLES, "columns": COLUMNS}
DAY = datetime.date(2026, 12, 1)


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
    dpb.Job((synthesizer,), folder, datasets=3).run(people())
    return folder


def test_readers_see_which_levels_are_told_apart(out, tmp_path):
    """They follow from noisy counts; the setting is named nowhere else on the page."""
    folder = tmp_path / "out"
    shutil.copytree(out, folder)
    path = folder / "release/guarantee.json"
    statement = json.loads(path.read_text())
    statement["settings"]["told_apart"] = {"site": ["Utrecht", "Delft"]}
    path.write_text(json.dumps(statement))
    text = " ".join(Read(public_page(folder)).text)
    assert "Levels of 'site' told apart in tables of two columns: Utrecht, Delft. How" in text
    assert text.count("Utrecht") == 1
    assert "told apart" not in " ".join(Read(public_page(out)).text)
    path.write_text(json.dumps(statement | {"settings": {"told_apart": {"site": 3}}}))
    with pytest.raises(DataError, match="was edited"):
        public_page(folder)


def test_readers_see_what_a_rule_computes(tmp_path):
    """The code book said that a sum was synthetic, and the tables left it out without a reason."""
    item = {"type": "count", "upper": 2}
    names = [f"item{k}" for k in range(8)]
    columns = {**dict.fromkeys(names, item), "total": {"type": "count", "upper": 16}}
    tree = {"rules": [f"total == {' + '.join(names)}"], "rows": "public", "columns": columns}
    schema = dpb.Schema.from_dict(tree)
    records = pd.DataFrame(np.random.default_rng(1).integers(0, 3, (300, 8)), columns=names)
    records["total"] = records.sum(axis=1)
    synthesizer = dpb.Synthesizer(schema, dpb.Marginals(1.0))
    dpb.Job((synthesizer,), tmp_path / "out", datasets=1).run(records, lambda _: None)
    text = " ".join(Read(public_page(tmp_path / "out", schema)).text)
    assert f"computed from {', '.join(names)}" in text
    assert f"Column 'total' has no table: a rule of the schema computes it from {names[0]}," in text
    assert "computes it" not in " ".join(Read(public_page(tmp_path / "out")).text)


class Read(HTMLParser):
    """What stands in a page: open tags in order, texts, addresses."""

    VOID = ("meta", "img", "br", "rect")

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
        if tag in ("img", "svg"):
            self.alts.append(given["alt"] if tag == "img" else given["aria-label"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def question(**more):
    return PageTopic(dpb.Schema.from_dict(RULE), people(), **more)


def test_both_pages_are_whole_and_load_nothing(out):
    """Tags are closed, no script, no address but anchors, figures and files of the release."""
    asked = question(
        holdout=people(seed=2), keys=["age", "sex & more"], sensitive="wage",
        formulas=["wage ~ age + `sex & more`", "age ~ 1"],
    )  # fmt: skip
    schema = dpb.Schema.from_dict(RULE)
    files = [path.name for path in (out / "release").iterdir()]
    for content in (
        confidential_page(out), confidential_page(out, asked), public_page(out),
        public_page(out, schema, DAY),
    ):  # fmt: skip
        page = Read(content)
        assert "script" not in page.tags
        assert all(
            a.startswith(("#", "data:image/png;base64,")) or a in files for a in page.addresses
        )
        assert all(len(alt) > 20 for alt in page.alts)
        anchors = {a for a in page.addresses if a.startswith("#")}
        assert all(f'id="{a[1:]}"' in content.decode() for a in anchors)
    # Four columns, pairs, two formulas, risks.
    assert len(Read(confidential_page(out, asked)).alts) == 8
    assert len(Read(public_page(out, schema)).alts) == len(COLUMNS)


def test_the_public_page_says_what_the_statement_says(out):
    """It is made of the release and the schema: without confidential/ it is the same."""
    schema = dpb.Schema.from_dict(RULE)
    before = public_page(out, schema)
    hidden = out / "confidential"
    hidden.rename(out / "elsewhere")
    try:
        assert public_page(out, schema) == before
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
    titles = ("Verdict", "Columns one by one", "Columns together", "Worst pairs of columns",
              "Worst correlations", "Regressions", "Disclosure risk", "What is protected",
              "How it was made")  # fmt: skip
    places = [text.rindex(title) for title in titles]
    assert places == sorted(places)
    assert re.search(
        r"Held: \d of 4 columns, \d of 1 shares of missing values, \d of 3 means, \d of 6 pairs of "
        r"columns, \d of 3 correlations, \d of 1 coefficients\.",
        text,
    )
    assert "All are means of the 3 data sets;" in text
    assert "No ledger accounts for this release" in text


def test_regressions_that_the_release_keeps_are_compared_unasked(out, tmp_path):
    """One that cannot be fitted is named in place; one of no column is refused if asked for."""
    folder = shutil.copytree(out, tmp_path / "out")
    file = folder / "release" / "guarantee.json"
    statement = json.loads(file.read_text())
    statement["settings"]["keep"] = ["wage ~ age", "wage ~ nobody"]
    file.write_text(json.dumps(statement))
    text = " ".join(Read(confidential_page(folder, question())).text)
    assert "wage ~ age (least squares, means of the 3 data sets)" in text
    assert "wage ~ nobody (" not in text
    with pytest.raises(dpb.SchemaError, match="nobody"):
        confidential_page(folder, question(formulas=["wage ~ nobody"]))
    impossible = "log(-1 - wage) ~ age"
    text = " ".join(Read(confidential_page(folder, question(formulas=[impossible]))).text)
    assert "wage ~ age (least squares, means of the 3 data sets)" in text
    assert f"Not compared: {impossible} . ols" in " ".join(text.split())


def test_files_that_the_release_left_have_a_verdict_on_columns(out):
    text = " ".join(Read(confidential_page(out)).text)
    assert re.search(r"Held: \d of 4 columns, \d of 1 shares of missing values\.", text)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("fit.json", "[1]"), ("fit.json", '"x"'), ("fit.json", "5"), ("fit.json", "{"),
        ("fit.json", '{"warnings": 5}'), ("utility.json", "[1]"), ("utility.json", '"x"'),
        ("utility.json", "5"), ("utility.json", "{"), ("utility.json", '{"a": 1}'),
    ],
)  # fmt: skip
def test_report_files_that_were_edited_are_refused(out, tmp_path, name, content):
    folder = shutil.copytree(out, tmp_path / "out")
    (folder / "confidential" / name).write_text(content)
    with pytest.raises(DataError, match=r"was edited or is damaged|belong together"):
        confidential_page(folder)


def test_an_infinite_epsilon_bounds_no_risk(tmp_path):
    with pytest.raises(GuaranteeError, match="not infinite"):
        stated(tmp_path / "synthetic_1.csv", math.inf, 1e-6)


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
    with pytest.raises(DataError, match="Name the folder that holds 'release'"):
        public_page(tmp_path)
    with pytest.raises(DataError, match=re.escape(f"such as {str(out)!r}")):
        public_page(out / "release")
    (tmp_path / "release").mkdir()
    (tmp_path / "release/guarantee.json").write_text("[]")
    with pytest.raises(DataError, match="is no statement"):
        public_page(tmp_path)
    with pytest.raises(dpb.SchemaError, match="column 'x' is not declared"):
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
    assert (out / "release/report.html").read_bytes() == public_page(
        out, dpb.Schema.from_toml(tmp_path / "s.toml")
    )
    # Whether the public page is written does not depend on the records.
    (out / "release/report.html").unlink()
    people().head(0).to_csv(tmp_path / "r.csv", index=False)
    failed = runner.invoke(app, [*args, "--schema", str(tmp_path / "s.toml")])
    assert str(failed.exception).startswith("Confidential: ")
    assert (out / "release/report.html").exists()
    people().assign(age=1000).to_csv(tmp_path / "r.csv", index=False)
    failed = runner.invoke(app, [*args, "--schema", str(tmp_path / "s.toml")])
    assert "Confidential: column 'age'" in str(failed.exception)
    assert isinstance(failed.exception, DpbayesError)
    for wrong in (args, ["report", str(out), "--keys", "age"], ["report", str(tmp_path / "no")]):
        assert isinstance(runner.invoke(app, wrong).exception, DpbayesError)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (float("nan"), ""), (0.123456, "0.123"), (61395.0, "61,400"), (3, "3"),
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


def test_readers_see_title_code_book_and_files(out):
    page = Read(public_page(out, dpb.Schema.from_dict(RULE), DAY))
    text = " ".join(page.text)
    for words in (TITLES["title"], "Office & Co · 2026-12-01", "One row is a person.",
                  "0 to 100", "2020-01-01 to 2021-12-31"):  # fmt: skip
        assert words in text, words
    assert {path.name for path in (out / "release").glob("*[!l]")} <= set(page.addresses)
    assert re.search(r"m \d\d\.\d%", text)
    assert any(re.match(r"Histogram of age from \d+ to \d+: median \d+;", a) for a in page.alts)


def test_what_is_guessed_is_not_published(out):
    """A bound that was read off the records stays out of the page."""
    columns = {**COLUMNS, "age": {**COLUMNS["age"], "guessed": ["upper"]}}
    schema = dpb.Schema.from_dict({**RULE, "columns": columns})
    text = " ".join(Read(public_page(out, schema)).text)
    assert "Code book" not in text
    assert TITLES["title"] in text


def test_a_schema_of_other_data_is_refused(out):
    columns = {key: COLUMNS[key] for key in ("age", "wage")}
    with pytest.raises(SchemaError, match="'sex & more' of the release is not in the schema"):
        public_page(out, dpb.Schema.from_dict({"columns": columns}))


def programs(out):
    """Programs on the page for readers, by caption."""
    found = re.findall(
        r"<h3>(.*?)</h3>\n<pre.*?><code>(.*?)</code>", public_page(out).decode(), re.DOTALL
    )
    return {caption: html.unescape(text) for caption, text in found}


def printed(program, folder, monkeypatch):
    """What a program prints when it runs in a folder."""
    monkeypatch.chdir(folder)
    stream = io.StringIO()
    # All digits: six decimals of a small slope are less than what is compared.
    with contextlib.redirect_stdout(stream), pd.option_context("display.precision", 12):
        exec(compile(program, "program", "exec"), {})
    return stream.getvalue()


def numbers_in(text):
    return [float(x) for x in re.findall(r"-?\d+\.\d+(?:e[-+]\d+)?", text)]


@pytest.mark.parametrize("formula", ["age ~ wage", "sex", "modips"])
def test_the_programs_run_and_combine_as_analyse_does(out, tmp_path, monkeypatch, formula):
    """Both in Python give the same estimates and intervals; R has the same formula and rule."""
    copy = tmp_path / "out"
    shutil.copytree(out / "release", copy / "release")
    statement = json.loads((copy / "release/guarantee.json").read_text())
    # Fixed rows: where the variance of a release is near 0, its last digits decide the interval.
    for seed, path in enumerate(sorted((copy / "release").glob("synthetic_*"))):
        rows = people().sample(150, random_state=seed)
        rows[pd.read_csv(path).columns].assign(age=rows["age"] + 2 * seed).to_csv(path, index=False)
    if formula == "sex":  # only levels are left
        for path in (copy / "release").glob("synthetic_*"):
            pd.read_csv(path)[["sex & more"]].to_csv(path, index=False)
        statement["levels"]["sex & more"] = ["m", EVIL]
    elif formula == "modips":
        statement["mechanism"] = "unweighted"
    (copy / "release/guarantee.json").write_text(json.dumps(statement))
    texts = programs(copy)
    ours, others = "Python, with dpbayes", ["Python, with pandas and statsmodels", "R"]
    assert list(texts) == [ours, *others]
    asked, model = ("I((`sex & more` == 'm') * 1) ~ 1", "logit"), ("age ~ wage", "ols")
    asked, model = asked if formula == "sex" else model
    assert f"lm({asked}, {'family = binomial, ' if model == 'logit' else ''}data" in texts["R"]
    assert texts["R"].count("(") == texts["R"].count(")")
    released = read_release(copy / "release")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        combined = analyse(released, formula_fit(asked, model))
        table = printed(texts[others[0]], copy / "release", monkeypatch)
        ours = printed(texts[ours], copy / "release", monkeypatch)
    low, high = combined.interval()
    expected = np.column_stack([combined.estimate, low, high]).ravel()
    assert numbers_in(table) == pytest.approx(expected, rel=1e-4)
    assert f"{combined.estimate.iloc[-1]:.4g}" in ours
    assert combined.rule == ("modips" if formula == "modips" else "reiter2002")
    assert f"# The rule {combined.rule}:" in texts["R"]


def test_programs_that_leave_groups_out_say_so(out, tmp_path):
    copy = shutil.copytree(out, tmp_path / "out")
    file = copy / "release/guarantee.json"
    statement = json.loads(file.read_text())
    said = "has effects by `sex & more`, which the programs leave out"
    for formula, told in (("wage ~ age", False), ("wage ~ age + (1 + age | `sex & more`)", True)):
        statement["settings"]["formula"] = formula
        file.write_text(json.dumps(statement))
        text = html.unescape(public_page(copy).decode())
        assert (said in re.sub("</?code>", "`", text)) == told
        assert "ols('wage ~ age'" in text


def test_a_posterior_has_programs_of_its_own(out, tmp_path, monkeypatch, capsys):
    copy = shutil.copytree(out, tmp_path / "out")
    release = copy / "release"
    draws = pd.DataFrame(
        {"chain": 0, "draw": range(1001), "group_sd[1 | a b]": np.linspace(0, 1, 1001)}
    )
    draws.to_csv(release / "posterior.csv", index=False)
    assert not [title for title in programs(copy) if "parameters of" in title]
    statement = json.loads((release / "guarantee.json").read_text())
    statement["files"]["posterior.csv"] = "0" * 64
    (release / "guarantee.json").write_text(json.dumps(statement))
    texts = programs(copy)
    monkeypatch.chdir(release)
    exec(texts["Python, for parameters of the model"])
    name, *ends = capsys.readouterr().out.splitlines()[1].rsplit(maxsplit=3)
    assert name == "group_sd[1 | a b]"
    assert [float(end) for end in ends] == [0.025, 0.5, 0.975]
    page = public_page(copy).decode()
    assert "95 % interval of 1,001 draws" in page
    row = page.partition("95 % interval of 1,001")[2].partition("sd[1 | a b]")[2].split("</tr>")[0]
    assert [float(x) for x in re.findall(r">(\d\.\d+)<", row)] == [0.5, 0.289, 0.025, 0.975]
    in_r = texts["R, for parameters of the model"]
    assert in_r.count("(") == in_r.count(")")


@pytest.mark.parametrize(
    ("mechanism", "family", "named"),
    [
        ("score", "neg_binomial", "`phi`"),
        ("score", "hurdle_neg_binomial", "`phi__count`"),
        ("score", "student_t", "`nu` and `sigma`"),
        ("score", "truncated_normal", "`sigma`"),
        ("score", "exponential", ""),
        ("score", "poisson", ""),
        ("anchored", "neg_binomial", ""),
    ],
)
def test_readers_are_warned_of_parameters_that_clipped_scores_move(mechanism, family, named):
    """By the family alone: how many scores were clipped is confidential."""
    kind = FAMILIES[family].column_type
    y = {"type": kind, "upper": 50, **({"lower": 0} if kind == "continuous" else {})}
    schema = dpb.Schema.from_dict({"rows": "public", "columns": {"y": y, "x": COLUMNS["age"]}})
    statement = {
        "mechanism": mechanism, "datasets": 1,
        "settings": dpb.Regression("y ~ 1", family).on(schema).public_settings(),
        "files": {"synthetic_1.csv": "", "posterior.csv": ""},
    }  # fmt: skip
    data = [pd.DataFrame({"y": [1, 2, 4], "x": [3, 4, 5]})]
    said = [text for text in analysis.analysis(statement, data).text if "clipped" in text]
    assert [text.partition(" for what")[0] for text in said] == [f"Do not take {named}"] * bool(
        named
    )


@pytest.mark.parametrize("file_format", ["parquet", "feather", "stata", "spss"])
def test_the_programs_read_every_format(tmp_path, monkeypatch, file_format):
    """Whole numbers beside missing ones too, which pandas reads as another type."""
    rng = np.random.default_rng(3)
    visits = np.where(rng.random(300) < 0.1, np.nan, rng.integers(0, 9, 300))
    records = pd.DataFrame({"visits": visits, "age": rng.integers(20, 60, 300)})
    columns = {"visits": {"type": "count", "upper": 9, "missing": True}, "age": COLUMNS["age"]}
    synthesizer = dpb.Synthesizer(dpb.Schema.from_dict({"columns": columns}), dpb.Marginals(2.0))
    dpb.Job((synthesizer,), tmp_path / "out", datasets=3, file_format=file_format).run(records)
    texts = programs(tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        combined = analyse(tmp_path / "out/release", formula_fit("visits ~ age"))
        printed(texts["Python, with dpbayes"], tmp_path / "out/release", monkeypatch)
    table = printed(
        texts["Python, with pandas and statsmodels"], tmp_path / "out/release", monkeypatch
    )
    assert numbers_in(table)[::3] == pytest.approx(list(combined.estimate), rel=1e-3)


def test_one_data_set_is_not_combined(out, tmp_path, monkeypatch):
    copy = tmp_path / "out"
    shutil.copytree(out / "release", copy / "release")
    statement = json.loads((copy / "release/guarantee.json").read_text())
    statement["datasets"] = 1
    (copy / "release/guarantee.json").write_text(json.dumps(statement))
    texts = programs(copy)
    assert list(texts) == ["Python, with pandas and statsmodels", "R"]
    table = printed(next(iter(texts.values())), copy / "release", monkeypatch)
    fit = formula_fit("age ~ wage")(pd.read_csv(copy / "release/synthetic_1.csv").dropna())
    assert numbers_in(table) == pytest.approx(fit.params.tolist(), rel=1e-4)


def test_the_programs_agree_on_logarithms_and_on_levels_that_are_numbers(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    grade = rng.integers(1, 4, 400)
    pay = np.exp(rng.normal(grade / 2, 0.5)).clip(0.5, 20)
    columns = {
        "pay": {"type": "continuous", "lower": 0.5, "upper": 20},
        "grade": {"type": "categorical", "levels": [1, 2, 3]},
    }
    mechanism = dpb.Marginals(3.0, keep=("log(pay) ~ grade",))
    synthesizer = dpb.Synthesizer(dpb.Schema.from_dict({"columns": columns}), mechanism)
    records = pd.DataFrame({"pay": pay, "grade": grade})
    dpb.Job((synthesizer,), tmp_path / "out", datasets=3).run(records)
    texts, release = programs(tmp_path / "out"), tmp_path / "out/release"
    assert "lm(log(pay) ~ factor(grade), data =" in texts["R"]
    levels = read_release(release).levels
    combined = analyse(release, formula_fit("log(pay) ~ grade", levels=levels))
    expected = np.column_stack([combined.estimate, *combined.interval()]).ravel()
    table = printed(texts["Python, with pandas and statsmodels"], release, monkeypatch)
    numbers = [line.split()[-3:] for line in table.splitlines()[1:]]
    assert np.array(numbers, float).ravel() == pytest.approx(expected, rel=1e-4)
    ours = printed(texts["Python, with dpbayes"], release, monkeypatch)
    assert f"{combined.estimate.iloc[-1]:.4g}" in ours


def test_an_outcome_of_0_and_1_has_a_logistic_regression(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    age = rng.integers(20, 60, 400)
    records = pd.DataFrame({"ill": (rng.random(400) < age / 80).astype(int), "age": age})
    schema = {"columns": {"ill": {"type": "count", "upper": 1}, "age": COLUMNS["age"]}}
    synthesizer = dpb.Synthesizer(
        dpb.Schema.from_dict(schema), dpb.Marginals(2.0, keep=("ill ~ age",))
    )
    dpb.Job((synthesizer,), tmp_path / "out", datasets=3).run(records)
    texts, release = programs(tmp_path / "out"), tmp_path / "out/release"
    assert "glm(ill ~ age, family = binomial, data =" in texts["R"]
    assert texts["R"].count("(") == texts["R"].count(")")
    combined = analyse(release, formula_fit("ill ~ age", "logit"))
    expected = np.column_stack([combined.estimate, *combined.interval()]).ravel()
    table = printed(texts["Python, with pandas and statsmodels"], release, monkeypatch)
    assert numbers_in(table) == pytest.approx(expected, rel=1e-3)
    ours = printed(texts["Python, with dpbayes"], release, monkeypatch)
    assert f"{combined.estimate.iloc[-1]:.4g}" in ours


@pytest.mark.parametrize(
    ("rows", "text"), [("class", "`class` ~ `a b`"), ("y", "`y` ~ `a b`"), ("y`", None)]
)
def test_names_are_quoted_where_they_must_be(rows, text):
    data = pd.DataFrame({rows: [1.5, 2, 3], "a b": ["4", "5", ""]})
    settings = {"settings": {"synthesised": [rows]}}
    found = analysis.example(settings, data, analysis.OURS)
    assert found == text


@pytest.mark.parametrize(
    ("kept", "text"),
    [
        (["pay ~ age * sex"], "pay ~ age + sex + age:sex"),
        (["pay ~ age - 1"], "pay ~ 0 + age"),
        (["log(pay) ~ sqrt(age)", "pay ~ sex"], "np.log(pay) ~ np.sqrt(age)"),
        (["pay ~ poly(age, 2) + sex"], "pay ~ sex"),  # other programs have another basis
        (["pay ~ sex + (1 | grade)"], "pay ~ sex"),
        (["pay ~ poly(age, 2)", "pay ~ nobody"], "pay ~ age"),
        (["sex ~ age"], "I((sex == 'm') * 1) ~ age"),
        (["pay ~ age + I(age**2)"], "pay ~ age + I(age ** 2)"),
        (["pay ~ sex:grade + sex"], "pay ~ sex:C(grade) + sex"),  # a number to the others
    ],
)
def test_the_example_is_a_regression_that_is_kept(kept, text):
    data = pd.DataFrame({"pay": [1.5, 2, 3], "age": [4, 5, 6], "sex": ["f", "m", "f"]})
    data["grade"] = ["1", "2", "3"]
    settings = {"settings": {"synthesised": ["pay"], "keep": kept}}
    settings["levels"] = {"sex": ["f", "m"], "grade": ["1", "2", "3"]}
    assert analysis.example(settings, data, analysis.PATSY) == text
    plain = re.sub(r"np\.|C\((\w+)\)", r"\1", text)
    assert analysis.example(settings, data, analysis.OURS) == plain
    in_r = text.replace("np.", "").replace("C(", "factor(").replace(" ** ", "^")
    assert analysis.example(settings, data, analysis.OF_R) == in_r


def test_the_example_is_of_what_is_synthetic():
    """Not of two public columns; levels that are numbers are an outcome by these."""
    data = pd.DataFrame({"age": [4, 5, 6], "gcse": [1.5, 2, 3], "score": [0, 4, 2]})
    statement = {
        "mechanism": "score",
        "datasets": 2,
        "settings": {"synthesised": ["score"], "formula": "score ~ age + poly(gcse, 2)"},
        "levels": {"score": [0, 2, 4]},
        "files": {"synthetic_1.csv": ""},
    }
    assert analysis.example(statement, data, analysis.OURS) == "I(score) ~ age"
    assert analysis.example(statement, data, analysis.PATSY) == "score ~ age"
    text = " ".join(analysis.analysis(statement, [data]).text)
    assert "The example leaves out `poly(gcse, 2)` of the release's own regression" in text
    bare = {**statement, "settings": {"synthesised": ["score"]}}
    assert analysis.example(bare, data, analysis.PATSY) == "I((score == 0) * 1) ~ 1"


def test_levels_that_hardly_occur_are_one_bar():
    """Of 50 levels four occur: a page of empty bars says nothing more. Few levels are all shown."""
    for count, bars in ((50, 5), (12, 12)):
        levels = [f"level {k}" for k in range(count)]
        column = dpb.Schema.from_dict({"columns": {"x": {"type": "ordinal", "levels": levels}}})[
            "x"
        ]
        values = pd.Series(levels[:4] * 500)
        (ax,) = figures.distribution(column, values, values).axes
        labels = [label.get_text() for label in ax.get_yticklabels()]
        assert len(labels) == bars
        assert labels[:4] == levels[:4]
        assert (labels[-1] == "46 others") == (count == 50)


def test_the_verdict_ranks_what_is_lost():
    comparisons = [
        Comparison("column", "a", (0.019,), 0.001, "column a".format),
        Comparison("column", "b", (0.3,), 0.1, "column b".format),
        *[
            Comparison("pair", f"p{k}", (0.1 + 0.01 * k,), 0.01, f"pair {k}".format)
            for k in range(20)
        ],
        Comparison("correlation", "q", (0.05, 0.03), 0.02, "correlation q".format, 0.5),
        Comparison("correlation", "r", (-0.11, -0.07), 0.03, "correlation r".format, 0.5),
        Comparison("coefficient", "x", (-1.9,), lost="slope x".format),
        Comparison("coefficient", "z", (-90.0,), lost="slope z".format),
    ]
    section = verdict(comparisons)
    assert section.text[0] == (
        "Held: 1 of 2 columns, 0 of 20 pairs of columns, 1 of 2 correlations, 1 of 2 coefficients."
    )
    assert section.points == [
        "slope z", "pair 19", "pair 18", "pair 17", "pair 16", "column b", "correlation r",
    ]  # fmt: skip
    assert section.text[-1] == "Lost, the worst first (7 of 23, up to 4 of a kind):"
    rows = worst_pairs(comparisons).rows
    assert [row[0] for row in rows] == [f"p{k}" for k in range(19, -1, -1)]  # all that are lost
    held = [Comparison("pair", f"p{k}", (0.001 * k,)) for k in range(12)]
    assert [row[0] for row in worst_pairs(held).rows] == [f"p{k}" for k in range(11, 1, -1)]
    assert worst_correlations(comparisons).rows == [
        ["r", 0.5, 0.41, 0.03], ["q", 0.5, 0.54, 0.02],
    ]  # fmt: skip
    assert verdict(comparisons[:1]).text[-1] == "Nothing is lost by these measures."


def test_the_verdict_judges_shares_of_missing_values():
    """A sum was missing where any term was: 16 % in place of 11 %, and nothing said so."""

    def share(records, synthetic):
        ours, theirs = ({"mean": 1.0, "missing": share} for share in (records, synthetic))
        measures = {"max_ecdf": 0.01, "original": ours, "synthetic": theirs}
        return of_column("total", measures, 5914, 5914)

    lost = verdict(over_data_sets([share(0.108, 0.158), share(0.108, 0.164)]))
    assert lost.text[0] == "Held: 1 of 1 columns, 0 of 1 shares of missing values."
    assert lost.points == ["Missing values of `total`: 16.1% (15.8% to 16.4%) in place of 10.8%"]
    held = verdict(share(0.108, 0.12))
    assert held.text[0] == "Held: 1 of 1 columns, 1 of 1 shares of missing values."
    no_values = {"original": {"missing": 1.0}, "synthetic": {"missing": 1.0}}
    assert [outcome.excess for outcome in of_column("empty", no_values, 100, 100)] == [0.0]


def test_the_verdict_is_on_the_mean_of_the_data_sets():
    """A data set that is far off alone does not hide behind the first; errors may cancel."""
    first = [
        Comparison("column", "a", (0.01,), lost=lost_distance("column a", 0.1)),
        Comparison("coefficient", "x", (-9.0,)),
        Comparison("coefficient", "only here", (1.0,)),
    ]
    second = [Comparison("column", "a", (0.31,)), Comparison("coefficient", "x", (8.0,))]
    outcomes = over_data_sets([first, second])
    section = verdict(outcomes)
    assert section.text[0] == "Held: 0 of 1 columns, 2 of 2 coefficients."
    assert "means of the 2 data sets" in section.text[1]
    assert section.points == ["column a: 0.160 (0.010 to 0.310); another sample has 0.100"]


def test_another_sample_has_the_distance_that_is_expected():
    rng = np.random.default_rng(1)
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    tables = rng.multinomial(400, shares, 2000) / 400, rng.multinomial(900, shares, 2000) / 900
    mean = np.abs(tables[0] - tables[1]).sum(axis=1).mean() / 2
    assert chance_of_shares(shares, 400, 900) == pytest.approx(mean, rel=0.03)
    distances = [max_ecdf(rng.random(400), rng.random(900)) for _ in range(1000)]
    assert chance_of_ecdf(400, 900) == pytest.approx(np.mean(distances), rel=0.05)
    assert np.quantile(distances, 0.9) < BY_CHANCE * chance_of_ecdf(400, 900)


@pytest.mark.parametrize("values", [[0, 1, 1, 0], [1, 1, 1, 1]])
def test_two_numbers_are_shown_as_shares(values):
    column = dpb.Column("b", "count", upper=1)
    (ax,) = figures.distribution(column, pd.Series(values), pd.Series([0, 1, 1, 1])).axes
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0", "1"]
    assert ax.get_xlabel() == "share of records"


@pytest.mark.parametrize(
    ("value", "sd", "text"),
    [(1987.31, 7.2, "1987.3"), (18.94, 10.2, "18.9"), (61395.2, 38000.0, "61,400"),
     (0.0, 1.0, "0"), (5.0, 0.0, "5"), (1234567.0, 1000.0, "1,234,600")],
)  # fmt: skip
def test_means_have_digits_that_suit_the_spread(value, sd, text):
    assert to_spread(value, sd) == text


def test_a_link_leads_to_a_file_only():
    """A name in an edited statement cannot become a script or another site."""
    page = Page("t", [], [Section("s", links=[Link("javascript:alert(1)//", "x")])])
    (address,) = [a for a in Read(page.html()).addresses if not a.startswith("#")]
    assert address == "javascript%3Aalert%281%29//"


@pytest.mark.parametrize(
    ("values", "more"),
    [(np.repeat(np.arange(44), 5), {"type": "count"}),
     (np.linspace(0, 9, 181).round(2), {"type": "continuous", "lower": 0, "digits": 2}),
     (np.full(9, 3.0), {"type": "continuous", "lower": 0})],
)  # fmt: skip
def test_a_histogram_of_even_numbers_is_even(values, more):
    """Bins hold equally many possible values, except the last, and every value is in one."""
    column = dpb.Column("x", upper=99, **more)
    heights = codebook._heights(column, values.astype(float))
    assert sum(heights) == len(values)
    assert len(heights) <= codebook.BARS
    assert max(heights) - min(heights[:-1] or heights) <= 1


def test_a_code_book_has_shares_of_levels_and_of_0_and_1():
    columns = {
        "b": {"type": "count", "upper": 1},
        "c": {"type": "ordinal", "levels": ["bad", "so so", "good"], "missing": True},
        "y": {"type": "count", "lower": 1950, "upper": 2014, "unit": "years"},
    }
    data = pd.DataFrame({"b": [0, 1, 1, 1], "c": ["good", None, None, "bad"], "y": [1990] * 4})
    schema = dpb.Schema.from_dict({"columns": columns})
    b, c, y = codebook.code_book(schema, [data]).book
    assert b.parts == ["0 25.0%", "1 75.0%"]
    assert c.parts == ["bad 50.0%", "so so 0.0%", "good 50.0%"]
    assert list(c.heights) == [1, 0, 1]
    assert ("Missing", "50.0%") in c.facts
    assert ("Type", "whole number, years") in y.facts
    assert ("Values", "1950 to 2014") in y.facts
    assert y.parts == ["median 1990", "middle half 1990 to 1990"]


def test_a_code_book_counts_whole_numbers_among_decimal_levels():
    columns = {"hospital": {"type": "ordinal", "levels": [5.2, 6, 6.5]}}
    data = pd.DataFrame({"hospital": [5.2, 6.0, 6.0, 6.5]})
    (hospital,) = codebook.code_book(dpb.Schema.from_dict({"columns": columns}), [data]).book
    assert hospital.parts == ["5.2 25.0%", "6.0 50.0%", "6.5 25.0%"]


def test_a_code_book_cuts_long_tails():
    """Of a skewed column one bar held nearly all; and what is in tails is in the last bars."""
    rng = np.random.default_rng(1)
    columns = {
        "pay": {"type": "count", "upper": 10**6},
        "few": {"type": "count", "upper": 100},
        "even": {"type": "count", "upper": 100},
    }
    data = pd.DataFrame({
        "pay": rng.lognormal(10, 1.2, 2000).clip(0, 10**6).round(),
        "few": np.where(np.arange(2000) < 5, 50, 0),
        "even": np.arange(2000) % 101,
    })  # fmt: skip
    pay, few, even = codebook.code_book(dpb.Schema.from_dict({"columns": columns}), [data]).book
    low, high = (f"{data['pay'].quantile(q, 'lower'):,.0f}" for q in (0.01, 0.99))
    assert pay.ends == (f"{low.replace(',', '')} or less", f"{high} or more")
    assert sum(height > 0.1 for height in pay.heights) > 5
    assert f"from {pay.ends[0]} to {pay.ends[1]}: median" in pay.alternative
    assert (few.ends, even.ends) == (("0", "50"), ("0", "100"))


def test_a_code_book_is_of_all_data_sets():
    schema = dpb.Schema.from_dict(
        {"columns": {"s": {"type": "categorical", "levels": ["f", "m"]},
                     "y": {"type": "count", "upper": 40}}}
    )  # fmt: skip
    sets = [pd.DataFrame({"s": ["f", "f"], "y": [0, 2]}), pd.DataFrame({"s": "m", "y": [8, 10]})]
    section = codebook.code_book(schema, sets)
    s, y = section.book
    assert s.parts == ["f 50.0%", "m 50.0%"]
    assert y.parts[-1] == "mean 5 (1 to 9)"
    assert "of 2 data sets together" in section.text[0]


def kept(levels, separated=False):
    """A statement of a release that keeps three regressions, and its data sets."""
    rng = np.random.default_rng(5)
    sets = []
    for _ in range(3):
        data = pd.DataFrame({"age": rng.integers(20, 60, 200), "job": rng.choice(levels, 200)})
        data["ill"] = np.where(rng.random(200) < data["age"] / 80, "yes", "no")
        data["pain"] = rng.choice(["none", "some", "much"], 200)
        if separated:
            data.loc[data["job"] == levels[-1], "ill"] = "yes"
        sets.append(data)
    settings = {"synthesised": list(sets[0]), "draw": "posterior", "rows": 200}
    settings["keep"] = ["ill ~ age + job", "pain ~ age", "age ~ job * ill"]
    told = {"job": levels, "ill": ["no", "yes"], "pain": ["none", "some", "much"]}
    statement = {"mechanism": "marginals", "datasets": 3, "settings": settings, "levels": told}
    return {**statement, "files": {f"synthetic_{k}.csv": "" for k in (1, 2, 3)}}, sets


def test_all_programs_have_the_declared_reference_level(tmp_path, monkeypatch):
    statement, sets = kept(["works", "at home", "it's"])
    texts = {code.caption: code.text for code in analysis.analysis(statement, sets).code}
    assert "C(job, Treatment('works'))" in texts["Python, with pandas and statsmodels"]
    assert "relevel(factor(job), 'works')" in texts["R"]
    for number, data in enumerate(sets, 1):
        data.to_csv(tmp_path / f"synthetic_{number}.csv", index=False)
    table = printed(texts["Python, with pandas and statsmodels"], tmp_path, monkeypatch)
    fit = formula_fit("ill ~ age + job", "logit", statement["levels"])
    fits = [fit(data) for data in sets]
    combined = combine([one.params for one in fits], [one.bse**2 for one in fits], "reiter2002")
    expected = np.column_stack([combined.estimate, *combined.interval()]).ravel()
    assert sorted(numbers_in(table)) == pytest.approx(sorted(expected), rel=1e-3)


def test_the_program_with_dpbayes_has_every_regression_that_is_kept(tmp_path, monkeypatch):
    """Levels without order have no regression of one; the schema says which have one."""
    statement, sets = kept(["works", "at home", "it's"])
    expected = [("ill ~ age + job", "logit"), ("age ~ job * ill", "ols")]
    columns = {"pain": {"type": "ordinal", "levels": statement["levels"]["pain"]}}
    columns |= {"ill": {"type": "binary"}, "job": {"type": "categorical", "levels": ["a", "b"]}}
    schema = dpb.Schema.from_dict({"columns": columns | {"age": {"type": "count", "upper": 99}}})
    ordered = [expected[0], ("pain ~ age", "ordinal"), expected[1]]
    for told, regressions in ((None, expected), (schema, ordered)):
        text = analysis.analysis(statement, sets, told).code[0].text
        lines = [line.strip().rstrip(",") for line in text.splitlines()]
        assert [ast.literal_eval(line) for line in lines if line[:2] == "('"] == regressions


@pytest.mark.parametrize("separated", [False, True])
def test_where_levels_separate_the_outcomes_programs_have_the_penalised_likelihood(separated):
    statement, sets = kept(["works", "at home", "ill"], separated)
    section = analysis.analysis(statement, sets)
    captions = {code.caption: code.text for code in section.code}
    assert (
        "In 3 data sets a level or a covariate separates" in " ".join(section.text)
    ) == separated
    assert ("Python, with pandas and statsmodels" in captions) == (not separated)
    assert ("method = brglm2::brglmFit" in captions["R"]) == separated


def slopes_by_all(tmp_path, monkeypatch, sets, levels, formula, declared):
    """Run the programs of a release that keeps a regression; return its texts and both tables."""
    for number, data in enumerate(sets, 1):
        data.to_csv(tmp_path / f"synthetic_{number}.csv", index=False)
    settings = {"synthesised": list(sets[0]), "rows": len(sets[0]), "keep": [formula]}
    statement = {
        "mechanism": "marginals", "basis": "strict", "datasets": len(sets), "settings": settings,
        "levels": levels, "files": {f"synthetic_{k + 1}.csv": "" for k in range(len(sets))},
    }  # fmt: skip
    (tmp_path / "guarantee.json").write_text(json.dumps(statement))
    section = analysis.analysis(statement, sets, dpb.Schema.from_dict({"columns": declared}))
    texts = {code.caption: code.text for code in section.code}
    ours = printed(texts["Python, with dpbayes"], tmp_path, monkeypatch)
    theirs = printed(texts["Python, with pandas and statsmodels"], tmp_path, monkeypatch)
    return texts, section.text, ours, theirs


@pytest.mark.parametrize(
    ("name", "levels", "in_python", "in_r"),
    [
        ("like", [1, 2, 3, 4], "('like ~ age', distr=\"logit\"", "like, levels = intersect(c(1, 2"),
        ("like", ["no", "so", "yes", "oh"], "map({'no': 0, 'so'", "intersect(c('no', 'so', 'yes'"),
        ("how much", ["4", "3", "2", "1"], "d['how much'].map({'4': 0", "`how much`, levels"),
        ("like", [4, 3, 2, 1], "map({4: 0, 3: 1", "like, levels = intersect(c(4, 3"),
    ],
)
def test_all_programs_fit_proportional_odds_to_ordered_levels(
    tmp_path, monkeypatch, name, levels, in_python, in_r
):
    """Two programs had a linear regression of the codes, or of the share of the last level."""
    rng, sets = np.random.default_rng(2), []
    for absent in ({}, {3: 2}, {1: 0}):  # all levels; without the last; without one between
        age = rng.integers(20, 60, 300)
        place = np.digitize(age / 20 + rng.logistic(size=300), [1, 2, 4])
        place = np.array([absent.get(k, k) for k in place])
        sets.append(pd.DataFrame({name: np.array(levels)[place], "age": age}))
    sets[0].loc[5, name] = np.nan
    columns = {name: {"type": "ordinal", "levels": levels, "missing": True}, "age": COLUMNS["age"]}
    formula = f"`{name}` ~ age" if " " in name else f"{name} ~ age"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        texts, said, ours, theirs = slopes_by_all(
            tmp_path, monkeypatch, sets, {name: levels}, formula, columns
        )
        fit = formula_fit(formula, "ordinal", {name: levels})
        slopes = [[found[k]["age"] for k in (0, 1)] for found in map(fit, sets)]
    combined = combine(*np.transpose(slopes), "reiter2002")
    expected = [combined.estimate, *combined.interval()]
    assert numbers_in(theirs) == pytest.approx(expected, rel=1e-3)
    assert f"{combined.estimate:.4g}" in ours
    assert f"cutpoint {levels[1]}|{levels[2]}" in ours
    assert in_python in texts["Python, with pandas and statsmodels"]
    assert "MASS::polr(ordered(" in texts["R"]
    assert in_r in texts["R"]
    assert "diag(vcov(fit))[seq_along(coef(fit))]" in texts["R"]
    assert texts["R"].count("(") == texts["R"].count(")")
    assert any("combine the slopes alone" in text for text in said)


@pytest.mark.parametrize(
    ("outcome", "in_r"),
    [
        ({"type": "count", "upper": 9}, "lm(out ~ age, data"),
        ({"type": "continuous", "lower": 0, "upper": 9}, "lm(out ~ age, data"),
        ({"type": "binary", "levels": [0, 1]}, "glm(out ~ age, family = binomial"),
        ({"type": "binary", "levels": [1, 0]}, "glm(I((out == 0) * 1) ~ age, family = binomial"),
        ({"type": "binary", "levels": [1, 2]}, "glm(I((out == 2) * 1) ~ age, family = binomial"),
        ({"type": "binary", "levels": ["1", "2"]}, "glm(I((out == '2') * 1) ~ age, family"),
        (
            {"type": "categorical", "levels": ["a", "b", "c"]},
            "glm(I((out == 'c') * 1) ~ age, family",
        ),
    ],
)
def test_all_programs_fit_the_same_model_to_every_outcome(tmp_path, monkeypatch, outcome, in_r):
    """Two levels 1 and 2 had a linear regression in two programs; as texts these failed."""
    rng, sets = np.random.default_rng(2), []
    levels = outcome.get("levels")
    for _ in range(3):
        age = rng.integers(20, 60, 300)
        y = np.clip(np.round(age / 20 + rng.normal(size=300)), 0, 9).astype(int)
        y = y if levels is None else np.array(levels)[np.digitize(y, range(2, len(levels) + 1))]
        sets.append(pd.DataFrame({"out": y, "age": age}))
    declared = {} if levels is None else {"out": levels}
    columns = {"out": outcome, "age": COLUMNS["age"]}
    texts, _, ours, theirs = slopes_by_all(
        tmp_path, monkeypatch, sets, declared, "out ~ age", columns
    )
    ours, theirs = (
        [line.split() for line in table.splitlines() if line.startswith("age ")]
        for table in (ours, theirs)
    )
    ((_, estimate, _, _, low, high, _),), ((_, *by_pandas),) = ours, theirs
    assert [float(x) for x in by_pandas] == pytest.approx(
        [float(x) for x in (estimate, low, high)], rel=1e-3
    )
    assert in_r in texts["R"]


def test_missing_outcomes_are_left_out_by_all_programs(tmp_path, monkeypatch):
    """In pandas a missing level is not equal to one, and would count as the other."""
    statement, sets = kept(["works", "at home", "it's"])
    for number, data in enumerate(sets, 1):
        data.loc[::3, "ill"] = None
        data.to_csv(tmp_path / f"synthetic_{number}.csv", index=False)
    section = analysis.analysis(statement, sets)
    assert any("Rows with a missing value" in text for text in section.text)
    texts = {code.caption: code.text for code in section.code}
    table = printed(texts["Python, with pandas and statsmodels"], tmp_path, monkeypatch)
    fit = formula_fit("ill ~ age + job", "logit", statement["levels"])
    with pytest.warns(UserWarning, match="missing value"):
        fits = [fit(data) for data in sets]
    combined = combine([one.params for one in fits], [one.bse**2 for one in fits], "reiter2002")
    expected = np.column_stack([combined.estimate, *combined.interval()]).ravel()
    assert sorted(numbers_in(table)) == pytest.approx(sorted(expected), rel=1e-3)


@pytest.mark.parametrize(
    ("levels", "patsy", "in_r"),
    [
        ([2, 1, 3], "C({}, Treatment(2))", "relevel(factor({}), '2')"),  # R takes 2 for a place
        ([6.0, 5.2], "C({}, Treatment(6.0))", "relevel(factor({}), '6')"),
        (["b", "a"], "C({}, Treatment('b'))", "relevel(factor({}), 'b')"),
        (["head", 2, True], "C({}, Treatment('head'))", "relevel(factor({}), 'head')"),
        ([1, 2, 3], "{}", "{}"),
        (["a", "b"], "{}", "{}"),
    ],
)
def test_the_reference_level_is_written_for_levels_of_every_type(levels, patsy, in_r):
    assert analysis.PATSY.levels_of("xy", levels, numeric=False) == patsy.replace("{}", "xy")
    assert analysis.OF_R.levels_of("xy", levels, numeric=False) == in_r.replace("{}", "xy")
