"""CmdStan itself: what it writes, what it compiles, and what stops it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from conftest import family_data

import dpbayes.engines.cmdstan as engine_module
from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.engines import SamplerSettings
from dpbayes.engines.agreement import largest_gap
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.engines.cmdstan import CmdStanEngine
from dpbayes.engines.contract import check_contract, contract_defaults
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.program import StanProgram
from tests.programs import GOOD, write

SHORT = SamplerSettings(chains=2, warmup=100, draws=50, seed=3)
# Of which the offset is an expression: Stan Math 4.9.0 writes freed memory for `shifted`.
SHIFTED = GOOD.replace(
    "  real mu;", "  vector[2] z;\n  vector<offset=shift * z, multiplier=0.5>[2] shifted;"
).replace("mu ~ normal(0, 2);", "z ~ normal(0, 1);\n  shifted ~ normal(0, 2);")
SHIFTED = SHIFTED.replace("  vector[n] y;", "  vector[n] y;\n  matrix[2, 2] shift;")
SHIFTED = re.sub(r"\bmu\b", "sum(shifted)", SHIFTED)
WRONG = r"CmdStan 2\.\d+\.\d+\S* has written draws that are not those it sampled"


def unrepaired():
    """The bundled normal program with the offset as an expression, as it was for a while."""
    text = StanProgram.for_family("normal").text
    offset = re.search(r"offset=slope_offset\(\s*slope_part,\s*(effects_of\(.*?\))\),", text, re.S)
    return text.replace(offset[0], f"offset=-slope_part * {offset[1]}[1:Q],")


def data_for(name):
    if name == "bundled":
        return family_data("normal", 2, "terms", 40)
    y = np.random.default_rng(1).normal(size=30)
    return {"n": 30, "y": y, "shift": np.array([[3.0, 1.0], [-2.0, 5.0]]), **contract_defaults(30)}


def test_a_unit_vector_is_refused_before_it_is_sampled(cmdstan, tmp_path):
    """What is written has lost its length, which the chain's density is of."""
    text = GOOD.replace("  real mu;", "  real mu;\n  unit_vector[2] u;")
    with pytest.raises(ProgramError, match="line 16: the draws of a unit_vector"):
        cmdstan.compile(StanProgram.from_file(write(tmp_path, text)))


@pytest.mark.parametrize("name", ["user", "bundled"])
def test_draws_that_were_not_sampled_are_refused(cmdstan, tmp_path, name):
    """What is written from freed memory hangs on what lies there: it is refused, or it is right.

    Newer releases of CmdStan write what they sampled.
    """
    path = write(tmp_path, {"user": SHIFTED, "bundled": unrepaired()}[name])
    program, data = StanProgram.from_file(path), data_for(name)
    bound = cmdstan.compile(program).bind(data)
    ours = EmbeddedEngine().compile(program).bind(data)
    outcomes = []
    for seed in range(6):
        try:
            draws = bound.sample(replace(SHORT, seed=seed))
        except EngineError as error:  # such values can also keep a chain from starting
            outcomes.append("refused" if re.search(WRONG, str(error)) else "failed")
            continue
        reported = draws["sample_stats"]["lp"].to_numpy().reshape(-1)
        gaps = ours.log_prob(draws) - reported
        outcomes.append("right" if np.ptp(gaps) < 1e-2 else "wrong")
    assert "wrong" not in outcomes
    if cmdstan.version == "2.35.0":
        assert {"refused", "failed"} & {*outcomes}


def test_the_embedded_engine_writes_what_it_sampled(tmp_path):
    program = StanProgram.from_file(write(tmp_path, SHIFTED))
    bound = EmbeddedEngine().compile(program).bind(data_for("user"))
    draws = bound.sample(SHORT)
    reported = draws["sample_stats"]["lp"].to_numpy().reshape(-1)
    assert largest_gap(reported, bound.log_prob(draws)) < 1e-6


@pytest.fixture
def tampered(monkeypatch):
    """What CmdStan has written as the intercept is another number when it is read."""
    read = engine_module.read_table

    def shifted(path):
        names, values = read(path)
        if "intercept" in names:
            values[:, names.index("intercept")] *= 1.01
        return names, values

    monkeypatch.setattr(engine_module, "read_table", shifted)


@pytest.mark.parametrize("alone", [False, True], ids=["together", "one by one"])
def test_nothing_is_kept_of_a_chain_that_is_refused(
    cmdstan, bind, tampered, monkeypatch, tmp_path, alone
):
    bound, _ = bind(cmdstan, "normal", K=1)
    checkpoint = Checkpoint(tmp_path / "chains")
    with pytest.raises(EngineError, match=WRONG) as caught:
        checkpoint.sample(bound, SHORT) if alone else bound.sample(SHORT)
    assert "differ by up to" in caught.value.said
    assert not list(tmp_path.rglob("*.nc"))
    monkeypatch.undo()
    checkpoint.sample(bound, SHORT)
    assert checkpoint.reused == 0


def test_a_program_that_the_embedded_engine_does_not_know(cmdstan, bind, request, monkeypatch):
    """It is checked by CmdStan's own density."""

    def unknown(*_):
        raise ProgramError("not known")

    monkeypatch.setattr(EmbeddedEngine, "compile", unknown)
    bound, _ = bind(CmdStanEngine(), "normal", K=1)  # an engine that has compiled nothing yet
    assert np.isfinite(bound.sample(SHORT)["posterior"]["intercept"]).all()
    request.getfixturevalue("tampered")
    with pytest.raises(EngineError, match="by the same program"):
        bound.sample(SHORT)


def test_the_version_has_all_its_numbers(cmdstan):
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", cmdstan.versions()["cmdstan"])


# Compiling. `build` stands for cmdstanpy's compiler where a real one would only take longer.


def stub(source, cpp_options=None):
    del cpp_options
    built = source.with_suffix("")
    built.write_text("a program")
    built.chmod(0o700)
    return str(built)


def test_two_that_want_one_program_compile_it_once(cmdstan, monkeypatch, tmp_path):
    compiled = []

    def slow(source, cpp_options=None):
        compiled.append(source)
        time.sleep(0.5)
        return stub(source)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("cmdstanpy.compile_stan_file", slow)
    program = StanProgram.from_file(write(tmp_path, GOOD))
    engines = [CmdStanEngine() for _ in range(3)]
    paths = []
    threads = [
        threading.Thread(target=lambda e=e: paths.append(e.executable(program, threads=False)))
        for e in engines
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1
    assert len(set(paths)) == 1
    assert len(paths) == 3


COMPILE = """
import sys
from dpbayes.engines.cmdstan import CmdStanEngine
from dpbayes.stan.program import StanProgram
print("begins", flush=True)
print(CmdStanEngine().executable(StanProgram.from_file(sys.argv[1]), threads=False), flush=True)
"""


def compiling(path, cache):
    process = subprocess.Popen(
        [sys.executable, "-c", COMPILE, str(path)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)}, start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begins\n"
    return process


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupted_compilation_leaves_nothing_broken(cmdstan, tmp_path):
    """Killed in the middle; then two processes at once compile the program, with one compiler."""
    path, cache = write(tmp_path, GOOD), tmp_path / "cache"
    first = compiling(path, cache)
    until = time.monotonic() + 60
    while not list(cache.rglob("compiling-*/model.hpp")) and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert list(cache.rglob("compiling-*"))
    assert not list(cache.rglob("model"))
    both = [compiling(path, cache) for _ in range(2)]
    said = [process.communicate()[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    assert not list(cache.rglob("compiling-*"))
    folder = os.path.dirname(said[0])
    assert sorted(os.listdir(folder)) == [".lock", "model", "model.stan"]
    bound = cmdstan.compile(StanProgram.from_file(path))
    assert bound.executable(threads=False) != said[0]  # of another cache


def test_threads_give_the_same_posterior_density(cmdstan, bind):
    """lp of the chains' own draws in two threads, by one thread and by the embedded engine."""
    bound, data = bind(cmdstan, "normal", K=2, J="terms", n=10_000, clip_lower=-2.0, clip_upper=2.0)
    draws = bound.sample(replace(SHORT, warmup=20, draws=5, threads_per_chain=2))
    reported = draws["sample_stats"]["lp"].to_numpy().reshape(-1)
    ours = EmbeddedEngine().compile(StanProgram.for_family("normal")).bind(data)
    for density in (bound.log_prob(draws), ours.log_prob(draws)):
        assert largest_gap(reported, density) < 1e-5


@pytest.mark.parametrize("wrong", [False, True])
def test_statements_that_cmdstan_alone_takes_pass_the_check(cmdstan, tmp_path, wrong):
    """The embedded engine gives gradients elsewhere. A shift by a parameter stops one record."""
    half = "[[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5]'"
    alone = f"real alone = hmm_marginal([[mu, 0], [0, 1]], {half});"
    alone = f"transformed parameters {{\n  {alone}\n}}\nmodel {{\n"
    text = GOOD.replace("model {\n", alone, 1)
    if wrong:
        text = text.replace("square(y - mu)", "square(log1p(y - mu))")
    program = StanProgram.from_file(write(tmp_path, text))
    with pytest.raises(ProgramError, match="embedded engine cannot take"):
        check_contract(program, EmbeddedEngine().compile(program), data_for("user"))
    model = cmdstan.compile(program)
    data = {"n": 30, "y": np.random.default_rng(1).normal(size=30)}
    if wrong:
        with pytest.raises(ProgramError, match="one record would make parameters impossible"):
            check_contract(program, model, data)
    else:
        assert check_contract(program, model, data).passed
