"""The ledger on both databases: budgets, identity of records, states, damage, versions."""

import contextlib
import os
import secrets
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.core.errors import BudgetError, LedgerError
from dpbayes.privacy.accounting import NOTHING, Budget, Loss, compose, rho_for
from dpbayes.privacy.guarantee import POSTERIOR, Guarantee
from dpbayes.publication import ledger as module
from dpbayes.publication.database import TABLES, Database
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.resolve import resolve
from dpbayes.records.chunked_overlap import identity_of
from dpbayes.records.chunks import table_of
from dpbayes.records.overlap import Identity
from tests import releases
from tests.ledgers import both, only_sqlite

CLAIM = Guarantee("censored", Loss.bounded_range(0.1), "strict", POSTERIOR, "chain")
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "count", "upper": 10**9},
            "x": {"type": "categorical", "levels": ["a", "b"]},
        }
    }
)


def known_by(**columns):
    """What a ledger knows a table by, with the columns y and x and perhaps others."""
    table = pd.DataFrame(columns)
    return Identity(table, SCHEMA.validate(table.assign(**{"x": "a", **table})))


PERSONS = known_by(y=[1, 2, 3], x=["a", "b", "b"])


def reserve(ledger, claim=CLAIM, name="cps", identity=PERSONS):
    entry = secrets.token_hex(16)
    ledger.reserve(name, claim, identity, entry, Path("/nowhere"), "a note")
    return entry


@both
def test_three_tenths_fit_a_budget_of_three_tenths(url):
    """Decimal budgets are met exactly, although 3 x 0.1 is above 0.3 in binary."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 0.3)
    for _ in range(3):
        reserve(ledger)
    with pytest.raises(BudgetError, match="0 is left"):
        reserve(ledger)
    assert ledger.account("cps").spent == (pytest.approx(0.3), "pure")
    assert Ledger(url).account("cps").entries["reserved"] == 3


@both
def test_states_and_what_counts(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    first, second, third, fourth = (reserve(ledger) for _ in range(4))
    ledger.void(first)
    ledger.writing(second)
    ledger.released(second)
    ledger.writing(third)
    ledger.lost(third)
    assert ledger.account("cps").spent[0] == pytest.approx(0.3)  # all but the void one
    assert [e.id for e in ledger.unresolved()] == [fourth]
    for entry, move in (
        (first, ledger.writing), (second, ledger.void), (third, ledger.void),
        (second, ledger.lost), (third, ledger.released), (fourth, ledger.released),
        ("0" * 32, ledger.void),
    ):  # fmt: skip
        with pytest.raises(LedgerError, match="cannot become"):
            move(entry)
    ledger.writing(fourth)
    with pytest.raises(LedgerError, match="is writing and cannot become void"):
        ledger.void(fourth)  # never given back once a data set may exist
    assert list(ledger.history("cps")["state"]) == ["void", "released", "lost", "writing"]
    assert list(ledger.history()["note"]) == ["a note"] * 4


@both
def test_adjacency_and_delta_of_the_budget_decide_the_cost(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("changed", 1.0, adjacency="substitution")
    ledger.add_dataset("zcdp", 2.74, delta=1e-6)
    reserve(ledger, CLAIM.for_datasets(2), "changed")
    assert ledger.account("changed").spent[0] == pytest.approx(0.4)
    other = known_by(y=[9])
    quarter = Guarantee("censored", Loss.bounded_range(0.25), "strict", POSTERIOR, "chain")
    reserve(ledger, quarter.for_datasets(20), "zcdp", other)
    share = 2.74 * 20 * 0.25**2 / 8 / rho_for(2.74, 1e-6)
    assert ledger.account("zcdp").spent == (pytest.approx(share), "zCDP")
    assert 2.72 < share < 2.74
    with pytest.raises(BudgetError, match="What still fits: `epsilon=0"):
        reserve(ledger, quarter.for_datasets(20), "zcdp", other)


NOISY = Loss.concentrated(rho_for(1.0, 1e-9), changed=2 * rho_for(1.0, 1e-9))
GAUSSIAN = Guarantee(
    "marginals", NOTHING, "strict", POSTERIOR, once=NOISY, delta=1e-9, rows="declared",
    adjacency="add-remove",
)  # fmt: skip


@both
def test_a_loss_without_pure_epsilon_is_paid_at_the_delta_of_the_budget(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("pure", 9.0)
    ledger.add_dataset("cps", 4.2, delta=1e-9)
    ledger.add_dataset("later", 1.2, delta=1e-6, adjacency="substitution")
    with pytest.raises(BudgetError, match=r"no ε at δ = 0 covers.*is for δ = 0.*Leave out `delta`"):
        reserve(ledger, GAUSSIAN, "pure")
    assert ledger.account("pure").spent == (0.0, "pure")
    reserve(ledger, GAUSSIAN.for_datasets(7))
    once = 4.2 * NOISY.rho / rho_for(4.2, 1e-9)
    assert ledger.account("cps").spent == (pytest.approx(once), "zCDP")
    reserve(ledger, replace(CLAIM, each=Loss.pure(2.0)))  # by rho both would cost more than 14
    spent, rule = ledger.account("cps").spent
    assert rule == "mixed"
    assert once + 2.0 < spent < once + 4.0
    with pytest.raises(BudgetError, match="What still fits: `epsilon=0") as refused:
        reserve(ledger, GAUSSIAN)
    epsilon = float(str(refused.value).split("`epsilon=")[1].split("`")[0])
    assert 0.2 < epsilon < 1
    reserve(ledger, replace(GAUSSIAN, once=Loss.concentrated(rho_for(epsilon, 1e-9))))
    assert 4.19 < ledger.account("cps").spent[0] <= 4.2
    found = ledger.history("cps")
    assert list(np.isinf(found["once_epsilon"])) == [True, False, True]
    other = known_by(y=[9])
    reserve(ledger, GAUSSIAN, "later", other)
    twice = 1.2 * 2 * NOISY.rho / rho_for(1.2, 1e-6)
    assert ledger.account("later").spent == (pytest.approx(twice), "zCDP")


@both
def test_a_claim_better_than_group_privacy_is_charged_as_such(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("changed", 1.0, adjacency="substitution")
    claim = Guarantee("beta-binomial", Loss.pure(0.25, changed=0.25), "strict", POSTERIOR, "chain")
    reserve(ledger, claim.for_datasets(3), "changed")
    assert ledger.account("changed").spent[0] == pytest.approx(0.75)
    nested = replace(claim, nested=4).for_datasets(4)
    assert (nested.draws, nested.epsilon) == (1, 0.25)
    reserve(ledger, nested, "changed")
    assert ledger.account("changed").left == pytest.approx(0.0)
    with pytest.raises(BudgetError, match="Nothing fits"):
        reserve(ledger, nested, "changed")


@both
def test_a_budget_is_of_persons(url):
    """Who has up to five records loses five times as much, 25 times as much ρ."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    persons = replace(CLAIM, cluster=5)
    assert persons.epsilon_person == pytest.approx(1.0)  # of a changed record: rows are public
    reserve(ledger, persons)
    assert ledger.account("cps").spent[0] == pytest.approx(0.5)
    with pytest.raises(BudgetError, match="costs ε = 1 for the 5 records of a person") as refused:
        reserve(ledger, replace(persons, datasets=2))
    assert "1 data set(s) at this ε" in str(refused.value)
    with pytest.raises(BudgetError, match="has spent ε = 1 of 1"):  # besides, too
        ledger.check("cps", replace(CLAIM, cluster=4), PERSONS, besides=Loss.pure(0.1))
    # A later release whose schema forgets the cluster is about the same persons.
    with pytest.raises(BudgetError, match="costs ε = 1 for the 5 records of a person"):
        reserve(ledger, replace(CLAIM, datasets=2))
    reserve(ledger, CLAIM)
    assert ledger.account("cps").left == pytest.approx(0.0)
    assert ledger.history("cps")["records"].tolist() == [5, 1]
    ledger.add_dataset("zcdp", 9.0, delta=1e-9)
    reserve(ledger, replace(GAUSSIAN, cluster=3), "zcdp", known_by(y=[9]))
    thrice = 9 * 9 * NOISY.rho / rho_for(9.0, 1e-9)
    assert ledger.account("zcdp").spent == (pytest.approx(thrice), "zCDP")


@both
def test_a_larger_number_of_records_holds_for_earlier_releases_too(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    for _ in range(2):
        reserve(ledger)
    assert ledger.account("cps").spent[0] == pytest.approx(0.2)
    with pytest.raises(BudgetError, match=r"costs ε = 0\.4 for the 4 .* has spent ε = 0\.8"):
        reserve(ledger, replace(CLAIM, cluster=4))
    assert ledger.account("cps").spent[0] == pytest.approx(0.2)  # nothing came of it
    reserve(ledger, replace(CLAIM, cluster=3))
    assert ledger.account("cps").spent[0] == pytest.approx(0.9)


@both
def test_a_refusal_says_what_fits_and_it_does(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    claim = dpb.Anchored(0.4, adjacency="add-remove").guarantee()
    with pytest.raises(BudgetError, match=r"2 data set\(s\) at this ε, or `epsilon=0\.2816"):
        reserve(ledger, claim.for_datasets(4))
    reserve(ledger, dpb.Anchored(0.2816, adjacency="add-remove").guarantee().for_datasets(4))
    assert ledger.account("cps").left < 0.001


@both
def test_what_still_fits_is_said_as_it_is_asked_for(url):
    """For a person and for what the release protects, as ``epsilon`` is."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    columns = {"id": {"type": "identifier"}, "x": {"type": "binary"}}
    cluster = {"column": "id", "most": 4}
    schema = dpb.Schema.from_dict({"cluster": cluster, "columns": columns})

    def claim(epsilon):
        return dpb.Synthesizer(schema, dpb.Laplace(epsilon)).guarantee()

    reserve(ledger, claim(0.75))
    with pytest.raises(BudgetError, match=r"costs ε = 0\.5 for the 4 records.*`epsilon=0\.25`"):
        reserve(ledger, claim(0.5))
    reserve(ledger, claim(0.25))
    assert ledger.account("cps").left == pytest.approx(0.0, abs=1e-9)


@both
def test_records_are_known_again(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    ledger.add_dataset("other", 1.0)
    reserve(ledger)
    shuffled = known_by(x=["b", "a", "b"], y=["3", "1.0", "2"])
    with pytest.raises(LedgerError, match="are those of data set 'cps'"):
        reserve(ledger, name="other", identity=shuffled)
    corrected = known_by(y=[1, 2, 4], x=["a", "b", "b"])
    with pytest.raises(LedgerError, match="not those that data set 'cps' stands for"):
        reserve(ledger, identity=corrected)
    ledger.accept("cps", corrected)
    reserve(ledger, identity=corrected)
    reserve(ledger)
    with pytest.raises(LedgerError, match="data set 'cps' in the ledger, which has paid"):
        ledger.accept("other", corrected)
    assert ledger.account("other").spent[0] == 0


def table(n, seed=1):
    """``n`` records, each of which can be told from the others."""
    rng = np.random.default_rng(seed)
    return {"y": rng.choice(10**9, n, replace=False), "x": rng.choice(["a", "b"], n)}


def without(columns, count):
    """A table without its first records."""
    return {name: values[count:] for name, values in columns.items()}


@both
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: {**t, "dummy": np.arange(400)}, "are those of data set 'cps'"),
        (lambda t: {**t, "x": [f"{v} " for v in t["x"]]}, "are those of data set 'cps'"),
        (lambda t: {**t, "y": [f" {v}.0" for v in t["y"]]}, "are those of data set 'cps'"),
        (lambda t: {"x": t["x"][::-1], "y": t["y"][::-1]}, "are those of data set 'cps'"),
        (lambda t: without(t, 1), "100% with 'cps'"),
        (lambda t: without(t, 300), "100% with 'cps'"),
        (lambda t: {**t, "y": [*t["y"][:250], *range(150)]}, "62% with 'cps'"),
        # Only y is as it was: a column was coded anew, and could have been left out or renamed.
        (lambda t: {**t, "x": ["a"] * 400}, "100% with 'cps'"),
    ],
)
def test_an_edited_file_opens_no_second_budget(url, change, said):
    """All of these were seen to: the same persons, and another table as text."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    ledger.add_dataset("fresh", 1.0)
    reserve(ledger, identity=known_by(**table(400)))
    edited = known_by(**change(table(400)))
    for attempt in (
        lambda: reserve(ledger, name="fresh", identity=edited),
        lambda: ledger.check("fresh", CLAIM, edited),
        lambda: ledger.record_audit("fresh", edited, "censored", Path("/nowhere")),
    ):
        with pytest.raises(LedgerError, match=said):
            attempt()
    assert list(ledger.history()["dataset"]) == ["cps"]


@both
def test_a_curator_takes_in_what_overlaps(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    ledger.add_dataset("panel", 1.0)
    reserve(ledger, identity=known_by(**table(400)))
    panel = known_by(**without(table(400), 100))
    with pytest.raises(LedgerError, match="curator takes them in with `dpbayes ledger accept"):
        reserve(ledger, name="panel", identity=panel)
    assert list(map(str, ledger.accept("panel", panel))) == ["100% with 'cps'"]
    reserve(ledger, name="panel", identity=panel)
    reserve(ledger, identity=known_by(**table(400)))
    with pytest.raises(LedgerError, match="are those of data set 'panel'"):
        reserve(ledger, identity=panel)


@both
def test_other_persons_have_a_budget_of_their_own(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    reserve(ledger, identity=known_by(**table(400)))
    some = {name: [*values[:150], *table(250, 2)[name]] for name, values in table(400).items()}
    for name, columns in (("next year", table(400, 2)), ("partly", some)):
        ledger.add_dataset(name, 1.0)
        reserve(ledger, name=name, identity=known_by(**columns))


@both
def test_a_table_that_tells_its_records_apart_belongs_to_one_account(url):
    """The attack: the declared columns agreed by chance with another account, and were taken."""
    schema = dpb.Schema.from_dict({"columns": {"x": SCHEMA["x"].to_dict()}})
    first = pd.DataFrame({"y": range(200), "x": ["a", "b"] * 100})
    second = pd.DataFrame({"y": range(1000, 1200), "x": ["a", "b"] * 100})
    whole = [Identity(table, SCHEMA.validate(table)) for table in (first, second)]
    part = [Identity(table, schema.validate(table)) for table in (first, second)]
    ledger = Ledger.create(url)
    for name in ("first", "second"):
        ledger.add_dataset(name, epsilon=1)
    reserve(ledger, name="first", identity=whole[0])
    reserve(ledger, name="second", identity=part[1])
    for identity in (whole[0], part[0]):
        with pytest.raises(LedgerError, match="are those of data set 'first'"):
            reserve(ledger, name="second", identity=identity)
    with pytest.raises(LedgerError, match="are those of data set 'second'"):
        reserve(ledger, name="first", identity=part[1])


def narrowed(**columns):
    """Identities of a table by all its columns, by two, and by one."""
    table = pd.DataFrame(columns)
    for names in ("yzx", "yz", "x"):
        yield Identity(table, schema_of(names).validate(table))


def schema_of(names):
    columns = {"z": SCHEMA["y"].to_dict(), **{name: SCHEMA[name].to_dict() for name in "yx"}}
    return dpb.Schema.from_dict({"columns": {name: columns[name] for name in names}})


def survey():
    rng = np.random.default_rng(4)
    numbers = {name: rng.integers(0, 10**6, 400).tolist() for name in "yz"}
    return {**numbers, "x": rng.choice(["a", "b"], 400).tolist()}


@both
def test_a_release_of_few_columns_hides_none_of_the_others(url):
    """The attack: the first release left the file known, so that its rows were not kept."""
    whole, _, answer = narrowed(**survey())
    shorter, its_numbers, _ = narrowed(**{k: v[1:] for k, v in survey().items()})
    ledger = Ledger.create(url)
    for name in ("first", "second"):
        ledger.add_dataset(name, epsilon=1)
    for identity in (answer, whole):
        reserve(ledger, name="first", identity=identity)
    for identity in (shorter, its_numbers):
        with pytest.raises(LedgerError, match="100% with 'first'"):
            reserve(ledger, name="second", identity=identity)


@both
def test_a_file_that_an_account_knows_is_compared_in_its_other_columns_too(url):
    """The attack: one column of a changed file was taken, and then all the others."""
    columns = survey()
    _, numbers, _ = narrowed(**columns)
    columns["x"][0] = "a" if columns["x"][0] == "b" else "b"
    changed = list(narrowed(**columns))
    ledger = Ledger.create(url)
    for name in ("first", "second"):
        ledger.add_dataset(name, epsilon=1)
    reserve(ledger, name="first", identity=numbers)
    reserve(ledger, name="second", identity=changed[2])  # no declared column in common: documented
    for identity in changed[:2]:
        with pytest.raises(LedgerError, match="100% with 'first'"):
            reserve(ledger, name="second", identity=identity)
    reserve(ledger, name="second", identity=changed[2])


@both
@pytest.mark.parametrize("chunked", [False, True])
def test_what_a_curator_took_in_is_released_in_any_order_and_in_chunks(url, chunked):
    """Sketches depend on both: what was accepted is known by its digest."""
    rng = np.random.default_rng(6)
    levels = {"type": "categorical", "levels": [*"abcdef"]}
    schema = dpb.Schema.from_dict({"columns": {f"q{k}": levels for k in range(7)}})
    table = pd.DataFrame({name: rng.choice([*"abcdef"], 500) for name in schema.columns})
    ledger = Ledger.create(url)
    for name in ("first", "second"):
        ledger.add_dataset(name, epsilon=1)
    reserve(ledger, name="first", identity=Identity(table, schema.validate(table)))
    less = table.iloc[1:]
    with pytest.raises(LedgerError, match="with 'first'"):
        reserve(ledger, name="second", identity=Identity(less, schema.validate(less)))
    ledger.accept("second", Identity(less, schema.validate(less)))
    for seed in range(4):
        other = less.sample(frac=1, random_state=seed)
        identity = Identity(other, schema.validate(other))
        if chunked:
            parts = dpb.Chunks.of(lambda other=other: [other.iloc[:200], other.iloc[200:]])
            identity = identity_of(table_of(schema, parts))
        reserve(ledger, name="second", identity=identity)


@both
@pytest.mark.parametrize("slip", ["audit", "void", "accept"])
@pytest.mark.parametrize("chunked", [False, True])
def test_records_that_came_to_a_wrong_account_leave_it(url, slip, chunked):
    """A curator moves them, with all that knows them; nothing was paid for there."""
    identity, fewer, _ = narrowed(**survey())
    presented = identity
    if chunked:
        parts = dpb.Chunks.of(lambda: [identity.given[:200], identity.given[200:]])
        presented = identity_of(table_of(schema_of("yzx"), parts))
    ledger = Ledger.create(url)
    for name in ("wrong", "right"):
        ledger.add_dataset(name, epsilon=1)
    if slip == "audit":
        ledger.record_audit("wrong", identity, "laplace", Path("/nowhere"))
    elif slip == "accept":
        ledger.accept("wrong", identity)
    else:
        ledger.void(reserve(ledger, name="wrong", identity=identity))
    with pytest.raises(LedgerError, match=r"came to that account by mistake.*for account 'right'"):
        reserve(ledger, name="right", identity=presented)
    ledger.accept("right", presented)
    reserve(ledger, name="right", identity=presented)
    reserve(ledger, name="right", identity=identity)
    with pytest.raises(LedgerError, match="of data set 'right' in the ledger"):
        reserve(ledger, name="wrong", identity=identity)
    with pytest.raises(LedgerError, match="'right' in the ledger, which has paid"):
        ledger.accept("wrong", identity)
    with pytest.raises(LedgerError):  # other columns of the same file
        reserve(ledger, name="wrong", identity=fewer)


@both
@pytest.mark.parametrize("state", ["reserved", "released", "lost", "choice"])
def test_records_that_were_paid_for_stay(url, state):
    """Also with a column more that the schema does not declare, and in other columns."""
    identity, fewer, _ = narrowed(**survey())
    wider = Identity(identity.given.assign(line=range(len(identity.given))), identity.records)
    ledger = Ledger.create(url)
    for name in ("first", "second"):
        ledger.add_dataset(name, epsilon=1)
    if state == "choice":
        ledger.reserve("first", CLAIM, identity, "c" * 32, Path("/nowhere"), kind="choice")
    else:
        entry = reserve(ledger, name="first", identity=identity)
        if state == "released":
            ledger.writing(entry)
            ledger.released(entry)
        elif state == "lost":
            ledger.writing(entry)
            ledger.lost(entry)
    for presented in (identity, wider, fewer):
        with pytest.raises(LedgerError, match="'first' in the ledger, which has paid"):
            ledger.accept("second", presented)


@both
def test_an_empty_table_belongs_to_nobody(url):
    empty, full = known_by(y=[], x=[]), known_by(y=[1, 2], x=["a", "b"])
    ledger = Ledger.create(url)
    for name in ("first", "second"):
        ledger.add_dataset(name, epsilon=1)
        reserve(ledger, name=name, identity=empty)
    reserve(ledger, name="second", identity=full)
    with pytest.raises(LedgerError, match="are those of data set 'second'"):
        reserve(ledger, name="first", identity=full)


@both
def test_what_an_account_that_paid_took_in_stays_with_it(url):
    """The attack: a version that was taken in, but not paid for, went to another account."""
    whole, _, _ = narrowed(**survey())
    shorter, _, _ = narrowed(**{k: v[1:] for k, v in survey().items()})
    ledger = Ledger.create(url)
    for name in ("first", "second"):
        ledger.add_dataset(name, epsilon=1)
    reserve(ledger, name="first", identity=whole)
    ledger.accept("first", shorter)
    with pytest.raises(LedgerError, match="'first' in the ledger, which has paid"):
        ledger.accept("second", shorter)
    assert list(ledger.history("first")["kind"]) == ["release", "accept"]
    assert ledger.account("first").spent[0] == pytest.approx(0.1)


DAYS = pd.date_range("1940-01-01", "1999-12-31").strftime("%Y-%m-%d")
BIRTHS = {
    "days": {"type": "date", "lower": "1940-01-01", "upper": "1999-12-31"},
    "levels": {"type": "categorical", "levels": list(DAYS)},
    "seconds": {"type": "datetime", "lower": "1940-01-01", "upper": "1999-12-31"},
    "minutes": {
        "type": "datetime", "lower": "1940-01-01", "upper": "1999-12-31",
        "format": "%Y-%m-%d %H:%M",
    },
}  # fmt: skip


@only_sqlite
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("second", BIRTHS)
@pytest.mark.parametrize("first", BIRTHS)
def test_days_are_the_same_however_they_are_declared(url, first, second, chunked):
    """The attack: a row less, and days as levels in place of days."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"born": rng.choice(DAYS, 600), "ill": rng.integers(0, 2, 600)})
    ledger = Ledger.create(url)
    for name, kind, part in (("first", first, table), ("second", second, table.iloc[1:])):
        ledger.add_dataset(name, epsilon=1)
        tree = {"columns": {"born": BIRTHS[kind], "ill": {"type": "binary"}}}
        records = part
        if chunked:
            records = dpb.Chunks.of(lambda part=part: [part.iloc[:200], part.iloc[200:]])
        identity = identity_of(table_of(dpb.Schema.from_dict(tree), records))
        if name == "first":
            reserve(ledger, name=name, identity=identity)
            continue
        with pytest.raises(LedgerError, match="with 'first'"):
            reserve(ledger, name=name, identity=identity)


@only_sqlite
def test_the_share_is_settled_with_the_ledger(url):
    ledger = Ledger.create(url, overlap=0.2)
    ledger.add_dataset("cps", 1.0)
    ledger.add_dataset("other", 1.0)
    reserve(ledger, identity=known_by(**table(400)))
    some = {name: [*values[:100], *table(300, 2)[name]] for name, values in table(400).items()}
    with pytest.raises(LedgerError, match="25% with 'cps'"):
        reserve(ledger, name="other", identity=known_by(**some))
    Ledger.create(url)
    Ledger.create(url, overlap=0.2)
    with pytest.raises(LedgerError, match=r"refuses overlaps from 0\.2 on"):
        Ledger.create(url, overlap=0.9)
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(LedgerError, match="overlap = "):
            Ledger.create(url, overlap=wrong)


@only_sqlite
def test_tables_of_few_columns_can_be_told_apart_by_a_curator(url):
    """Their declared columns agree by chance; what else was read does not."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    ledger.add_dataset("other", 1.0)
    here, there = (known_by(y=[1, 1, 2], x=["a"] * 3, more=more) for more in ([1, 2, 3], [4, 5, 6]))
    reserve(ledger, identity=here)
    with pytest.raises(LedgerError, match="are those of data set 'cps'"):
        reserve(ledger, name="other", identity=there)
    ledger.accept("other", there)
    reserve(ledger, name="other", identity=there)
    reserve(ledger, identity=here)


@both
def test_a_choice_and_an_audit_are_entries(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 0.3)
    entry = "c" * 32
    ledger.reserve("cps", CLAIM, PERSONS, entry, Path("/nowhere"), kind="choice")
    ledger.record_audit("cps", PERSONS, "censored", Path("/nowhere"), "looked")
    reserve(ledger)
    history = ledger.history()
    assert list(history["kind"]) == ["choice", "audit", "release"]
    assert list(history["state"]) == ["reserved", "released", "reserved"]
    assert list(history["once_epsilon"] + history["each_epsilon"]) == [0.1, 0.0, 0.1]
    assert ledger.account("cps").spent[0] == pytest.approx(0.2)
    assert [e.kind for e in ledger.unresolved()] == ["choice", "release"]
    assert not ledger.paid(entry, "cps", "choice")
    ledger.writing(entry)
    assert ledger.paid(entry, "cps", "choice")
    assert not ledger.paid(entry, "cps", "release")
    with pytest.raises(LedgerError, match="cannot become void"):
        ledger.void(entry)
    ledger.close(entry)
    ledger.close(entry)
    assert ledger.paid(entry, "cps", "choice")


@only_sqlite
def test_fingerprints_are_salted(url):
    """Neither the digest nor one fingerprint for two data sets is in the file."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    reserve(ledger)
    content = Path(url).read_bytes()
    known = PERSONS.known("ab" * 32)
    for digest in (*known.declared, *known.given):
        assert digest not in content
        assert digest.hex().encode() not in content
    assert Path(url).stat().st_mode & 0o777 == 0o600
    second = Ledger.create(f"{url}2")
    second.add_dataset("cps", 1.0)
    reserve(second)
    values, hashes = [], []
    for ledger in (url, f"{url}2"):
        with Database(ledger).reading() as connection:
            values.append(set(connection.scalars(sa.select(TABLES.fingerprint.c.value))))
            hashes.append(set(connection.scalars(sa.select(TABLES.sketch.c.hashes))))
    assert not values[0] & values[1]
    assert not hashes[0] & hashes[1]


@both
def test_a_clock_set_back_changes_nothing(url, monkeypatch):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 0.3)
    entries = [reserve(ledger)]
    for year in (1999, 1970):
        monkeypatch.setattr(module, "_now", lambda year=year: f"{year}-01-01T00:00:00+00:00")
        entries.append(reserve(ledger))
    with pytest.raises(BudgetError):
        reserve(ledger)
    history = ledger.history()
    assert list(history["id"]) == entries
    assert history["created"].is_monotonic_decreasing


@both
@pytest.mark.parametrize("statement", [
    "CREATE TABLE alembic_version (version_num VARCHAR(32))", "UPDATE ledger SET version = 9999",
])  # fmt: skip
def test_a_ledger_of_another_version_is_refused(url, statement):
    """Of dpbayes 0.1, or of a later one: nothing is written to it."""
    Ledger.create(url)
    Database(url).serially(lambda c: c.exec_driver_sql(statement))
    version = 0 if "alembic" in statement else 9999
    for use in (Ledger, Ledger.create):
        with pytest.raises(LedgerError, match=f"has version {version}, and this dpbayes reads"):
            use(url)


@only_sqlite
@pytest.mark.parametrize("kind", ["garbage", "header", "middle", "truncated"])
def test_a_damaged_file_is_noticed(url, kind):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1000.0)
    for _ in range(120):
        reserve(ledger)
    path = Path(url)
    content = bytearray(path.read_bytes())
    if kind == "garbage":
        content = bytearray(os.urandom(20_000))
    elif kind == "header":
        content[:16] = b"\0" * 16
    elif kind == "middle":
        content[len(content) // 2 : len(content) // 2 + 8192] = b"\xff" * 8192
    else:
        content = content[: len(content) // 2]
    path.write_bytes(content)
    no_database = kind in ("garbage", "header")  # as any other file that is given by mistake
    message = "is no ledger: the file is no SQLite database" if no_database else "is damaged"
    with pytest.raises(LedgerError, match=rf"{message}.*[Rr]estore it from a backup"):
        Ledger(url)


@both
def test_many_processes_create_one_ledger(url):
    """More than the server has connections for: each waits for its turn, and none fails."""
    processes = 30 if url.endswith(".db") else 120
    done = subprocess.run(
        [sys.executable, "-m", "tests.releases", "create", url, str(processes)],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], timeout=300,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == sorted(f"{n} 0" for n in range(processes))
    assert len(Ledger(url).accounts()) == processes


@only_sqlite
def test_bad_numbers_and_names(url):
    ledger = Ledger.create(url)
    for wrong, message in (
        ({"epsilon": -1.0}, "epsilon = -1.0"),
        ({"epsilon": float("inf")}, "epsilon = inf"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta = 1.0"),
        ({"epsilon": 1.0, "adjacency": "swap"}, "adjacency = 'swap'"),
    ):
        with pytest.raises(dpb.GuaranteeError, match=message):
            ledger.add_dataset("cps", **wrong)
    with pytest.raises(LedgerError, match="1 to 200"):
        ledger.add_dataset(" ", 1.0)
    ledger.add_dataset("cps", 1.0)
    with pytest.raises(LedgerError, match="never raised"):
        ledger.add_dataset("cps", 9.0)
    with pytest.raises(LedgerError, match="'csp' is not in the ledger; it has 'cps'"):
        reserve(ledger, name="csp")
    for loose in (dpb.CensoredWeighted(1.0), dpb.Unweighted()):
        with pytest.raises(BudgetError, match="strict guarantees only"):
            reserve(ledger, loose.guarantee())
    assert ledger.history().empty


@only_sqlite
def test_other_tables_are_left_alone(url):
    database = Database(url)
    database.make_file()
    database.serially(lambda c: c.exec_driver_sql("CREATE TABLE entry (x INTEGER)"))
    with pytest.raises(LedgerError, match="holds other tables"):
        Ledger.create(url)


losses = st.one_of(
    st.builds(Loss.bounded_range, st.floats(1e-3, 3)),
    st.builds(Loss.concentrated, st.floats(1e-4, 1)),
)


@given(
    spent=losses, once=losses, each=losses, m=st.integers(1, 40),
    epsilon=st.floats(0.1, 20), delta=st.sampled_from([0.0, 1e-6]),
)  # fmt: skip
def test_what_is_said_to_fit_fits_and_no_more(spent, once, each, m, epsilon, delta):
    budget = Budget(epsilon, delta, spent)

    def total(loss):
        return budget.share(spent.plus(loss))[0]

    largest = budget.largest_count(once, each, m)
    assert 0 <= largest <= m
    if largest:
        assert total(once.plus(each, largest)) <= epsilon * (1 + 1e-11)
        assert compose([(spent, 1), (once, 1), (each, largest)], delta)[0] <= epsilon * (1 + 1e-9)
    if largest < m:
        assert total(once.plus(each, largest + 1)) > epsilon
    cost = once.plus(each, m)
    factor = budget.largest_factor(cost)
    if factor:
        assert total(cost.scaled(factor)) <= epsilon * (1 + 1e-11)
    if factor < 1:
        assert total(cost.scaled(factor + 1e-4)) > epsilon
    assert budget.admits(cost) == (largest == m)


def test_a_ledger_is_named_by_a_path_or_a_text(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.add_dataset("cps", 1.0)
    for name in (tmp_path / "ledger.db", str(tmp_path / "ledger.db")):
        assert [account.name for account in Ledger(name).accounts()] == ["cps"]
    assert ledger.url == str(tmp_path / "ledger.db")


@pytest.mark.parametrize(
    "edit",
    [
        TABLES.entry.update().values(records=0),
        TABLES.entry.update().values(datasets=0),
        TABLES.entry.update().values(each_epsilon=-1.0),
        TABLES.dataset.update().values(epsilon=float("inf")),
    ],
)
def test_the_database_refuses_absurd_rows(ledger, edit):
    reserve(ledger)
    with pytest.raises((LedgerError, sa.exc.IntegrityError)) as caught:
        ledger._database.serially(lambda connection: connection.execute(edit))
    assert "CHECK" in str(caught.value).upper()


@only_sqlite
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("once_rho", "x"),
        ("datasets", b"\xff"),
        ("process", 1.5),
        ("directory", b"\x00"),
        ("note", b"b"),
    ],
)
def test_an_entry_of_other_types_is_damaged(url, column, value):
    ledger = Ledger.create(url)
    ledger.add_dataset("a", 1.0)
    claim = dpb.Laplace(0.5).claim(releases.SCHEMA)
    ledger.reserve("a", claim, releases.identity(), "e" * 32, Path("out"))
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
        db.execute("PRAGMA ignore_check_constraints = 1")
        db.execute(f"UPDATE entry SET {column} = ?", [value])
    for ask in (ledger.history, ledger.unresolved, lambda: resolve(ledger)):
        with pytest.raises(LedgerError, match="is damaged"):
            ask()


def test_a_ledger_of_a_few_bytes_is_not_begun_anew(tmp_path):
    place = tmp_path / "ledger.db"
    Ledger.create(place)
    place.write_bytes(place.read_bytes()[:1])
    with pytest.raises(LedgerError, match="is damaged"):
        Ledger.create(place)
