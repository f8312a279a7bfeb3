"""The ledger on both databases: budgets, identity of records, states, damage, versions."""

import os
import secrets
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.errors import BudgetError, LedgerError
from dpbayes.privacy.accounting import Budget, Loss, compose
from dpbayes.privacy.guarantee import POSTERIOR, Guarantee
from dpbayes.publication import ledger as module
from dpbayes.publication.database import TABLES, VERSION, Database
from dpbayes.publication.ledger import Ledger
from dpbayes.schema.fingerprint import content_digest
from tests.ledgers import both, only_sqlite
from tests.postgres import NO_POSTGRESQL

CLAIM = Guarantee("censored", Loss.bounded_range(0.1), "strict", POSTERIOR, "chain")
PERSONS = content_digest(pd.DataFrame({"y": [1, 2, 3], "x": ["a", "b", "b"]}))


def reserve(ledger, claim=CLAIM, name="cps", digest=PERSONS):
    entry = secrets.token_hex(16)
    ledger.reserve(name, claim, digest, entry, Path("/nowhere"), "a note")
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
    other = content_digest(pd.DataFrame({"y": [9]}))
    quarter = Guarantee("censored", Loss.bounded_range(0.25), "strict", POSTERIOR, "chain")
    reserve(ledger, quarter.for_datasets(20), "zcdp", other)
    assert ledger.account("zcdp").spent == (pytest.approx(2.73, abs=0.005), "zCDP")
    with pytest.raises(BudgetError, match="What still fits: --epsilon 0"):
        reserve(ledger, quarter.for_datasets(20), "zcdp", other)


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
def test_a_refusal_says_what_fits_and_it_does(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    claim = dpb.Anchored(0.4).guarantee()
    with pytest.raises(BudgetError, match=r"2 data set\(s\) at this ε, or --epsilon 0\.2816"):
        reserve(ledger, claim.for_datasets(4))
    reserve(ledger, dpb.Anchored(0.2816).guarantee().for_datasets(4))
    assert ledger.account("cps").left < 0.001


@both
def test_records_are_known_again(url):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    ledger.add_dataset("other", 1.0)
    reserve(ledger)
    shuffled = pd.DataFrame({"x": ["b", "a", "b"], "y": ["3", "1.0", "2"]})
    assert content_digest(shuffled) == PERSONS
    with pytest.raises(LedgerError, match="are those of data set 'cps'"):
        reserve(ledger, name="other", digest=content_digest(shuffled))
    corrected = content_digest(pd.DataFrame({"y": [1, 2, 4], "x": ["a", "b", "b"]}))
    assert corrected != PERSONS
    with pytest.raises(LedgerError, match="not those that data set 'cps' stands for"):
        reserve(ledger, digest=corrected)
    ledger.accept_version("cps", corrected)
    reserve(ledger, digest=corrected)
    reserve(ledger)
    with pytest.raises(LedgerError, match="are those of data set 'cps'"):
        ledger.accept_version("other", corrected)
    assert ledger.account("other").spent[0] == 0


@only_sqlite
def test_fingerprints_are_salted(url):
    """Neither the digest nor one fingerprint for two data sets is in the file."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    reserve(ledger)
    content = Path(url).read_bytes()
    assert PERSONS not in content
    assert PERSONS.hex().encode() not in content
    assert Path(url).stat().st_mode & 0o777 == 0o600
    second = Ledger.create(f"{url}2")
    second.add_dataset("cps", 1.0)
    reserve(second)
    values = []
    for ledger in (url, f"{url}2"):
        with Database(ledger).reading() as connection:
            values.append(connection.scalar(sa.select(TABLES.fingerprint.c.value)))
    assert values[0] != values[1]


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


def at_version_one(url):
    """A ledger as the first version of the schema wrote it."""
    database = Database(url)
    database.make_file()
    database.migrate("0001", only_empty=True)
    insert = (
        "INSERT INTO dataset (id, name, adjacency, epsilon, delta, salt, created) VALUES "
        "(1, 'cps', 'add-remove', 1.0, 0.0, 'aa', '2026-01-01'), "
        "(2, 'changed', 'substitution', 2.0, 0.0, 'bb', '2026-01-01')",
        "INSERT INTO entry (id, dataset_id, state, mechanism, datasets, once_epsilon, once_rho, "
        "each_epsilon, each_rho, created, changed, actor, host, process, directory) VALUES "
        "('e1', 1, 'released', 'censored', 2, 0.1, 0.0, 0.2, 0.0, 't', 't', 'a', 'h', 1, '/'), "
        "('e2', 2, 'released', 'censored', 2, 0.1, 0.0, 0.2, 0.0, 't', 't', 'a', 'h', 1, '/')",
    )
    database.serially(lambda c: [c.exec_driver_sql(line) for line in insert])


@both
def test_a_ledger_of_an_older_version_is_migrated_when_asked(url):
    at_version_one(url)
    with pytest.raises(LedgerError, match=r"has version 0001.* run `dpbayes ledger upgrade`"):
        Ledger(url)
    with pytest.raises(LedgerError, match="has version 0001"):
        Ledger.create(url)  # does not migrate what it did not make
    ledger = Ledger.upgrade(url)
    assert ledger.account("cps").spent[0] == pytest.approx(0.5)
    assert ledger.account("changed").spent[0] == pytest.approx(1.0)  # as it was read before
    assert list(ledger.history()["note"]) == ["", ""]
    reserve(ledger)
    assert Ledger.upgrade(url).account("cps").spent[0] == pytest.approx(0.6)
    Database(url).serially(
        lambda c: c.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    )
    with pytest.raises(LedgerError, match="newer than this dpbayes"):
        Ledger(url)


def test_versions_are_in_one_line():
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(Path(module.__file__).parent / "migrations")
    assert scripts.get_heads() == [VERSION]


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
    with pytest.raises(LedgerError, match=r"is damaged.*Restore it from a backup"):
        Ledger(url)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("nothing.db", "there is no ledger"),
        ("mysql://somewhere/x", "sqlite or postgresql, not in mysql"),
        ("://", "URL cannot be read"),
        ("sqlite://", "would forget"),
    ],
)
def test_bad_urls(bad, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError, match=message):
        Ledger(bad)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(bool(NO_POSTGRESQL), reason=NO_POSTGRESQL or "it is there")
def test_unreachable_server_and_no_password_in_messages():
    with pytest.raises(LedgerError, match="cannot be used: connection failed") as error:
        Ledger("postgresql://someone:secret@127.0.0.1:1/x")
    assert "secret" not in str(error.value)


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


losses = st.builds(Loss.bounded_range, st.floats(1e-3, 3))


@given(
    spent=losses, once=losses, each=losses, m=st.integers(1, 40),
    epsilon=st.floats(0.1, 20), delta=st.sampled_from([0.0, 1e-6]),
)  # fmt: skip
def test_what_is_said_to_fit_fits_and_no_more(spent, once, each, m, epsilon, delta):
    budget = Budget(epsilon, delta, spent)

    def total(loss):
        return compose([(spent, 1), (loss, 1)], delta)[0]

    largest = budget.largest_count(once, each, m)
    assert 0 <= largest <= m
    if largest:
        assert total(once.plus(each, largest)) <= epsilon * (1 + 1e-11)
    if largest < m:
        assert total(once.plus(each, largest + 1)) > epsilon
    cost = once.plus(each, m)
    factor = budget.largest_factor(cost)
    if factor:
        assert total(cost.scaled(factor)) <= epsilon * (1 + 1e-11)
    if factor < 1:
        assert total(cost.scaled(factor + 1e-4)) > epsilon
    assert budget.admits(cost) == (largest == m)
