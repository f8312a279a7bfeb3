"""Audits find bugs that break epsilon, and accuse no mechanism that is honest.

The bugs are listed here and planted by ``plants.py``. Posteriors are examined by ``audit``: exact
log ratios on public points, so that it has no error rate beyond rounding. Other mechanisms are
examined by ``audit_outputs``, whose lower bounds exceed the true epsilon with a stated probability.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.evaluate import audit as auditing
from dpbayes.evaluate.audit_outputs import audit_outputs
from dpbayes.privacy.guarantee import ADJACENCIES
from tests.statistical import plants

pytestmark = pytest.mark.statistical

POINTS = 200  # a ratio on any points can refute a claim
SETTINGS = dpb.SamplerSettings(chains=2, warmup=100, draws=50, seed=1)
FEW = CandidatesEngine(100)
RNG = np.random.default_rng(3)
SCHEMA = dpb.Schema.from_dict(
    {
        "rows": 60,
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 1},
            "ill": {"type": "binary", "levels": ["no", "yes"]},
        },
    }
)
# Alike, so that one record at the end of the domain moves what is estimated from all of them.
RECORDS = pd.DataFrame({"y": RNG.beta(30, 30, 60), "ill": RNG.choice(["no", "yes"], 60)})
MANY = pd.DataFrame({"y": 0.5, "ill": ["no"] * 1350 + ["yes"] * 150})
BETA, BERNOULLI = dpb.Regression("y ~ 1", "beta"), dpb.Regression("ill ~ 1", "bernoulli")
CENSORED, ANCHORED = dpb.Censored(0.5), dpb.Anchored(0.5, "two-stage")
AT_THE_MODE = dpb.Censored(0.5, window=(0.9, 1.4))  # where terms of ``plants.PROGRAMS`` are


class Bug(NamedTuple):
    """``model`` may be the name of one of ``plants.PROGRAMS``; ``points`` are enough to see it."""

    why: str
    plant: Callable[..., None]
    mechanism: Any
    model: Any = BETA
    engine: Any = "embedded"
    records: pd.DataFrame = RECORDS
    points: int = POINTS


OF_POSTERIORS = {
    "forgotten clamp": Bug("a log-likelihood has no bound", plants.no_clamp, CENSORED),
    "forgotten clamp, anchored": Bug("nor has its ratio to an anchor's", plants.no_clamp, ANCHORED),
    "upper end only": Bug("terms near 0 and 1 have no lower bound", plants.half_a_clamp, CENSORED),
    "clamp of twice the width": Bug("one record moves 2 epsilon", plants.wide_clamp, CENSORED),
    "clamp of twice the width among candidates": Bug(
        "as for chains", plants.wide_clamp, CENSORED, BERNOULLI, FEW
    ),
    "clamp that follows the records": Bug(
        "one record moves the terms of all", plants.clamp_by_records, CENSORED, points=512
    ),
    "second_range that follows the records": Bug(
        "one record tempers all", plants.rows_and_anchor, dpb.Anchored(1.0, "two-stage"), BERNOULLI,
        records=MANY,
    ),
    "candidates that follow the records": Bug(
        "points tell which table they were made for", plants.rows, ANCHORED, BERNOULLI, FEW
    ),
    "records added twice": Bug("a record has two terms", plants.added_twice, CENSORED),
    "posterior mean as anchor": Bug("nobody has paid for it", plants.own_anchor, ANCHORED),
    "all of epsilon after the anchor": Bug(
        "its stage comes on top", plants.free_anchor, dpb.Anchored(0.5, "two-stage", share=0.5),
        points=512,
    ),
    "weights by the records": Bug(
        "the riskiest record sets everybody's weight", plants.own_weights,
        dpb.CensoredWeighted(0.5, weights=dpb.ConstantWeights(0.5)),
    ),
    "score without tempering": Bug(
        "its range is 2.7", plants.no_tempering, dpb.BetaDivergence(0.5), BERNOULLI
    ),
    "outcome on its own range": Bug("the largest sets the unit", plants.own_scale, CENSORED),
    "prior by the records": Bug("its sd follows an outlier", plants.own_prior, CENSORED),
    "a program of y / max(y)": Bug(
        "the largest record is in every term", plants.unchecked, AT_THE_MODE, "of_max"
    ),
    "a program of y - mean(y)": Bug(
        "each record is in every term", plants.unchecked, AT_THE_MODE, "of_mean"
    ),
    "a program whose prior reads n": Bug(
        "n tells who is in", plants.unchecked, AT_THE_MODE, "prior_of_n"
    ),
}  # fmt: skip

ILL, KIDS = {"type": "binary"}, {"type": "count", "upper": 3}
PAY = {"type": "continuous", "lower": 0, "upper": 1}


def table(rows=6, n=6, **columns):
    """A schema and records that are all alike: (declaration, value) by column."""
    declared = {name: column for name, (column, _) in columns.items()}
    schema = dpb.Schema.from_dict({"rows": rows, "columns": declared})
    return schema, pd.DataFrame({name: [value] * n for name, (_, value) in columns.items()})


ONE, TWO = table(ill=(ILL, 0)), table(ill=(ILL, 0), kids=(KIDS, 1))
LOW, MIDDLE = table(pay=(PAY, 0.0)), table(pay=(PAY, 0.5))
SEVEN = table(7, 7, pay=(PAY, 0.0))
LONG = table(60, 1, ill=(ILL, 0))  # more rows are declared than there are records


class TableBug(NamedTuple):
    """``runs`` on each table are enough to see it."""

    why: str
    plant: Callable[..., None]
    mechanism: Any
    table: Any = ONE
    runs: int = 100


OF_TABLES = {
    "noise of half the scale": TableBug("it costs 2 epsilon", plants.half_noise, dpb.Laplace(1)),
    "statistics without noise": TableBug(
        "they follow from the records", plants.no_noise, dpb.Modips(1, "multinomial")
    ),
    "the same noise each time": TableBug(
        "an output belongs to one table", plants.one_seed, dpb.Laplace(1)
    ),
    "noise in occupied cells only": TableBug(
        "0 says that nobody is there", plants.noise_where_someone_is, dpb.PerturbedHistogram(1)
    ),
    "one cell for a changed record": TableBug(
        "it leaves one and enters another: 2 epsilon", plants.one_cell,
        dpb.Laplace(1, adjacency="substitution"), runs=200,
    ),
    "truncation for free": TableBug(
        "what is cut off follows the count: 1.21", plants.free_truncation,
        dpb.Laplace(1, out_of_range="truncate"), runs=600,
    ),
    "all of epsilon for each statistic": TableBug(
        "two compose to 2 epsilon", plants.each_statistic, dpb.Modips(1, "normal"), LOW, 200
    ),
    "all of epsilon for both tables": TableBug(
        "two compose to 2 epsilon", plants.both_tables, dpb.PerturbedHistogram(1), TWO, 200
    ),
    "copies of a bootstrap for free": TableBug(
        "k copies cost k epsilon", plants.free_copies, dpb.EmpiricalBootstrap(2), LONG, 400
    ),
    "bins that follow the records": TableBug(
        "their number is published", plants.own_bins, dpb.Laplace(1, bins="log"), SEVEN
    ),
    "urn filled for the records, not the rows": TableBug(
        "60 draws from balls for 1", plants.own_balls, dpb.MultinomialDirichlet(1), LONG, 200
    ),
    "urn filled for a single row": TableBug(
        "each of 60 costs epsilon", plants.balls_for_one, dpb.SmoothedHistogram(1), LONG
    ),
    "sums on the range of the records": TableBug(
        "an outlier sets the unit", plants.own_range, dpb.Modips(1, "normal"), MIDDLE
    ),
    "utility that is not cut": TableBug(
        "its range is far above 2 A", plants.no_cut,
        dpb.Modips(1, "bernoulli", draw="sdd", bound=0.1),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_points(monkeypatch):
    monkeypatch.setattr(auditing, "POINTS", POINTS)
    monkeypatch.setattr(auditing, "FEW", 64)
    monkeypatch.setattr(auditing, "FINALISTS", 1)  # besides the ends of the domain


def program(tmp_path, name):
    path = tmp_path / f"{name}.stan"
    path.write_text(plants.PROGRAMS[name])
    return dpb.Program(path, "y ~ 1")


@pytest.mark.parametrize("name", OF_POSTERIORS)
def test_a_bug_of_a_posterior_is_found(name, monkeypatch, tmp_path):
    bug, own = OF_POSTERIORS[name], isinstance(OF_POSTERIORS[name].model, str)
    monkeypatch.setattr(auditing, "POINTS", bug.points)

    def examined(model):
        made = dpb.Synthesizer(
            SCHEMA, bug.mechanism, model, engine=bug.engine, settings=SETTINGS, allow_unproved=own
        )
        fit = made.fit(bug.records, allow_nonconvergence=True)
        return auditing.audit(fit, candidates=8)

    sound = examined(program(tmp_path, "sound") if own else bug.model)
    assert not sound.violated, str(sound)
    bug.plant(monkeypatch)
    wrong = examined(program(tmp_path, bug.model) if own else bug.model)
    assert exceeds(wrong, sound.guarantee), str(wrong)


@pytest.mark.parametrize("name", OF_TABLES)
def test_a_bug_of_tables_is_found(name, monkeypatch):
    """A bug is missed, or what is sound accused, by chance: once in 20 at most, seeds are fixed."""
    bug = OF_TABLES[name]

    def examined():
        schema, records = bug.table
        return audit_outputs(dpb.Synthesizer(schema, bug.mechanism), records, bug.runs)

    sound = examined()
    assert not sound.violated, str(sound)
    bug.plant(monkeypatch)
    wrong = examined()
    assert exceeds(wrong, sound.guarantee), str(wrong)


def exceeds(found, claim):
    """Of the claim that was made before the bug was planted."""
    return found.add_remove > claim.epsilon or found.substitution > claim.epsilon_substitution


# Two hundred seeds.

POSTERIOR_SEEDS, SEEDS, SLOW_SEEDS, ERROR = 43, 10, 3, 0.01
COLUMNS = {
    "y": {"type": "continuous", "lower": 0, "upper": 1},
    "ill": {"type": "binary", "levels": ["no", "yes"]},
    "kids": {"type": "count", "upper": 9},
    "party": {"type": "categorical", "levels": ["a", "b", "c"]},
}
FAMILIES = [("y", "beta"), ("y", "normal"), ("ill", "bernoulli"), ("kids", "poisson"),
            ("party", "categorical")]  # fmt: skip


SEX = {"type": "categorical", "levels": ["f", "m"], "public": True}


def random_posterior(rng):
    """A strict mechanism, a family, and records in any number; 30 are declared, or n is public."""
    outcome, family = FAMILIES[rng.integers(len(FAMILIES))]
    epsilon, adjacency = float(np.exp(rng.uniform(-2, 2))), str(rng.choice(ADJACENCIES))
    makers = [
        lambda **o: dpb.Censored(epsilon, **o),
        lambda **o: dpb.CensoredWeighted(epsilon, weights=dpb.ConstantWeights(0.3), **o),
        lambda **o: dpb.Anchored(epsilon, "none", **o),
        lambda **o: dpb.Anchored(epsilon, "two-stage", share=0.4, **o),
        lambda **o: dpb.ClampedModips(epsilon, **o),
        lambda **o: dpb.BetaDivergence(epsilon, **o),
    ]
    kind = rng.integers(len(makers) - (COLUMNS[outcome]["type"] == "continuous"))
    n = int(rng.integers(2, 61))
    values = {
        "y": rng.beta(*rng.uniform(0.5, 9, 2), n),
        "ill": rng.choice(["no", "yes"], n, p=[0.9, 0.1]),
        "kids": rng.poisson(rng.uniform(0, 5), n).clip(0, 9),
        "party": rng.choice(["a", "b", "c"], n, p=[0.8, 0.2, 0]),
    }
    columns, records = {outcome: COLUMNS[outcome]}, pd.DataFrame({outcome: values[outcome]})
    rows, covariate, engine = 30, "1", ["embedded", FEW][rng.random() < 0.15]
    if engine == "embedded" and rng.random() < 0.3:
        rows, covariate, columns["sex"] = "public", "sex", SEX
        records["sex"] = rng.choice(["f", "m"], n)
    made = dpb.Synthesizer(
        dpb.Schema.from_dict({"rows": rows, "columns": columns}),
        makers[kind](adjacency=adjacency),
        dpb.Regression(f"{outcome} ~ {covariate}", family),
        engine=engine,
        settings=dpb.SamplerSettings(chains=2, warmup=50, draws=20, seed=1),
    )
    return made.fit(records, allow_nonconvergence=True)


@pytest.mark.parametrize("seed", range(POSTERIOR_SEEDS))
def test_no_posterior_is_accused(seed):
    """Without an error rate: exact ratios, given any anchor and chains that need not converge."""
    found = auditing.audit(random_posterior(np.random.default_rng(seed)), candidates=6, seed=seed)
    assert not found.violated, str(found)


GRID = {"model": "bernoulli", "bound": 2.0, "cells": 5, "samples": 50}
HONEST = {
    "laplace": (dpb.Laplace, "ill", {}),
    "laplace truncate": (dpb.Laplace, "ill", {"out_of_range": "truncate"}),
    "laplace zero": (dpb.Laplace, "kids", {"out_of_range": "zero", "bins": 3}),
    "histogram": (dpb.PerturbedHistogram, "ill", {}),
    "bootstrap": (dpb.EmpiricalBootstrap, "ill", {}),
    "one bootstrap": (dpb.EmpiricalBootstrap, "ill", {"resample": False}),
    "beta-binomial": (dpb.BetaBinomial, "ill", {}),
    "beta-binomial-mr": (dpb.BetaBinomialMR, "ill", {}),
    "bernoulli": (dpb.Modips, "ill", {"model": "bernoulli"}),
    "bernoulli truncate": (
        dpb.Modips, "ill", {"model": "bernoulli", "out_of_range": "truncate"}),
    "poisson-gamma": (dpb.Modips, "kids", {"model": "poisson-gamma"}),
    "normal": (dpb.Modips, "y", {"model": "normal"}),
    "multinomial": (dpb.Modips, "ill", {"model": "multinomial"}),
}  # fmt: skip
SLOW = {
    "multinomial-dirichlet": (dpb.MultinomialDirichlet, "party", {}),
    "smoothed-histogram": (dpb.SmoothedHistogram, "party", {}),
    "histogram in cells": (dpb.PerturbedHistogram, "ill kids", {"bins": 2}),
    "glom": (dpb.Modips, "ill y", {"model": "glom"}),
    "slomag": (dpb.Modips, "ill y", {"model": "slomag"}),
    "sequential": (dpb.Modips, "ill kids", {"model": "sequential"}),
    "sdd": (dpb.Modips, "ill", {"draw": "sdd", **GRID}),
    "sdd-mc": (dpb.Modips, "ill", {"draw": "sdd-mc", **GRID}),
    "sphc": (dpb.Modips, "ill", {"draw": "sphc", **GRID}),
}  # fmt: skip


OF_MECHANISMS = len(HONEST) * SEEDS + len(SLOW) * SLOW_SEEDS


@pytest.mark.parametrize("name", [*HONEST, *SLOW])
def test_nothing_else_is_accused(name):
    """All of them together fail by chance with probability 0.01 at most."""
    kind, columns, settings = {**HONEST, **SLOW}[name]
    for seed in range(SLOW_SEEDS if name in SLOW else SEEDS):
        rng = np.random.default_rng(seed)
        rows = ["public", 6][rng.integers(2)]
        schema = dpb.Schema.from_dict(
            {"rows": rows, "columns": {c: COLUMNS[c] for c in columns.split()}}
        )
        n = int(rng.integers(1, 9))
        values = {"y": rng.random(n), "ill": rng.choice(["no", "yes"], n, p=[0.9, 0.1]),
                  "kids": rng.integers(0, 4, n), "party": ["a"] * n}  # fmt: skip
        epsilon, adjacency = float(np.exp(rng.uniform(-1, 1))), str(rng.choice(ADJACENCIES))
        made = dpb.Synthesizer(schema, kind(epsilon, adjacency=adjacency, **settings))
        records = pd.DataFrame({c: values[c] for c in columns.split()})
        found = audit_outputs(made, records, 100, seed, ERROR / OF_MECHANISMS)
        assert not found.violated, str(found)


def test_there_are_two_hundred():
    assert POSTERIOR_SEEDS + OF_MECHANISMS == 200
    assert len(OF_POSTERIORS) + len(OF_TABLES) >= 15


def test_candidates_among_public_covariates_are_not_accused():
    schema = dpb.Schema.from_dict({"columns": {"ill": COLUMNS["ill"], "sex": SEX}})
    records = RECORDS[["ill"]].assign(sex=np.random.default_rng(1).choice(["f", "m"], len(RECORDS)))
    model = dpb.Regression("ill ~ sex", "bernoulli")
    made = dpb.Synthesizer(schema, ANCHORED, model, engine=FEW, settings=SETTINGS)
    found = auditing.audit(made.fit(records, allow_nonconvergence=True), candidates=6)
    assert not found.violated, str(found)
