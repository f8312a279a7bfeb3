"""Analysing a release, and the studies of it, from the shell."""

import json

import numpy as np
import pandas as pd
import pytest

from studies.catalogue import STUDIES
from tests.cli import in_process
from tests.cli.in_process import dpbayes, study


@pytest.fixture
def release(tmp_path):
    """A release folder of three data sets by ``modips``."""
    rng = np.random.default_rng(1)
    folder = tmp_path / "release"
    folder.mkdir()
    for i in (1, 2, 3):
        x = rng.normal(size=60)
        frame = pd.DataFrame({"y": 1 + 2 * x + rng.normal(size=60), "x": x})
        frame.to_csv(folder / f"synthetic_{i}.csv", index=False)
    write(folder, datasets=3)
    return folder


def write(folder, **changes):
    statement = {"datasets": 3, "mechanism": "modips", "basis": "strict", **changes}
    (folder / "guarantee.json").write_text(json.dumps(statement))


def test_combine(release):
    done = dpbayes("combine", release, "--formula", "y ~ x")
    assert done.returncode == 0, done.stderr
    assert "3 data sets by 'modips', rule 'modips'" in done.stdout
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("x "))
    assert float(row[1]) == pytest.approx(2, abs=0.5)
    assert float(row[4]) < 2 < float(row[5])
    assert done.stderr == ""
    other = dpbayes("combine", release, "--formula", "y ~ x", "--rule", "rubin", "--level", 0.9)
    assert "90% low" in other.stdout
    assert "warning: rule 'rubin' is not made for" in other.stderr
    large = dpbayes("combine", release, "--formula", "y ~ x", "--rule", "mixture")
    assert large.returncode == 0
    assert "warning: rule 'mixture': data sets of 60 rows" in large.stderr
    gamma = dpbayes("combine", release, "--formula", "exp(y) ~ x", "--model", "gamma")
    assert "gamma exp(y) ~ x: 3 data sets" in gamma.stdout
    write(release, mechanism="anchored")
    assert "warning: no rule fits" in dpbayes("combine", release, "--formula", "y ~ x").stderr
    write(release, mechanism="censored")
    clamped = dpbayes("combine", release, "--formula", "y ~ x")
    assert clamped.returncode == 0
    assert "warning: no rule fits mechanism 'censored'" in clamped.stderr


def test_levels_that_are_put_together_are_said_where_a_formula_uses_them(release):
    for i in (1, 2, 3):
        table = pd.read_csv(release / f"synthetic_{i}.csv").assign(site=list("abcd") * 15)
        table.to_csv(release / f"synthetic_{i}.csv", index=False)
    facts = {"told_apart": {"site": ["a", "b"]}}
    text = "warning: Levels of 'site' told apart in tables of two columns: a, b. How other columns"
    for keep, formula, said in (
        ([], "y ~ x + site", True),
        ([], "y ~ x", False),
        (["y ~ site"], "y ~ x + site", False),  # it has a sum for each level
        (["x ~ site"], "y ~ x + site", True),
    ):
        write(release, mechanism="marginals", settings=facts | {"keep": keep})
        done = dpbayes("combine", release, "--formula", formula)
        assert done.returncode == 0, done.stderr
        assert (text in done.stderr) == said
    write(release, mechanism="marginals", settings={"told_apart": {"site": 3}})
    assert "do not fit this analysis" in dpbayes("combine", release, "--formula", "y ~ x").stderr


def test_intervals_of_too_few_data_sets_are_marked(release):
    """By reiter2002 their degrees of freedom can be next to 0, and the intervals without end."""
    rng = np.random.default_rng(3)
    for i in (1, 2, 3):
        x = rng.normal(size=60)
        frame = pd.DataFrame({"y": 1 + 2 * x + rng.normal(size=60), "x": x})
        frame.to_csv(release / f"synthetic_{i}.csv", index=False)
    done = dpbayes("combine", release, "--formula", "y ~ x", "--rule", "reiter2002")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("x ", "Inter"))]
    few = sum(float(row[3]) < 3 for row in rows)
    assert few
    assert f"warning: {few} of 2 rows have fewer than 3 degrees of freedom" in done.stderr


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"datasets": 1}, ("--formula", "y ~ x"), "there is one data set: "),
        ({"datasets": 4}, ("--formula", "y ~ x"), "No such file or directory (synthetic_4.csv)"),
        ({}, ("--formula", "y ~ z"), "on columns y, x"),
        ({}, ("--formula", "y ~ x", "--model", "glm"), "expected one of ols, logit, poisson"),
        ({}, ("--formula", "y ~ x", "--rule", "mean"), "expected one of modips"),
        ({}, ("--formula", "y ~ x", "--level", "95"), "level = 95.0 must lie in (0, 1)"),
    ],
)
def test_bad_input_is_one_message(release, changes, arguments, message):
    write(release, **changes)
    done = in_process.dpbayes("combine", release, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "replicates", "words"),
    [
        ("charest", 2000, ("Table 4", "posterior_mean", "Figure 1, coverage")),
        ("modips-rules", 300, ("raghunathan", "gaussian", "ours, then Liu's Table 1")),
        ("known-draws", 100, ("model, draws", "binary, anchored, ε = 3")),
    ],
)
def test_studies(tmp_path, name, replicates, words):
    out = tmp_path / "study"
    done = study(name, "--replicates", replicates, "--out", out)
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout
    assert len(pd.read_csv(out / "tables" / f"{name}.csv")) > 10
    again = study(name, "--replicates", replicates, "--out", out)
    assert again.returncode == 2
    assert "already holds this study" in again.stderr


def test_the_list_of_studies():
    done = study("list")
    assert done.returncode == 0
    for name in STUDIES:
        assert f"{name} " in done.stdout


def test_bad_studies():
    for arguments, message in (
        (("charets",), f"unknown study 'charets'; studies: {', '.join(STUDIES)}."),
        (("charest", "--replicates", 1), "replicates = 1 must be at least 1000"),
        (("comparison-1", "--replicates", 0), "replicates = 0 must be at least 1"),
        (("charest", "--workers", 0), "workers = 0 must be at least 1"),
        (("charest", "--resume"), "--resume needs --out"),
        (("charest", "--scheduler", "tcp://127.0.0.1:9", "--workers", 2), "has its own"),
    ):
        done = in_process.study(*arguments)
        assert done.returncode == 2
        assert message in done.stderr
