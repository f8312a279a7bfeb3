"""Whole jobs with CmdStan: slopes, mixtures, survival, threads, and runs that are killed."""

import json
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest

from dpbayes.engines.cmdstan import CmdStanEngine
from dpbayes.stan.program import StanProgram
from tests.cli.command import dpbayes, options, records
from tests.cli.test_crashes_and_races import checkpoint_of, fitting, kill
from tests.cli.test_interrupts import ended, start
from tests.cmdstan import NEEDS_CMDSTAN
from tests.programs import BLOCKS, GOOD, write

pytestmark = [
    *NEEDS_CMDSTAN,
    pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc"),
]
NORMAL = StanProgram.for_family("normal")
GIVEN = {"formula": "y ~ 1", "family": "normal", "engine": "cmdstan", "warmup": 500, "draws": 500}
GROUPED = """
[columns.hours]
type = "continuous"
lower = 0
upper = 10
[columns.region]
type = "categorical"
levels = ["n", "e", "s"]
public = true
"""


def compiled(program, *, threads=False):
    """Compile a program before a command with a time limit needs it."""
    engine = CmdStanEngine()
    for several in {False, threads}:
        engine.executable(program, threads=several)


@pytest.fixture(autouse=True)
def normal_is_compiled():
    compiled(NORMAL)


@pytest.fixture
def grouped(folder):
    """The folder, with three regions in which the slope of age differs, and two kinds of hours."""
    table = records(300)
    rng = np.random.default_rng(1)
    region = rng.integers(0, 3, len(table))
    slope = np.array([-0.1, 0.0, 0.1])[region]
    table["y"] = np.clip(5 + slope * (table["age"] - 40) + rng.normal(0, 1, len(table)), 0.1, 9.9)
    table["hours"] = np.where(rng.random(len(table)) < 0.4, rng.normal(2, 0.5, len(table)),
                              rng.normal(7, 0.7, len(table))).clip(0.1, 9.9)  # fmt: skip
    table["region"] = np.array(["n", "e", "s"])[region]
    table.to_csv(folder / "data.csv", index=False)
    (folder / "schema.toml").write_text((folder / "schema.toml").read_text() + GROUPED)
    return folder


@pytest.mark.parametrize(
    ("formula", "family", "mechanism"),
    [
        ("y ~ age + (age | region)", "normal", "censored"),
        ("y ~ age + (1 | region)", "normal", "anchored"),
        ("hours ~ age", "mixture", "censored"),
        ("Surv(y, ill) ~ age", "survival_exponential", "censored"),
        ("ill ~ age + (1 | region)", "bernoulli", "censored"),
    ],
)
def test_a_release(grouped, formula, family, mechanism):
    compiled(StanProgram.for_family(family))
    changes = {**GIVEN, "formula": formula, "family": family, "mechanism": mechanism}
    done = dpbayes("synthesize", grouped / "data.csv", *options(grouped, **changes))
    assert done.returncode == 0, done.stderr
    release = grouped / "out" / "release"
    guarantee = json.loads((release / "guarantee.json").read_text())
    assert guarantee["basis"] == "strict"
    assert CmdStanEngine().version in json.dumps(guarantee)
    assert len(pd.read_csv(release / "synthetic_1.csv")) == 300


def test_slopes_are_those_of_the_default_engine(grouped):
    """Coefficients of an unweighted fit by both, within 5 Monte Carlo errors of 2,000 draws."""
    told = {}
    for engine in ("cmdstan", "embedded"):
        changes = {
            **GIVEN, "formula": "y ~ age + (age | region)", "mechanism": "unweighted",
            "epsilon": None, "accept": "none", "engine": engine, "out": grouped / engine,
        }  # fmt: skip
        done = dpbayes("synthesize", grouped / "data.csv", *options(grouped, **changes))
        assert done.returncode == 0, done.stderr
        import xarray as xr

        path = grouped / engine / "confidential" / "draws.nc"
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            told[engine] = tree["posterior"]["coefficient"].to_numpy().reshape(-1)
    sd = told["embedded"].std()
    assert abs(told["cmdstan"].mean() - told["embedded"].mean()) < 5 * sd * np.sqrt(2 / 400)
    assert 0.75 < told["cmdstan"].std() / sd < 1.33


def test_threads_of_a_bundled_and_a_users_program(folder):
    records(4500).to_csv(folder / "data.csv", index=False)
    compiled(NORMAL, threads=True)
    flags = options(folder, **GIVEN, threads=2)
    done = dpbayes("synthesize", folder / "data.csv", *flags)
    assert done.returncode == 0, done.stderr
    data = {"n": 9000, "y": list(np.random.default_rng(2).normal(size=9000))}
    (folder / "data.json").write_text(json.dumps(data))
    program = write(folder, BLOCKS)
    compiled(StanProgram.from_file(program), threads=True)
    check = ("check", program, "--data", folder / "data.json", "--engine", "cmdstan")
    assert dpbayes(*check, "--threads", 2).returncode == 0
    # A block that forgets to slice: one thread has one block and cannot show it.
    write(folder, BLOCKS.replace("y[first:last]", "y[1:(last - first + 1)]", 1))
    compiled(StanProgram.from_file(program), threads=True)
    refused = dpbayes(*check, "--threads", 2)
    assert refused.returncode == 2
    assert "with 2 threads target is another" in refused.stderr


def test_a_killed_fit_goes_on_and_its_chains_end(folder, tmp_path, monkeypatch):
    """SIGKILL after the first chain: no chain goes on without the process that wanted it."""
    records(600).to_csv(folder / "data.csv", index=False)
    changes = {**GIVEN, "draws": 2000, "chains": 6, "warmup": 2000}
    with fitting(folder, **changes) as process:
        kill(process)
    kept = len(list(checkpoint_of(folder).glob("*.nc")))
    assert 1 <= kept < 6
    done = dpbayes("synthesize", folder / "data.csv", *options(folder, **changes))
    assert done.returncode == 0, done.stderr
    assert f"Went on with {kept} chains of an earlier run" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_chains(folder, tmp_path, number):
    records(600).to_csv(folder / "data.csv", index=False)
    (tmp_path / "tmp").mkdir()
    flags = options(folder, **{**GIVEN, "draws": 20_000})
    process = start("synthesize", folder / "data.csv", *flags, TMPDIR=str(tmp_path / "tmp"))
    begun = []

    def ready():
        begun.extend((tmp_path / "tmp").glob("*/output-1.csv"))
        time.sleep(0.2)
        return bool(begun)

    assert ended(process, number, ready)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (folder / "out" / "release").exists()


def test_check_of_a_users_program(folder):
    (folder / "data.json").write_text(json.dumps({"n": 5, "y": [1, 2, 3.5, -1, 0]}))
    program = write(folder, GOOD)
    compiled(StanProgram.from_file(program))
    check = ("check", program, "--data", folder / "data.json")
    done = dpbayes(*check, "--engine", "cmdstan")
    assert done.returncode == 0, done.stderr
    assert "keeps the contract" in done.stdout
