"""Whatever is typed or read: a result or a DpbayesError, and nothing else."""

import contextlib
import string
import tomllib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.app.forms import answered, grouping_forms, table_form, with_table
from dpbayes.app.project import ProjectSettings
from dpbayes.core.errors import DpbayesError
from dpbayes.formula.formula import DataFormula, Formula
from dpbayes.mechanisms import MECHANISMS, get_mechanism
from dpbayes.mechanisms.options import read_settings
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.schema.columns import KEYS
from dpbayes.schema.domain import made_up
from dpbayes.schema.rules import numbers_of
from dpbayes.stan.families import FAMILIES
from tests.fuzzing import many, numbers, said, scalars, trees, written

pytestmark = pytest.mark.fuzz
DRAFT = """\
# title = "..."

# Whole numbers.
[columns.age]
type = "count"  # GUESSED: whole numbers
lower = 0  # GUESSED: the smallest value
upper = 99  # GUESSED: the largest value
guessed = ["type", "lower", "upper"]

[columns.sex]
type = "binary"
levels = ["f", "m"]
"""
columns = st.one_of(
    trees,
    st.fixed_dictionaries(
        {"type": st.one_of(st.sampled_from(dpb.schema.COLUMN_TYPES), trees)},
        optional={
            "lower": st.one_of(numbers, trees),
            "upper": st.one_of(numbers, trees),
            "levels": st.one_of(st.lists(scalars, max_size=4), trees),
            "digits": st.one_of(st.integers(-400, 400), trees),
            "public": st.one_of(st.booleans(), trees),
            "missing": st.one_of(st.booleans(), st.lists(scalars, max_size=3), trees),
            "atoms": st.one_of(st.lists(numbers, max_size=3), trees),
            "only_if": st.one_of(st.sampled_from(["a == 'b'", "b > 1", "`` == 0"]), trees),
            "format": st.one_of(st.sampled_from(["%d.%m.%Y", "%Y", "%"]), trees),
        },
    ),
)  # fmt: skip
schemas = st.one_of(
    trees,
    st.fixed_dictionaries(
        {"columns": st.dictionaries(st.text(max_size=4), columns, max_size=3)},
        optional={"rows": trees, "rules": trees},
    ),
)
RULE_WORDS = (
    "age", "sex", "wage", "health", "start", "`c d`", "1", "0", "-", "+", "*", "/", "(", ")", "[",
    "]", ",", "<", "<=", "==", "!=", ">", "and", "or", "not", "in", "'m'", "'good'", "1e400",
    "'2020-01-01'", "'", "=", "!", ".max()", "__import__('os')", "\n", "0.1", " ",
)  # fmt: skip
RULED = dpb.Schema.from_dict(
    {
        "columns": {
            "age": {"type": "count", "upper": 99},
            "wage": {"type": "continuous", "lower": 0, "upper": 1, "missing": True},
            "sex": {"type": "categorical", "levels": ["f", "m"]},
            "health": {"type": "ordinal", "levels": ["bad", "good"]},
            "start": {"type": "date", "lower": "2020-01-01", "upper": "2021-12-31"},
            "c d": {"type": "binary"},
        }
    }
)


@given(text=st.one_of(st.text(max_size=30), st.lists(st.sampled_from(RULE_WORDS), max_size=12)))
@many
def test_rules(text):
    """One that is taken says of every record that it holds, or that it does not."""
    rule = text if isinstance(text, str) else " ".join(text)
    with contextlib.suppress(DpbayesError):
        schema = dpb.Schema(RULED.columns, rules=(rule,))
        records = made_up(RULED, 4, np.random.default_rng(1))
        values = {name: numbers_of(RULED[name], records[name]) for name in RULED.columns}
        assert schema.kept[0].holds(values).shape == (4,)


@given(tree=schemas)
@many
def test_schemas(tree, tmp_path):
    """One that is taken can be written, read again and filled with records."""
    with contextlib.suppress(DpbayesError):
        schema = dpb.Schema.from_dict(tree)
        schema.to_toml(tmp_path / "s.toml")
        assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema
        made_up(schema, 3, np.random.default_rng(1))
        Formula(f"`{next(iter(schema.columns))}` ~ 1", schema)


models = st.one_of(
    trees,
    st.lists(
        st.fixed_dictionaries(
            {"formula": st.one_of(st.sampled_from(["a ~ 1", "b ~ a", "c ~ a:b", "a ~ b"]), trees)},
            optional={
                "family": st.one_of(st.sampled_from([*FAMILIES]), trees),
                "priors": trees,
                "program": trees,
                "constants": trees,
                "odd": trees,
            },
        ),
        max_size=4,
    ),
)
OF_SEQUENCES = dpb.Schema.from_dict(
    {"columns": {name: {"type": "binary", "levels": [0, 1]} for name in "abc"}}
)


@given(tree=models)
@many
def test_sequences(tree, tmp_path):
    with contextlib.suppress(DpbayesError):
        (tmp_path / "m.toml").write_text(f"model = {written(tree)}", encoding="utf-8")
        sequence = dpb.Sequence.from_toml(tmp_path / "m.toml")
        if sequence is not None:
            sequence.on(OF_SEQUENCES)


@given(
    text=st.one_of(st.text(max_size=40), st.text(string.printable, max_size=60)),
    around=st.sampled_from(["{}", "[columns.x]\n{}", "columns.x.levels = [{}]"]),
)
@many
def test_schema_files(text, around, tmp_path):
    content = around.replace("{}", text)
    (tmp_path / "s.toml").write_text(content, encoding="utf-8", newline="")
    with contextlib.suppress(DpbayesError):
        dpb.Schema.from_toml(tmp_path / "s.toml")


WORDS = (
    "y", "age", "sex", "region", "visits", "a.b", "`c d`", "1", "0", "2", "1e400", "0.5", "'m'",
    '"n"', "+", "-", "*", "/", ":", "**", "^", "%", "~", "|", "(", ")", "(", ")", "[", "]", ",",
    "=", "==", "<", ">=", "I(", "C(", "log(", "exp(", "min(", "max(", "bs(", "cr(", "poly(",
    "knots=[", "lower=", "upper=", "levels=[", "degree=", "center(", "__import__('os')", ".max()",
    "lambda", "np.log(", "(1 | region)", "(age | sex)", "(1 |", "(0 + age ||", "region/sex)",
    "I(age", "knots=[30, 40]", "x := 1", "**", "99", " ",
)  # fmt: skip
formulas = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from(WORDS), max_size=12).map("".join),
    st.lists(st.sampled_from(WORDS), max_size=10).map(lambda words: f"y ~ {' '.join(words)}"),
    st.lists(st.sampled_from(WORDS), max_size=6).map(lambda w: f"y ~ sex + I({''.join(w)})"),
)


@given(text=formulas)
@many
def test_formulas(text, schema, records):
    with contextlib.suppress(DpbayesError):
        Formula(text, schema).design(schema.validate(records))


@given(text=formulas)
@many
def test_formulas_of_analysts(text, records):
    with contextlib.suppress(DpbayesError):
        DataFormula(text).matrices(records.assign(y=1.0))


SECRET = "Zq7-Wx9"  # no message repeats a field of the file
cells = st.one_of(
    st.text(max_size=4),
    st.sampled_from(
        [
            "1",
            "a",
            "",
            "NaN",
            "1e400",
            '"',
            ",",
            "\n",
            "\r",
            "\0",
            SECRET,
            f'"{SECRET}',
            f'{SECRET}"',
        ]
    ),
)
AB = dpb.Schema(
    {
        "a": dpb.Column("a", "continuous", lower=0, upper=10),
        "b": dpb.Column("b", "categorical", levels=("a", "1")),
    }
)


@given(
    rows=st.lists(st.lists(cells, max_size=4).map(",".join), max_size=5),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    named=st.booleans(),
)
@many
def test_csv_text(rows, end, named, tmp_path):
    """A table that is taken has every field where it stood; one that is not is not repeated."""
    text = end.join([*(["a,b"] if named else []), *rows])
    (tmp_path / "d.csv").write_text(text, encoding="utf-8", newline="", errors="replace")

    def read():
        table = dpb.read_records(tmp_path / "d.csv")
        assert table.columns.is_unique
        assert isinstance(table.index, pd.RangeIndex)
        AB.validate(table)

    assert SECRET not in said(read)


SETTINGS = (
    "epsilon", "window", "weights", "c1", "c2", "anchor", "range", "share", "bins", "sigma",
    "nested", "model", "settings", "draw", "name", "self", "alpha", "adjacency", "beta", "cells",
    "samples", "bound", "allocation", "out_of_range", "resample",
    "of", "delta", "records", "block", "seeds", "reference", "keys", "m", "bits", "penalty",
    "diversity",
)  # fmt: skip


values = st.one_of(
    st.text(max_size=8),
    trees.map(written),
    st.sampled_from(
        [
            "1",
            "-1",
            "inf",
            "nan",
            "[1, 2]",
            "[[1]]",
            "{a = 1}",
            "{age = 3}",
            "1e300",
            "9" * 400,
            "9" * 5000,
        ]
    ),
)


SMALL = dpb.Schema.from_dict(
    {
        "columns": {
            "age": {"type": "count", "lower": 0, "upper": 99},
            "x": {"type": "continuous", "lower": 0, "upper": 1},
            "sex": {"type": "categorical", "levels": ["f", "m"]},
        }
    }
)


@given(
    name=st.sampled_from(sorted(MECHANISMS)),
    given_settings=st.lists(st.tuples(st.sampled_from(SETTINGS), values), max_size=3),
    epsilon=st.sampled_from([None, 1.0]),
)
@many
def test_settings(name, given_settings, epsilon):
    texts = [f"{key}={value}" for key, value in given_settings]
    with contextlib.suppress(DpbayesError):
        made = get_mechanism(name, **read_settings({"epsilon": epsilon}, texts))
        if not isinstance(made, PosteriorMechanism):
            dpb.Synthesizer(SMALL, made).outlook(50)


@given(name=st.sampled_from(["intercept", "coefficient", "sigma", "shape"]), value=trees)
@many
def test_priors(name, value):
    column = dpb.Column("y", "continuous", lower=0, upper=1)
    for family in ("normal", "gamma"):
        with contextlib.suppress(DpbayesError):
            FAMILIES[family].stan_data(column, {name: value})


def test_it_would_notice():
    """The tests above fail on any other error."""
    with pytest.raises(ZeroDivisionError), contextlib.suppress(DpbayesError):
        _ = 1 / 0


@given(
    typed=st.dictionaries(
        st.sampled_from([*vars(ProjectSettings()), "folder"]), st.one_of(st.text(), scalars, trees)
    )
)
@many
def test_what_a_page_sends_as_choices(typed):
    """Each is one word of a command, so that none is an option of another name."""
    try:
        chosen = ProjectSettings().having(typed)
    except DpbayesError:
        return
    assert all(isinstance(text, str) for text in vars(chosen).values())
    named = ("formula", "family", "mechanism", "datasets", "delta", "ledger", "account", "note")
    words = [*chosen.words_of(*named), *chosen.words_of_kept(), *chosen.words_of_model()]
    assert all(word.startswith("--") and "=" in word for word in words)


OF_TABLE = [*table_form(""), *(f.key for form in grouping_forms("").values() for f in form)]


@given(
    answers=st.dictionaries(
        st.sampled_from([*KEYS, *(f"confirm-{key}" for key in KEYS)]),
        st.one_of(st.text(), st.sampled_from(["count", "identifier", "0", "1\n2", "true", "{}"])),
    ),
    table=st.dictionaries(
        st.sampled_from(OF_TABLE), st.one_of(st.text(), st.sampled_from(["noisy", "9", "{a=1}"]))
    ),
    source=st.text(),
)
@many
def test_what_a_page_sends_as_a_schema(answers, table, source):
    """A schema file that is read, or a message; other columns stay as they were."""
    with contextlib.suppress(DpbayesError):
        text = with_table(answered(DRAFT, "age", answers, source), table)
        assert tomllib.loads(text)["columns"]["sex"] == tomllib.loads(DRAFT)["columns"]["sex"]
