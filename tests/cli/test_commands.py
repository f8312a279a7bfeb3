"""The command as users run it: exit codes, files, messages. Some of it in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dpbayes as dpb
from dpbayes.demo import run as demo
from dpbayes.mechanisms import MECHANISMS
from tests.cli import command
from tests.cli.command import SCHEMA, options, records
from tests.cli.in_process import dpbayes
from tests.programs import BLOCKS, GOOD, UNPROVED


def test_synthesize_writes_a_release(folder):
    done = command.dpbayes(
        "synthesize", folder / "data.csv", *options(folder, datasets=2, adjacency=None)
    )
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "ε = 12 when one record is changed (δ = 0). Strict, for an exact draw: 2 data" in said
    assert "one more or less is ε = 6." in said
    assert "Not released, because neither public nor synthesised: ill" in done.stdout
    first = pd.read_csv(folder / "out" / "release" / "synthetic_1.csv")
    assert list(first.columns) == ["y", "age", "sex"]
    assert len(first) == 150
    statement = json.loads((folder / "out" / "release" / "guarantee.json").read_text())
    assert (statement["epsilon"], statement["epsilon_substitution"]) == (6, 12)
    assert (statement["basis"], statement["adjacency"]) == ("strict", "substitution")
    confidential = folder / "out" / "confidential"
    assert confidential.stat().st_mode & 0o777 == 0o700
    assert {p.name for p in confidential.iterdir()} == {
        "weights.csv", "draws.nc", "utility.json", "fit.json", "lipschitz.png", "density.png",
        "check.csv", "check.png",
    }  # fmt: skip
    assert "No ledger accounts for this release" in done.stdout
    assert statement["accounted"] is False
    again = command.dpbayes("synthesize", folder / "data.csv", *options(folder))
    assert again.returncode == 2
    assert "already holds a" in again.stderr
    beside = command.dpbayes("synthesize", folder / "data.csv", *options(folder, out=folder))
    assert beside.returncode == 2
    assert "holds other files or folders" in beside.stderr
    assert not (folder / "release").exists()


SHORT = {"chains": 2, "warmup": 200, "draws": 100}


def test_a_release_is_never_the_same_twice(folder):
    """A seed, which would repeat it, is no option of the command that releases."""

    def run(name):
        flags = options(folder, out=folder / name, allow_nonconvergence=True, **SHORT)
        assert dpbayes("synthesize", folder / "data.csv", *flags).returncode == 0
        return (folder / name / "release" / "synthetic_1.csv").read_text()

    assert run("a") != run("b")
    done = dpbayes("synthesize", folder / "data.csv", *options(folder, seed=5))
    assert done.returncode == 2
    assert "No such option: --seed" in done.stderr


def test_stored_draws_can_be_read(folder):
    done = dpbayes("synthesize", folder / "data.csv", *options(folder))
    assert done.returncode == 0, done.stderr
    with xr.open_datatree(folder / "out" / "confidential" / "draws.nc", engine="h5netcdf") as tree:
        assert tree["posterior"]["coefficient"].shape == (4, 500, 2)
        assert set(tree.children) == {"posterior", "sample_stats"}


@pytest.mark.parametrize(
    ("changes", "data", "message"),
    [
        ({"epsilon": 0}, None, "epsilon = 0.0 must be a number from 0.001 to 50"),
        ({"epsilon": "nan"}, None, "epsilon = nan must be"),
        ({"epsilon": None}, None, "needs --epsilon"),
        ({"mechanism": "laplce"}, None, "unknown mechanism 'laplce'"),
        ({"mechanism": "weighted"}, None, "does not use epsilon"),
        ({"datasets": 0}, None, "datasets = 0 must be a whole number"),
        ({"family": "bet"}, None, "unknown family 'bet'"),
        ({"family": None}, None, "either family or program"),
        ({"engine": "jags"}, None, "unknown engine 'jags'"),
        ({"schema": "none.toml"}, None, "schema file 'none.toml' does not exist"),
        ({"formula": "y ~ ill"}, None, "'ill' is used as a covariate but is not public"),
        ({"formula": "z ~ 1"}, None, "column 'z' is not declared"),
        ({"chains": 1}, None, "chains = 1"),
        ({"priors": "none.toml"}, None, "priors file 'none.toml'"),
        ({}, "", "is empty"),
        ({}, "y,age,sex,ill\n", "no rows"),
        ({}, "y,age,sex\n1,30,f\n", "column 'ill' of the schema is not in the data"),
        ({}, "y,age,sex,ill,y\n1,30,f,no,2\n", "duplicate column names in its first line"),
        ({}, "y,age,sex,ill\n1,30,f,no\n,31,m,no\n", "column 'y': 1 of 2 rows are missing"),
        ({}, "y,age,sex,ill\n1,30,f,no\ninf,31,m,no\n", "column 'y': 1 of 2 rows are infinite"),
        ({}, "y,age,sex,ill\n1,30,f,no\n12,31,m,no\n", "1 of 2 rows are outside the declared"),
        ({}, "y,age,sex,ill\n1,30,f,no\n2,31,x,no\n", "1 of 2 rows are not among the declared"),
        (
            {},
            "y,age,sex,ill\n1,30,f,no\nabc,31,m,no\n",
            "1 of 2 rows are not numbers. Numbers are read as 2483.62",
        ),
        ({"show_values": True}, "y,age,sex,ill\n1,30,f,no\nabc,31,m,no\n", "not numbers: 'abc'"),
        ({"rows": 20}, None, "--rows = 20: column 'age' is public"),
    ],
)
def test_bad_input_is_one_message_and_writes_nothing(folder, changes, data, message):
    if data is not None:
        (folder / "data.csv").write_text(data)
    done = dpbayes("synthesize", folder / "data.csv", *options(folder, **changes))
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "out").exists()


def test_missing_data_file(folder):
    done = dpbayes("synthesize", folder / "none.csv", *options(folder))
    assert done.returncode == 2
    assert "none.csv' does not exist" in done.stderr


def test_wrong_schema_key(folder):
    (folder / "schema.toml").write_text(SCHEMA.replace("upper = 10\n", "uper = 10\n"))
    done = dpbayes("synthesize", folder / "data.csv", *options(folder))
    assert done.returncode == 2
    assert "column 'y': unknown key 'uper' (did you mean 'upper'?)" in done.stderr


def test_no_convergence_is_refused(folder):
    done = dpbayes("synthesize", folder / "data.csv", *options(folder, warmup=0, draws=4))
    assert done.returncode == 2
    assert "has not converged" in done.stderr
    assert not (folder / "out").exists()


def test_check_good_and_bad_programs(folder):
    data = {"n": 6, "y": [0.1, 0.5, -0.3, 1.2, 2.0, 0.0]}
    (folder / "data.json").write_text(json.dumps(data))
    (folder / "good.stan").write_text(GOOD)
    done = dpbayes("check", folder / "good.stan", "--data", folder / "data.json")
    assert done.returncode == 0, done.stderr
    assert "good.stan keeps the contract at 5 random points" in done.stdout
    assert "ok  proved from its text" in done.stdout
    for name, old, new, message in (
        (
            "mean",
            "mu ~ normal(0, 2)",
            "mu ~ normal(mean(y), 2)",
            "line 18: y reaches target past pseudo_log_lik",
        ),
        ("syntax", "real mu;", "real mu", "Syntax error"),
        (
            "copied",
            "normal_rng(rep_vector(mu, n), 1)",
            "to_array_1d(y)",
            "line 30: y_rep is drawn with y",
        ),
        ("loglik", "log_lik;", "ll;", "log_lik is missing"),
    ):
        (folder / f"{name}.stan").write_text(GOOD.replace(old, new, 1))
        done = dpbayes("check", folder / f"{name}.stan", "--data", folder / "data.json")
        assert done.returncode == 2
        assert message in done.stderr
        assert f"{name}.stan" in done.stderr


def test_check_makes_up_the_records(folder):
    """By the schema, with the constants and the formula of the later fit."""
    mine = folder / "mine.stan"
    with_scale = GOOD.replace("vector[n] y;", "vector[n] y;\n  real prior_sd;").replace(
        "mu ~ normal(0, 2)", "mu ~ normal(0, prior_sd)"
    )
    mine.write_text(with_scale)
    (folder / "constants.json").write_text('{"prior_sd": 5}')
    given = ("--schema", folder / "schema.toml", "--formula", "y ~ age")
    constants = ("--constants", folder / "constants.json")
    done = dpbayes("check", mine, *given, *constants)
    assert done.returncode == 0, done.stderr
    assert "for all values of y" in done.stdout
    done = dpbayes("check", mine, *given)
    assert done.returncode == 2
    assert "declares data 'prior_sd', which was not given" in done.stderr
    # A record of another one's value: only running it shows this.
    mine.write_text(with_scale.replace("log_lik = ", "log_lik = y[1] - y[1] + 1e-3 * y[1] + "))
    done = dpbayes("check", mine, *given, *constants)
    assert done.returncode == 2
    for arguments, message in (
        ((), "give the schema and formula"),
        (given[:2], "give the schema and formula"),
        ((*given, "--private", "y"), "--private is for --data"),
        ((*given, "--data", numbers(folder)), "--data stands in place of --schema"),
        (("--schema", folder / "schema.toml", "--formula", "y ~ nothing"), "nothing"),
    ):
        done = dpbayes("check", mine, *arguments)
        assert done.returncode == 2
        assert message in done.stderr


def test_check_with_threads(folder):
    """What reduce_sum sums is the same with and without threads: only then is it summed twice."""
    wrong = BLOCKS.replace("y[first:last]", "y[1:(last - first + 1)]")
    y = np.random.default_rng(3).normal(size=9000).tolist()  # three blocks
    (folder / "data.json").write_text(json.dumps({"n": 9000, "y": y}))
    for name, text in (("blocks", BLOCKS), ("wrong", wrong)):
        (folder / f"{name}.stan").write_text(text)
    given = ("--data", folder / "data.json", "--threads", 2)
    done = dpbayes("check", folder / "blocks.stan", *given)
    assert done.returncode == 0, done.stderr
    assert "Not proved from its text" in done.stdout
    done = dpbayes("check", folder / "wrong.stan", *given)
    assert done.returncode == 2
    assert "with 2 threads target is another" in done.stderr


def test_synthesize_with_a_program(folder):
    (folder / "mine.stan").write_text(
        GOOD.replace("vector[n] y;", "vector[n] y;\n  real prior_sd;").replace(
            "mu ~ normal(0, 2)", "mu ~ normal(0, prior_sd)"
        )
    )
    (folder / "constants.json").write_text('{"prior_sd": 5}')
    # A clamp that is narrower than the terms makes chains fail to converge now and then.
    given = {"family": None, "program": folder / "mine.stan", "formula": "y ~ 1", "epsilon": 30}
    flags = options(folder, **given)
    done = dpbayes("synthesize", folder / "data.csv", *flags)
    assert done.returncode == 2
    assert "declares data 'prior_sd', which was not given" in done.stderr
    done = dpbayes(
        "synthesize", folder / "data.csv", *flags, "--constants", folder / "constants.json"
    )
    assert done.returncode == 0, done.stderr
    statement = (folder / "out" / "release" / "guarantee.json").read_text()
    assert "it was proved from the text of the user's Stan program" in statement


def test_synthesize_with_a_program_that_nothing_proves(folder):
    (folder / "mine.stan").write_text(UNPROVED)
    flags = options(folder, family=None, program=folder / "mine.stan", formula="y ~ 1")
    done = dpbayes("synthesize", folder / "data.csv", *flags)
    assert done.returncode == 2
    assert "is not proved to keep the contract: line 21" in done.stderr
    assert not (folder / "out").exists()
    done = dpbayes("synthesize", folder / "data.csv", *flags, "--allow-unproved")
    assert done.returncode == 0, done.stderr
    statement = (folder / "out" / "release" / "guarantee.json").read_text()
    assert "is the user's claim" in statement
    done = dpbayes("check", folder / "mine.stan", "--data", numbers(folder))
    assert done.returncode == 0, done.stderr
    assert "a strict release needs --allow-unproved" in done.stdout


def numbers(folder):
    """Six values of y, for `check`."""
    (folder / "six.json").write_text('{"n": 6, "y": [0.1, 0.5, -0.3, 1.2, 2.0, 0.0]}')
    return folder / "six.json"


def test_list_names_everything():
    done = dpbayes("list")
    assert done.returncode == 0
    for name in (*MECHANISMS, "beta", "ordinal", "embedded", "cmdstan"):
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("words", [(), ("synthesize",), ("demo",), ("check",), ("ledger",)])
def test_help(words):
    done = command.dpbayes(*words, "--help")
    assert done.returncode == 0
    assert "Usage: dpbayes" in done.stdout


def test_version():
    done = dpbayes("--version")
    assert (done.returncode, done.stdout) == (0, f"dpbayes {dpb.__version__}\n")


def test_quick_demo(tmp_path, monkeypatch):
    earnings, schema = demo.earnings()
    monkeypatch.setattr(demo, "earnings", lambda: (earnings.iloc[::4], schema))
    done = dpbayes("demo", "--quick", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for text in ("max-ECDF", "perturbed-histogram", "15th Q", "strict ε-DP for an exact draw"):
        assert text in done.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"confidential", "release"}
    assert {p.name for p in (tmp_path / "out" / "confidential").iterdir()} >= {
        "comparison.csv", "comparison-lipschitz.png", "comparison-density.png"
    }  # fmt: skip
    again = dpbayes("demo", "--quick", "--out", tmp_path / "out")
    assert again.returncode == 2
    assert "already holds a release" in again.stderr


def test_weaker_claims_have_to_be_accepted(folder):
    arguments = options(folder, mechanism="censored-weighted", chains=2, warmup=300, draws=100)
    refused = dpbayes("synthesize", folder / "data.csv", *arguments)
    assert refused.returncode == 2
    assert "--accept asymptotic" in refused.stderr
    assert not (folder / "out").exists()
    accepted = dpbayes("synthesize", folder / "data.csv", *arguments, "--accept", "asymptotic",
                       "--allow-nonconvergence")  # fmt: skip
    assert accepted.returncode == 0, accepted.stderr
    statement = json.loads((folder / "out" / "release" / "guarantee.json").read_text())
    assert (statement["basis"], statement["weights"]) == ("asymptotic", "confidential")


@pytest.mark.usefixtures("short_tuning")
def test_tune_then_weights_and_anchor_from_its_file(folder):
    """The period-to-period procedure: tune on old records, use the file on new ones."""
    records(300).iloc[150:].to_csv(folder / "old.csv", index=False)
    model = ("--schema", folder / "schema.toml", "--formula", "y ~ sex", "--family", "beta")
    tuned = dpbayes("tune", "--reference", folder / "old.csv", *model, "--target-epsilon", 2,
                    "--out", folder / "w.json", "--seed", 1)  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    tree = json.loads((folder / "w.json").read_text())
    assert 0 < tree["tuning"]["local_epsilon"] <= 2
    short = {"formula": "y ~ sex", "epsilon": 2, "warmup": 400, "draws": 250}
    for name, extra in (
        ("weights", {"mechanism": "censored-weighted", "weights": folder / "w.json"}),
        ("anchor", {"mechanism": "anchored", "anchor": folder / "w.json"}),
    ):
        out = folder / name
        done = dpbayes(
            "synthesize", folder / "data.csv", *options(folder, out=out, **short, **extra)
        )
        assert done.returncode == 0, done.stderr
        statement = json.loads((out / "release" / "guarantee.json").read_text())
        assert (statement["basis"], statement["epsilon"]) == ("strict", 2)
        assert "reference records behind weights or anchor are public" in statement["statement"]
    other = dpbayes("synthesize", folder / "data.csv",
                    *options(folder, mechanism="anchored", anchor=folder / "w.json"))  # fmt: skip
    assert other.returncode == 2
    assert "another formula" in other.stderr
    again = dpbayes("tune", "--reference", folder / "old.csv", *model, "--target-epsilon", 2,
                    "--out", folder / "w.json")  # fmt: skip
    assert again.returncode == 2
    assert "name a new file" in again.stderr


def test_many_data_sets_at_a_delta(folder):
    done = dpbayes(
        "synthesize", folder / "data.csv",
        *options(folder, epsilon=0.25, datasets=20, delta=1e-6, warmup=400, draws=250,
                 mechanism="anchored", anchor="none", adjacency="substitution"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    statement = json.loads((folder / "out" / "release" / "guarantee.json").read_text())
    assert statement["epsilon_substitution"] == pytest.approx(2.73, abs=0.01)
    assert (statement["adjacency"], statement["composition"]) == ("substitution", "zCDP")
    assert "δ = 1e-06" in done.stdout


def test_audit_exit_codes(folder):
    records(60).to_csv(folder / "data.csv", index=False)
    model = ("--schema", folder / "schema.toml", "--formula", "y ~ 1", "--family", "beta")
    strict = dpbayes("audit", folder / "data.csv", *model, "--mechanism", "censored",
                     "--epsilon", 1, "--candidates", 4)  # fmt: skip
    assert strict.returncode == 0, strict.stderr
    assert "not exceeded" in strict.stdout
    assert strict.stdout.splitlines()[1].startswith("Confidential: ")  # below what was read
    loose = dpbayes("audit", folder / "data.csv", *model, "--mechanism", "censored-weighted",
                    "--epsilon", 1, "--candidates", 4)  # fmt: skip
    assert loose.returncode == 1, loose.stderr
    assert "EXCEEDED" in loose.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": "-1,1"}, "narrower than the 6"),
        ({"window": "-9,1"}, "wider than the 6"),
        ({"window": "-1,x"}, "must be symmetric, negative, or two numbers"),
        ({"delta": 1.5}, "delta = 1.5 must lie in"),
        ({"adjacency": "swap"}, "adjacency = 'swap' must be one of"),
        ({"accept": "anything"}, "accept = 'anything' must be one of"),
        ({"mechanism": "anchored", "range": -1}, "range = -1.0 must be a finite number above 0"),
        ({"mechanism": "anchored", "anchor": "no.json"}, "No such file"),
        ({"mechanism": "censored-weighted", "weights": 2}, "alpha = 2.0 must lie in"),
        ({"engine": "candidates", "formula": "y ~ age + (1 | sex)"}, "takes 1 to 5 parameters"),
        ({"points": 100}, "--points is for --engine candidates"),
        ({"engine": "candidates", "points": 1}, "at least 2"),
    ],
)
def test_bad_settings_of_strict_mechanisms(folder, changes, message):
    done = dpbayes("synthesize", folder / "data.csv", *options(folder, **changes))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "out").exists()


def test_anchor_outside_the_parameter_space(folder):
    schema, path = dpb.Schema.from_toml(folder / "schema.toml"), folder / "w.json"
    settings = dpb.SamplerSettings(chains=2, warmup=200, draws=100, seed=1)
    model = dpb.Regression("y ~ sex", "beta")
    old = dpb.Synthesizer(schema, dpb.Unweighted(), model, settings=settings)
    others = records(300).iloc[150:]
    old.reference(others, allow_nonconvergence=True).save(path)
    tree = json.loads(path.read_text())
    tree["draws"]["lambda"] = [-5.0] * len(tree["draws"]["lambda"])
    path.write_text(json.dumps(tree))
    given = options(folder, formula="y ~ sex", mechanism="anchored", anchor=path)
    done = dpbayes("synthesize", folder / "data.csv", *given)
    assert done.returncode == 2
    assert "outside the parameter space" in done.stderr


@pytest.mark.parametrize("delta", ["nan", "-0.1", "1"])
def test_bad_reference_data_and_targets(folder, delta):
    (folder / "old.csv").write_text("y,age,sex\n1,30,f\n2,31,m\n")
    model = ("--schema", folder / "schema.toml", "--formula", "y ~ sex", "--family", "beta")
    done = dpbayes("tune", "--reference", folder / "old.csv", *model, "--target-epsilon", 2,
                   "--out", folder / "w.json")  # fmt: skip
    assert done.returncode == 2
    assert "column 'ill' of the schema is not in the data" in done.stderr
    bad = dpbayes("synthesize", folder / "data.csv", *options(folder, delta=delta))
    assert bad.returncode == 2
    assert "must lie in (0, 1)" in bad.stderr


def test_candidates_from_the_shell(folder):
    given = options(folder, formula="y ~ 1", mechanism="anchored", epsilon=1, engine="candidates",
                    points=2000, warmup=None, draws=None)  # fmt: skip
    done = dpbayes("synthesize", folder / "data.csv", *given)
    assert done.returncode == 0, done.stderr
    statement = json.loads((folder / "out" / "release" / "guarantee.json").read_text())
    assert statement["basis"] == "strict"
    assert any("no chain has to converge" in text for text in statement["assumptions"])


def test_the_package_itself_is_run_as_the_command():
    runs = [
        subprocess.run(
            [*words, "list"], capture_output=True, text=True, check=True, env=command.ENVIRONMENT
        ).stdout
        for words in ([command.COMMAND], [sys.executable, "-m", "dpbayes"])
    ]
    assert "censored-weighted" in runs[0]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("options", "settings", "engine", "expected"),
    [
        ({}, {}, "embedded", "marginals"),
        ({"formula": "earnings ~ age", "family": "gamma"}, {}, "embedded", "score"),
        ({"formula": "earnings ~ age", "family": "gamma"}, {"clip": 3.0}, "embedded", "score"),
        ({"formula": "earnings ~ age", "family": "gamma"}, {"clip": 0}, "embedded", "score"),
        ({"formula": "earnings ~ age", "family": "gamma"}, {"range": 2.0}, "embedded", "anchored"),
        ({"formula": "earnings ~ age", "family": "gamma"}, {}, "candidates", "anchored"),
        ({"formula": "earnings ~ (1 | region)", "family": "gamma"}, {}, "embedded", "score"),
        ({"formula": "earnings ~ (1 | region)", "family": "mixture"}, {}, "embedded", "anchored"),
        ({"formula": "earnings ~ nobody", "family": "gamma"}, {}, "embedded", "anchored"),
        ({"formula": "earnings ~ age", "program": Path("a.stan")}, {}, "embedded", "anchored"),
    ],
)
def test_the_default_mechanism(options, settings, engine, expected):
    """A default that could not be fitted would be a stumble; the model's own errors stay."""
    from dpbayes.cli.models import ModelOptions
    from dpbayes.cli.options import _usual

    model = ModelOptions(schema=Path("dpbayes/data/cps_earnings.toml"), **options)
    assert _usual(model, settings, engine) == expected
