"""Input that would crash, hang or pass: one message, exit code 2, and nothing written."""

import pytest

from tests.cli.command import options
from tests.cli.in_process import dpbayes
from tests.programs import GOOD


def refused(folder, *arguments):
    """The message of a command that is refused, without a traceback or a file."""
    before = sorted(folder.rglob("*"))
    done = dpbayes(*arguments)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before
    return done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"formula": "y ~ age ~ sex"}, "there is one ~"),
        ({"formula": 'y ~ I("a")'}, "the text 'a' stands where no level is named"),
        ({"formula": "y ~ I(age / age.max())"}, "age.max() is not known"),
        ({"formula": "y ~ I(__import__('os').mkdir('made'))"}, "has no place in a formula"),
        ({"formula": "y ~ " + "(" * 2000}, "a summand has more than 150 operators"),
        ({"set": "name=x"}, "mechanism 'censored' does not use name"),
        ({"set": "self=x"}, "mechanism 'censored' does not use self"),
        ({"set": f"share={'[' * 5000}"}, "is nested too deeply"),
        ({"set": "share=a", "mechanism": "anchored"}, "share = 'a' must lie in (0, 1)"),
        ({"set": "range=[1]", "mechanism": "anchored"}, "range = [1] must be a finite number"),
        ({"set": "c1=" + "9" * 400, "mechanism": "censored-weighted"}, "must be a number"),
        ({"datasets": 10**9}, "datasets = 1,000,000,000 must be at most 100,000"),
        ({"datasets": "1e9"}, "should be a valid integer"),
        ({"engine": "candidates", "points": 10**10}, "points = 10,000,000,000 must be at most"),
        ({"engine": "candidates", "points": "1e10"}, "should be a valid integer"),
        ({"ledger": "postgresql://h/d?port=abc", "account": "a"}, "its URL is wrong"),
        ({"ledger": "postgresql://h:abc/d", "account": "a"}, "URL cannot be read"),
    ],
)
def test_options(folder, changes, message, monkeypatch):
    monkeypatch.chdir(folder)
    assert message in refused(
        folder, "synthesize", folder / "data.csv", *options(folder, **changes)
    )


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ('intercept = "wide"', "prior 'intercept' = 'wide': expected 2 finite number(s)"),
        ('intercept = ["0", "1"]', "expected 2 finite number(s)"),
        ("intercept = 2020-01-01", "expected 2 finite number(s)"),
        ("intercept = [[0, 1], [2]]", "expected 2 finite number(s)"),
        ("[intercept]\na = 1", "expected 2 finite number(s)"),
        (f"intercept = [0, {'9' * 400}]", "expected 2 finite number(s)"),
        (f"intercept = [0, {'9' * 5000}]", "is not valid TOML"),
        ("intercept = [true, true]", "expected 2 finite number(s)"),
        (f"intercept = {'[' * 5000}", "is nested too deeply"),
    ],
)
def test_priors(folder, priors, message):
    (folder / "priors.toml").write_text(priors)
    flags = options(folder, priors=folder / "priors.toml")
    assert message in refused(folder, "synthesize", folder / "data.csv", *flags)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"n": null, "y": [1]}', "entry 'n' holds null"),
        ('{"n": 6, "y": null}', "entry 'y' holds null"),
        ('{"n": 2, "y": [1, null]}', "entry 'y' holds null"),
        ('{"n": 2, "y": [[1, 2], [3]]}', "entry 'y' is ragged"),
        ('{"n": 2, "y": [[1], 2]}', "entry 'y' is ragged"),
        ('{"n": 2, "y": "ab"}', "entry 'y' holds str"),
        ('{"n": 2, "y": {"a": 1}}', "entry 'y' holds dict"),
        ('{"n": 1e400, "y": [1]}', "n must be a whole number from 0"),
        ('{"n": [2], "y": [1, 2]}', "n must be a whole number from 0"),
        ('{"n": 1.5, "y": [1]}', "n must be a whole number from 0"),
        (f'{{"n": 1, "y": [{"9" * 400}]}}', "a whole number beyond"),
        (f'{{"n": {"9" * 5000}}}', "is not valid JSON"),
        (f'{{"y": {"[" * 20}{"]" * 20}}}', "has more than 8 dimensions"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_data_of_a_check(folder, data, message):
    (folder / "data.json").write_text(data)
    (folder / "good.stan").write_text(GOOD)
    said = refused(folder, "check", folder / "good.stan", "--constants", folder / "data.json")
    assert message in said


def test_a_row_with_a_field_too_many(folder):
    """Its fields would stand in the columns beside their own, and the release be called strict."""
    (folder / "data.csv").write_text("y,age,sex,ill\n1,2,30,f,no\n2,3,31,m,no\n")
    said = refused(folder, "synthesize", folder / "data.csv", *options(folder))
    assert "line 2 has 5 fields, the header has 4" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ledger", "create", "new.db", "--account", "a", "--epsilon", "-1"), "epsilon = -1.0"),
        (("ledger", "create", "new.db", "--account", " ", "--epsilon", "1"), "1 to 200 characters"),
        (("ledger", "create", "\0", "--account", "a", "--epsilon", "1"), "URL cannot be read"),
        (("ledger", "show", "x" * 300), "there is no ledger"),
        (("ledger", "create", "x" * 300, "--account", "a", "--epsilon", "1"), "too long"),
        (("study", "sdr", "--scheduler", "nowhere", "--out", "s"), "tcp://HOST:PORT"),
        (("study", "sdr", "--scheduler", "tcp://h:70000", "--out", "s"), "HOST:PORT"),
        (("study", "sdr", "--scheduler", "", "--out", "s"), "tcp://HOST:PORT"),
    ],
)
def test_names_and_addresses(folder, arguments, message, monkeypatch):
    monkeypatch.chdir(folder)
    assert message in refused(folder, *arguments)


def test_a_check_of_an_entry_that_is_not_one_per_record(folder):
    (folder / "good.stan").write_text(GOOD)
    (folder / "d.json").write_text('{"n": 3, "y": [1, 2, 3]}')
    arguments = ("check", folder / "good.stan", "--constants", folder / "d.json", "--private", "n")
    assert "'n' has not one value per record" in refused(folder, *arguments)


def test_an_include_that_is_no_text(folder):
    (folder / "part.stan").write_bytes(b"\xff")
    (folder / "d.json").write_text('{"n": 3, "y": [1, 2, 3]}')
    for name, message in (("part.stan", "is not UTF-8 text"), ("x" * 300, "no such file")):
        (folder / "mine.stan").write_text(f"#include {name}\n{GOOD}")
        arguments = ("check", folder / "mine.stan", "--constants", folder / "d.json")
        assert message in refused(folder, *arguments)
