"""Whatever somebody made of a ledger file or a release folder: a result or a DpbayesError."""

import contextlib
import functools
import json
import shutil
import sqlite3
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.cli.inference import combine
from dpbayes.core.errors import DpbayesError
from dpbayes.pages.confidential import confidential_page
from dpbayes.pages.readers import public_page
from dpbayes.publication.ledger import Ledger
from dpbayes.records.overlap import Identity
from dpbayes.report.whole import stated
from dpbayes.schema.domain import made_up
from dpbayes.schema.table import Schema
from dpbayes.synthesis.release import Release
from tests.fuzzing import many, numbers, scrambled, seeds, trees

pytestmark = pytest.mark.fuzz
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "age": {"type": "count", "upper": 99},
            "sex": {"type": "categorical", "levels": ["f", "m"]},
        }
    }
)
RECORDS = made_up(SCHEMA, 40, np.random.default_rng(1))
CLAIM = dpb.Laplace(0.5).claim(SCHEMA)


@functools.cache
def identity():
    return Identity(RECORDS, SCHEMA.validate(RECORDS))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """A ledger with a release, of budget 1."""
    path = tmp_path_factory.mktemp("ledger") / "l.db"
    made = Ledger.create(str(path))
    made.add_dataset("a", 1.0)
    made.reserve("a", CLAIM, identity(), "0" * 32, path.parent, "a note", "release")
    made.writing("0" * 32)
    made.released("0" * 32)
    return path


def used(path):
    """All that is asked of a ledger; what is left of a budget is never more than it was."""
    opened = Ledger(str(path))
    opened.history()
    opened.unresolved()
    for account in opened.accounts():
        assert account.statement()
    opened.check("a", CLAIM, identity())
    opened.reserve("a", CLAIM, identity(), "1" * 32, path.parent, "", "release")
    opened.void("1" * 32)


odd = st.one_of(
    numbers, st.text(max_size=4), st.none(), st.binary(max_size=4),
    st.sampled_from(["zz", "0", "[]", "{}", "released", "void", "add-remove", 1e308, -1, 2**62]),
)  # fmt: skip


@given(number=seeds, value=odd)
@many
def test_ledgers_with_another_value(ledger, tmp_path, number, value):
    rng = Random(number)
    path = tmp_path / "l.db"
    shutil.copy(ledger, path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute(
            "select name from sqlite_master where type = 'table'"
        )]  # fmt: skip
        table = rng.choice(tables)
        columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
        with contextlib.suppress(sqlite3.Error, OverflowError):
            what = rng.random()
            if what < 0.05:
                connection.execute(f"delete from {table}")
            elif what < 0.1:
                connection.execute(f"drop table {table}")
            else:
                connection.execute(f'update {table} set "{rng.choice(columns)}" = ?', (value,))
            connection.commit()
    with contextlib.suppress(DpbayesError):
        used(path)


@given(number=seeds)
@many
def test_ledgers_with_other_bytes(ledger, tmp_path, number):
    rng = Random(number)
    content = bytearray(ledger.read_bytes())
    for _ in range(rng.choice((1, 1, 3, 30))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    if rng.random() < 0.2:
        del content[rng.randrange(len(content)) :]
    (tmp_path / "l.db").write_bytes(content)
    with contextlib.suppress(DpbayesError):
        used(tmp_path / "l.db")


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A folder OUT with two data sets."""
    out = tmp_path_factory.mktemp("release") / "out"
    fit = dpb.Synthesizer(SCHEMA, dpb.Laplace(1)).fit(RECORDS)
    dpb.publish(fit, out, 2, say=lambda _: None)
    return out


def changed(tree, rng, value):
    """A statement with a key gone, or with another value."""
    inner = tree
    while True:
        key = rng.choice(sorted(inner) if isinstance(inner, dict) else range(len(inner)))
        deeper = inner[key]
        if not isinstance(deeper, dict | list) or not deeper or rng.random() < 0.4:
            break
        inner = deeper
    if rng.random() < 0.3:
        del inner[key]
    else:
        inner[key] = value
    return tree


def as_json(value):
    """NaN and infinite numbers, and texts that are no Unicode, are among what is read."""
    return json.dumps(value, default=str)


@given(
    number=seeds,
    value=st.one_of(trees, odd.filter(lambda v: not isinstance(v, bytes)), st.just("\ud800")),
)
@many
def test_releases_with_another_statement(release, tmp_path, number, value):
    rng = Random(number)
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(release, out)
    path = out / "release" / "guarantee.json"
    if rng.random() < 0.7:
        text = as_json(changed(json.loads(path.read_text()), rng, json.loads(as_json(value))))
    else:
        text = scrambled((path.read_text(),), ("NaN", "null", "[", "}", "9" * 400, '""'), number)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    readers = (
        lambda: public_page(out),
        lambda: confidential_page(out),
        lambda: stated(out / "release" / "synthetic_1.csv", None, None),
        lambda: Release.entry_of(out / "release"),
        lambda: combine(out / "release", "age ~ sex"),
    )
    for read in readers:
        with contextlib.suppress(DpbayesError):
            read()


@given(number=seeds, content=st.binary(max_size=30))
@many
def test_releases_with_other_data(release, tmp_path, number, content):
    rng = Random(number)
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(release, out)
    path = out / "release" / "synthetic_2.csv"
    whole = bytearray(path.read_bytes())
    start = rng.randrange(len(whole))
    whole[start : start + rng.choice((0, 3, 400))] = content
    path.write_bytes(whole)
    for model in ("ols", "logit"):
        with contextlib.suppress(DpbayesError):
            combine(out / "release", "sex ~ age" if model == "logit" else "age ~ sex", model)


@given(tree=trees, key=st.sampled_from(["rows", "keep", "rules", "cluster", "identifiers"]))
@many
def test_schemas_with_another_key(tree, key):
    """What is taken makes a mechanism, or says why not."""
    with contextlib.suppress(DpbayesError):
        schema = Schema.from_dict({**SCHEMA.to_dict(), key: tree})
        dpb.Synthesizer(schema, dpb.Marginals(1))
