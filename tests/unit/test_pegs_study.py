"""The study of Park & Ghosh: its records, its measures, and how orderings are judged."""

import numpy as np
import pandas as pd
import pytest

from dpbayes.mechanisms import Pegs, PegsReset, PerturbedImputation
from dpbayes.mechanisms.pegs.gibbs import layout_of
from dpbayes.mechanisms.pegs.public import PublicRecords
from dpbayes.studies.park_ghosh import chains, maps, study
from dpbayes.studies.park_ghosh.discharges import COMBINATIONS, SCHEMA, SIZES, discharges
from dpbayes.studies.park_ghosh.study import ORDERINGS


def test_discharges_have_the_columns_of_the_paper():
    data = discharges(20_000, np.random.default_rng(1))
    SCHEMA.validate(data)
    assert list(data) == list(SIZES)
    # The paper says 2·10^12 of the product that it prints.
    assert COMBINATIONS == 1_018_967_040_000
    found = maps.regressions(data)
    assert (found["linear"][1:] > 0).all()
    assert (found["logistic"][1:] > 0).all()


def test_regressions_are_at_their_optimum():
    data = discharges(3000, np.random.default_rng(2))
    found = maps.regressions(data)
    x = np.column_stack(
        [np.ones(3000), data["age"], data["sev"] == 1, data["sev"] == 2, data["cat"], data["los"]]
    ).astype(float)
    charge = data["charge"].to_numpy(dtype=float)
    assert x.T @ (charge - x @ found["linear"]) == pytest.approx(0, abs=1e-6)
    p = 1 / (1 + np.exp(-x @ found["logistic"]))
    slope = x.T @ ((charge >= maps.LOW) - p) - 1e-3 * found["logistic"]
    assert slope == pytest.approx(0, abs=0.05)


def test_another_epsilon_is_that_of_another_mechanism(monkeypatch):
    monkeypatch.setattr(maps, "SYNTHETIC", 50)
    reference = PublicRecords(discharges(200, np.random.default_rng(3)))
    records = SCHEMA.validate(discharges(300, np.random.default_rng(4)))
    kinds = {maps.PEGS: Pegs, maps.RESET: PegsReset, maps.PMI: PerturbedImputation}
    public = {name: {"keys": "schema"} for name in (maps.PEGS, maps.RESET)}  # no order to pay for
    for name, mechanism in maps.mechanisms(reference).items():
        fitted = mechanism.prepare(SCHEMA, records, 50)
        for epsilon in (0.1, 10.0, 100.0):
            plan = maps.at(fitted, epsilon).plan
            assert plan.sampler.loss(plan.step).epsilon == pytest.approx(50 * epsilon)
            if name in kinds and epsilon < 100:
                other = kinds[name](epsilon, of="record", records=50, **public.get(name, {}))
                assert plan.alpha == other.plan(layout_of(other.cells(SCHEMA)), 50).alpha


def made_up(level):
    """Every measure of every mechanism at every ε in four replicates, by ``level``."""
    rng = np.random.default_rng(5)
    names = (*study.ALGORITHMS, maps.PER_BLOCK, maps.MARGINAL)
    cases = [(name, e) for name in names for e in maps.EPSILONS]
    cases += [(name, np.inf) for name in maps.BOOTSTRAPS]
    measures = (*maps.MEASURES, *(f"{k}: {t}" for k in ("linear", "logistic") for t in maps.TERMS))
    rows = [
        (name, e, 1000 * e, measure, level(name, e) + rng.normal(0, 1e-3), piece)
        for piece in range(4) for name, e in cases for measure in measures
    ]  # fmt: skip
    return pd.DataFrame(
        rows, columns=["mechanism", "epsilon", "total", "measure", "value", "piece"]
    )


def test_orderings_are_judged_by_pairs():
    def level(name, epsilon):
        if name in maps.BOOTSTRAPS:
            return 0.1
        small = {maps.RESET: 1.0, maps.PER_BLOCK: 5.0}.get(name, 3.0)
        return small / (1 + min(epsilon, 100.0)) + 1

    held = study.orderings(made_up(level)).set_index(["the paper", "measure", "with"])
    held = held.sort_index()
    assert len(held) == 2 * sum(len(one.measures) for one in ORDERINGS)
    closest = held.loc[(ORDERINGS[1].said, "marginal")]
    assert tuple(closest.loc[maps.RESET, ["pairs", "hold", "opposite"]]) == (6, 6, 0)
    assert tuple(closest.loc[maps.PER_BLOCK, ["pairs", "hold", "opposite"]]) == (6, 0, 6)
    more = held.loc[(ORDERINGS[0].said, "given age", maps.RESET)]
    assert tuple(more[["pairs", "hold"]]) == (3, 3)
    same = study.orderings(made_up(lambda name, e: 1.0))
    assert same["unclear"].sum() > 0.9 * same["pairs"].sum()


def test_one_record_step_by_step(monkeypatch):
    for module in (maps, chains):
        monkeypatch.setattr(module, "RECORDS", 500)
        monkeypatch.setattr(module, "PUBLIC", 200)
    steps = chains.steps(np.random.SeedSequence(1)).drop(columns="step").to_numpy()
    assert steps.shape == (14, 13)
    for i in range(13):
        other = np.delete(np.arange(13), i)
        assert (steps[i + 1][other] == steps[i][other]).all()  # only column i was drawn


def test_the_report(monkeypatch):
    monkeypatch.setattr(chains, "RECORDS", 300)
    monkeypatch.setattr(chains, "PUBLIC", 100)
    monkeypatch.setattr(chains, "CHAINS", 5)
    monkeypatch.setattr(chains, "LENGTH", 12)
    monkeypatch.setattr(chains, "SPANS", ((0, 1), (2, 12)))
    monkeypatch.setattr(maps, "RECORDS", 300)
    monkeypatch.setattr(maps, "SYNTHETIC", 20)
    monkeypatch.setattr(maps, "TOTALS", (5.0,))
    parts = [
        study.piece(np.random.SeedSequence(3), "totals").assign(piece=6),
        made_up(lambda name, e: 1.0).assign(part="maps"),
        study.piece(np.random.SeedSequence(1), "chains").assign(piece=4),
        study.piece(np.random.SeedSequence(2), "steps").assign(piece=5),
    ]
    report = study.report(pd.concat(parts, ignore_index=True))
    assert set(report.tables) == {"maps", "orderings", "table-3", "totals"}
    assert {"figure-4", "figure-5-6-7", "figure-5-6-7-total", "figure-8", "figure-9"} == set(
        report.figures
    )
    shares = report.figures["figure-4"].data.groupby(["mechanism", "column", "iteration"])["share"]
    assert shares.sum().to_numpy() == pytest.approx(1.0)
    assert "charge given the others" in report.text
