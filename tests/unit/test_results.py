"""Pages of results and benchmarks: in step with their tables; verdicts that can be other ones."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from studies.findings import Cases, StudyFinding, judged, verdicts, within

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("results", DOCS / "results.py")
results = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(results)


def test_pages_are_in_step(capsys):
    assert results.main(["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_is_not_in_step_is_found(monkeypatch, tmp_path, capsys):
    (tmp_path / "page.md").write_text("<!-- run x -->\n\nanything\n\n<!-- end -->\n")
    benchmarks = tmp_path / "benchmarks"
    (benchmarks / "results").mkdir(parents=True)
    (benchmarks / "README.md").write_text("<!-- benchmark x -->\n<!-- end -->\n")
    (benchmarks / "results/x.csv").write_text("n,CPU s\n1000,2.50\n")
    monkeypatch.setattr(results, "HERE", tmp_path)
    monkeypatch.setattr(results, "BENCHMARKS", benchmarks)
    assert results.main(["--check"]) == 1
    assert "page.md, README.md" in capsys.readouterr().err
    assert results.main([]) == 0
    assert "was not run" in (tmp_path / "page.md").read_text()
    assert "| 1,000 | 2.50 |" in (benchmarks / "README.md").read_text()
    assert results.main(["--check"]) == 0


def test_each_table_of_a_benchmark_has_a_program_and_a_place_in_the_page():
    index = pd.read_csv(results.BENCHMARKS / "results/index.csv")
    page = (results.BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert "was not run" not in page
    assert {path.stem for path in (results.BENCHMARKS / "results").glob("*.csv")} == {
        "index", *index["table"]
    }  # fmt: skip
    for name, program in index[["table", "program in benchmarks/"]].to_numpy():
        assert (results.BENCHMARKS / re.match(r"\w+\.py", program)[0]).is_file()
        assert f"<!-- benchmark {name}" in page or f"(results/{name}.csv)" in page


def test_rows_of_a_benchmark(monkeypatch, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/x.csv").write_text(
        "ε,term,s,s (CPU),note\nnone,a,1,,\n1,(1 | a),20000,3,\n5,b,4,5,late\n"
    )
    monkeypatch.setattr(results, "BENCHMARKS", tmp_path)
    lines = results.benchmark("x; ε=none or 1").splitlines()
    assert lines[0] == "| ε | term | s (CPU) |"
    assert lines[2:] == ["| none | a | 1 |", "| 1 | (1 \\| a) | 20,000 (3) |"]
    assert results.benchmark("x; ε=5").splitlines()[2:] == ["| b | 4 (5) | late |"]
    with pytest.raises(ValueError, match="no row"):
        results.benchmark("x; ε=2")


@pytest.mark.parametrize("name", sorted(results.FINDINGS))
def test_whatever_holds_could_fail(name):
    """Each part of a finding that holds fails for a made-up table of the study's shape."""
    path = results.HERE / f"{name}.csv"
    if not path.exists():
        pytest.skip("the study was not run")
    found = pd.read_csv(path)
    made, rng = found.copy(), np.random.default_rng(1)
    measures = [c for c in ("bias", "rmse", "width", "coverage", "sd") if c in found]
    tables = []
    for scale in (0.0, *[2.0] * 30):
        for column in measures:
            made[column] = np.exp(rng.normal(-1, scale, len(made))) * rng.choice([-1, 1])
        tables.append(Cases(made.copy()))
    cases = Cases(found)
    for finding in results.FINDINGS[name]:
        assert finding.judge(cases)[0] != "open", finding.where
        for what, test in finding.parts.items():
            part = StudyFinding("", "", {what: test})
            if part.judge(cases)[0] == "held":
                verdicts = {part.judge(other)[0] for other in tables}
                assert "not" in verdicts, (finding.where, what)


def test_verdicts():
    table = pd.DataFrame(
        {"epsilon": np.exp([0, 0, 1]), "method": ["a", "b", "a"], "rmse": [1.0, -4.0, 2.0]}
    )
    cases = Cases(table)
    assert cases.one("rmse", method="a", k=1) == 2
    assert list(cases.ratio("rmse", "a", "b", k=0)) == [0.25]
    assert list(within(np.array([0.5, 2.0, 2.1]), 2)) == [True, True, False]
    parts = {
        "yes": lambda c: c.get("rmse", method="a") > 0,
        "no": lambda c: [c.get("rmse", method="a") > 0, c.get("rmse") > 0],
    }
    made = [
        StudyFinding("1", "both", parts),
        StudyFinding("2", "none", {"no": parts["no"]}),
        StudyFinding("3", "all", {"yes": parts["yes"]}),
        StudyFinding("4", "not run", {"open": lambda c: c.get("rmse", method="c") > 0}),
    ]
    found = judged(tuple(made), table)
    assert list(found["verdict"]) == ["half", "not", "held", "open"]
    assert list(found["not here"]) == ["no", "no", "", ""]
    assert "half  1: both Not: no." in verdicts(found)


def test_printed_figures_have_verdicts_by_their_errors():
    text = results.rules("modips-rules")
    assert text.count("held") == 23
    assert text.count("half: not rubin") == 1
    fertility = results.figures("fertility")
    assert "| SVM consistency, % | modips | 49.3 (2.1) | 50 | held |" in fertility
    assert "| SVM consistency, % | laplace | 51.95 (2.1) | 64.7 | not |" in fertility


def test_orderings_are_judged_by_clear_pairs(monkeypatch, tmp_path):
    cells = {"a": "3/0/0", "b": "1/0/2", "c": "2/1/0", "d": "1/2/0", "e": "0/0/3"}
    rows = [
        {"the paper": said, "measure": "m", "ε": "in total", **dict.fromkeys(results.CASES, cell)}
        for said, cell in cells.items()
    ]
    means = {
        "table": "azpro", "part": "maps", "measure": "m", "mechanism": ["x", "x", "y"],
        "delta": 0.0, "epsilon": [10.0, 0.1, 0.1], "mean": [0.1234, 1.0, 2.0], "se": [0.0123, 0, 0],
    }  # fmt: skip
    table = pd.concat([pd.DataFrame(rows), pd.DataFrame(means)])
    table.to_csv(tmp_path / "pegs.csv", index=False)
    monkeypatch.setattr(results, "HERE", tmp_path)
    lines = results.orderings("total").splitlines()[2:]
    verdicts = [line.strip("| ").split(" | ")[-1] for line in lines]
    assert verdicts == ["held", "half", "half", "not", "unclear"]
    shown = results.distances("azpro record m").splitlines()
    assert shown[0].endswith("| ε = 0.1 | ε = 10 |")
    assert shown[2] == "| `x` | 1000 (0) | 123 (10) |"
