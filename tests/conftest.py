"""Fixtures shared by all tests."""

from __future__ import annotations

import signal

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

import dpbayes as dpb
from dpbayes.core import interrupts
from dpbayes.engines.draws import make_draws
from dpbayes.engines.recorded import RecordedEngine
from dpbayes.mechanisms import MECHANISMS
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import StanProgram
from tests.cmdstan import NO_CMDSTAN

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")
threadpool_limits(1, user_api="blas")  # as `fit` and `sample` do: workers would wait for each other


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): tests for one worker of pytest-xdist")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of a shell's `&`
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one program with CmdStan go to one worker, so that none waits for a compiler."""
    for item in items:
        if item.get_closest_marker("cmdstan"):
            parameters = getattr(item, "callspec", None)
            family = parameters.params.get("family", "normal") if parameters else "normal"
            program = StanProgram.for_family(family).name if family in FAMILIES else family
            item.add_marker(pytest.mark.xdist_group(f"cmdstan-{program}"))


def pytest_report_header() -> str:
    return f"tests of the cmdstan engine are skipped: {NO_CMDSTAN}" if NO_CMDSTAN else ""


@pytest.fixture(autouse=True)
def own_handlers_of_signals():
    """A test that listens for signals, as commands do, leaves no note of one to the next."""
    numbers = (*interrupts.SIGNALS, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def schema() -> dpb.Schema:
    """One column of every type, with and without public columns."""
    return dpb.Schema.from_dict(
        {
            "columns": {
                "y": {"type": "continuous", "lower": 0, "upper": 10},
                "visits": {"type": "count", "upper": 1000},
                "ill": {"type": "binary", "levels": ["no", "yes"]},
                "party": {"type": "categorical", "levels": ["a", "b", "c"]},
                "health": {"type": "ordinal", "levels": ["bad", "fair", "good", "best"]},
                "wage": {"type": "continuous", "lower": 0, "upper": 10, "atoms": [0, 2.5]},
                "rooms": {"type": "count", "lower": 1, "upper": 30},
                "age": {"type": "count", "lower": 20, "upper": 60, "public": True},
                "sex": {"type": "categorical", "levels": ["f", "m"], "public": True},
                "region": {"type": "categorical", "levels": ["n", "e", "s"], "public": True},
            }
        }
    )


@pytest.fixture
def records() -> pd.DataFrame:
    """60 records that fit ``schema``."""
    return make_records(60)


@pytest.fixture
def ledger(tmp_path):
    """In SQLite, with a budget of 1 for one data set."""
    made = dpb.Ledger.create(str(tmp_path / "ledger.db"))
    made.add_dataset("cps", 1.0)
    return made


@pytest.fixture
def no_report(monkeypatch):
    """Releases without the figures of a confidential report, which take most of their time."""
    monkeypatch.setattr("dpbayes.publication.gate._reported", lambda *_: None)


@pytest.fixture
def registries():
    """Mechanisms and families that a test enters are forgotten after it."""
    before = [(registry, dict(registry)) for registry in (MECHANISMS, FAMILIES)]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


def make_records(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "y": rng.uniform(0.5, 9.5, n),
            "visits": rng.poisson(4, n),
            "ill": rng.choice(["no", "yes"], n),
            "party": rng.choice(["a", "b", "c"], n),
            "health": rng.choice(["bad", "fair", "good", "best"], n),
            "age": rng.integers(20, 61, n),
            "sex": rng.choice(["f", "m"], n),
            "region": rng.choice(["n", "e", "s"], n),
            "wage": np.where(rng.random(n) < 0.4, rng.choice([0, 2.5], n), rng.uniform(0.5, 9, n)),
            "rooms": 1 + rng.poisson(2, n),
        }
    )


def recording(log_lik: np.ndarray, chains: int = 2, seed: int = 0) -> object:
    """A converged recording whose log_lik is given: shape (S, n), S split over the chains."""
    rng = np.random.default_rng(seed)
    draws = log_lik.shape[0] // chains
    stats = {
        "lp__": rng.normal(size=(chains, draws)),
        "accept_stat__": np.full((chains, draws), 0.9),
        "stepsize__": np.full((chains, draws), 0.5),
        "treedepth__": np.full((chains, draws), 2),
        "n_leapfrog__": np.full((chains, draws), 3),
        "divergent__": np.zeros((chains, draws)),
        "energy__": rng.normal(size=(chains, draws)),
    }
    tree = make_draws({"intercept": rng.normal(size=(chains, draws))}, stats)
    shaped = log_lik.reshape(chains, draws, -1)
    from arviz_base import from_dict

    extra = from_dict(
        {
            "log_likelihood": {"log_lik": shaped},
            "posterior_predictive": {"y_rep": rng.uniform(0.1, 0.9, shaped.shape)},
        }
    )
    for group in extra.children:
        tree[group] = extra[group]
    return tree


@pytest.fixture
def recorded_engine():
    """Build a RecordedEngine from arrays of log-likelihoods."""
    return lambda *arrays: RecordedEngine(*(recording(a, seed=i) for i, a in enumerate(arrays)))
