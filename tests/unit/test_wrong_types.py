"""The entries of the Python API refuse arguments of a wrong type by an error of dpbayes."""

import datetime
import math

import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.publication.resolve import resolve
from dpbayes.records.formats import read_records

AGE = dpb.Column("age", "count", upper=99, public=True)
Y = dpb.Column("y", "continuous", lower=0, upper=10)
SCHEMA = dpb.Schema({"age": AGE, "y": Y})
TABLE = dpb.Schema({"y": Y})
RECORDS = pd.DataFrame({"y": [1.0, 2.5, 4.0, 7.5]})
REGRESSION = dpb.Regression("y ~ age", "beta")
CENSORED, LAPLACE = dpb.Censored(5), dpb.Laplace(1, bins=4)


def synthesizer():
    return dpb.Synthesizer(TABLE, LAPLACE)


def publish(**wrong):
    fit = wrong.pop("fit", None) or synthesizer().fit(RECORDS)
    out = wrong.pop("out", "out")
    return dpb.publish(fit, out, **{"say": lambda _: None, **wrong})


def made():
    RECORDS.to_csv("a.csv", index=False)
    return "a.csv"


def ledger():
    return dpb.Ledger.create("ledger.db")


def account():
    made = ledger()
    made.add_dataset("a", 1.0)
    return made


CALLS = {
    "schema a path": (
        lambda: dpb.Synthesizer("schema.toml", LAPLACE),
        dpb.SchemaError,
        "schema is of type str: expected a dpbayes.Schema; a file is read by Schema.from_toml",
    ),
    "schema a dict": (lambda: dpb.Synthesizer({}, LAPLACE), dpb.SchemaError, "type dict"),
    "mechanism text": (
        lambda: dpb.Synthesizer(TABLE, "laplace"), dpb.GuaranteeError, "expected a mechanism"
    ),
    "model text": (
        lambda: dpb.Synthesizer(SCHEMA, CENSORED, "y ~ age"), dpb.SchemaError, "expected a model"
    ),
    "engine": (
        lambda: dpb.Synthesizer(SCHEMA, CENSORED, REGRESSION, engine=datetime.date(2020, 1, 1)),
        dpb.EngineError,
        "engine is of type date: expected an Engine, or the name of one",
    ),
    "settings": (
        lambda: dpb.Synthesizer(TABLE, LAPLACE, settings="x"),
        dpb.EngineError,
        "expected SamplerSettings",
    ),
    "with_settings": (
        lambda: synthesizer().with_settings({"chains": 2}), dpb.EngineError, "type dict"
    ),
    "rows of a release": (
        lambda: publish(rows="40"), dpb.GuaranteeError, "expected a whole number"
    ),
    "out with a null": (lambda: publish(out="a\0b"), dpb.OutputError, "no directory has such"),
    "identity": (
        lambda: account().accept("a", RECORDS), dpb.LedgerError, "expected identity_of(table)"
    ),
    "resolve": (lambda: resolve("ledger.db"), dpb.LedgerError, "expected a dpbayes.Ledger"),
    "weights file": (lambda: dpb.Reference.load({}), dpb.DataError, "expected a path"),
    "encoding": (
        lambda: read_records(made(), encoding=8), dpb.DataError, "expected a name such as utf-8"
    ),
    "input_format": (
        lambda: read_records(made(), file_format=["csv"]), dpb.DataError, "a name such as csv"
    ),
    "rows below 0": (lambda: synthesizer().outlook(-1), dpb.DataError, "rows = -1"),
    "rows infinite": (lambda: synthesizer().outlook(math.inf), dpb.DataError, "rows = inf"),
    "rows text": (lambda: synthesizer().outlook("9"), dpb.DataError, "a whole number"),
    "weights a number": (
        lambda: dpb.CensoredWeighted(6, weights=0.5),
        dpb.GuaranteeError,
        "expected ConstantWeights(0.5), ConfidentialWeights() or a Reference",
    ),
    "weights text": (
        lambda: dpb.Weighted("confidential"), dpb.GuaranteeError, "weights is of type str"
    ),
    "weights of another kind": (
        lambda: dpb.WeightedE(6, dpb.ConstantWeights(0.5)),
        dpb.GuaranteeError,
        "expected ConfidentialWeights",
    ),
    "weight text": (lambda: dpb.ConstantWeights("0.5"), dpb.GuaranteeError, "alpha = '0.5'"),
    "anchor records": (
        lambda: dpb.Anchored(5, RECORDS), dpb.GuaranteeError, "anchor is of type DataFrame"
    ),
    "publish a path for a ledger": (
        lambda: publish(ledger="ledger.db", dataset="a"),
        dpb.LedgerError,
        "expected a dpbayes.Ledger; Ledger(path) opens one",
    ),
    "publish no fit": (lambda: publish(fit=synthesizer()), dpb.GuaranteeError, "expected a Fit"),
    "publish no path": (lambda: publish(out=1), dpb.OutputError, "the path of a folder"),
    "publish say": (lambda: publish(say="loud"), dpb.OutputError, "say is of type str"),
    "job of one": (
        lambda: dpb.Job(synthesizer(), "out"), dpb.GuaranteeError, "of a single one, (synthesizer,)"
    ),
    "job of text": (lambda: dpb.Job(["x"], "out"), dpb.GuaranteeError, "a candidate is of type"),
    "job out": (lambda: dpb.Job((synthesizer(),), 1), dpb.OutputError, "the path of a folder"),
    "job ledger": (
        lambda: dpb.Job((synthesizer(),), "out", ledger="ledger.db", dataset="a"),
        dpb.LedgerError,
        "ledger is of type str",
    ),
    "choose": (lambda: dpb.choose_program(["x", "y"], RECORDS, 1), dpb.GuaranteeError, "candidate"),
    "budget text": (
        lambda: ledger().add_dataset("q", epsilon="1"), dpb.GuaranteeError, "epsilon = '1'"
    ),
    "budget true": (
        lambda: ledger().add_dataset("q", epsilon=True), dpb.GuaranteeError, "epsilon = True"
    ),
    "name a number": (
        lambda: ledger().add_dataset(1, epsilon=1), dpb.LedgerError, "name of a data set is of type"
    ),
    "name of no character": (
        lambda: ledger().add_dataset("\0", epsilon=1), dpb.LedgerError, "all printable"
    ),
    "overlap true": (
        lambda: dpb.Ledger.create("ledger.db", overlap=True), dpb.LedgerError, "overlap = True"
    ),
    "ledger of no name": (lambda: dpb.Ledger.create("\ud800"), dpb.LedgerError, "no file can have"),
    "ledger of no path": (lambda: dpb.Ledger(1), dpb.LedgerError, "expected a path or a URL"),
    "formula": (lambda: dpb.Regression(None, "beta"), dpb.SchemaError, "formula is of type None"),
    "priors": (
        lambda: dpb.Regression("y ~ age", "beta", ["coefficient", 2]),
        dpb.SchemaError,
        "expected a mapping such as {'intercept': (0, 1)}",
    ),
    "constants": (
        lambda: dpb.Program("a.stan", "y ~ 1", [1]), dpb.SchemaError, "constants is of type list"
    ),
    "program": (lambda: dpb.Program(1, "y ~ 1"), dpb.ProgramError, "the path of a Stan file"),
    "regression on": (lambda: REGRESSION.on(None), dpb.SchemaError, "expected a dpbayes.Schema"),
    "program on": (
        lambda: dpb.Program("a.stan", "y ~ 1").on({}), dpb.SchemaError, "schema is of type dict"
    ),
    "sequence on": (
        lambda: dpb.Sequence([REGRESSION]).on("schema.toml"), dpb.SchemaError, "dpbayes.Schema"
    ),
    "sequence of None": (lambda: dpb.Sequence([None]), dpb.SchemaError, "an entry of a sequence"),
    "sequence of one": (lambda: dpb.Sequence(REGRESSION), dpb.SchemaError, "expected a list of"),
    "family": (lambda: dpb.register_family("beta"), dpb.SchemaError, "expected a dpbayes.Family"),
    "columns a list": (lambda: dpb.Schema([Y]), dpb.SchemaError, "columns is of type list"),
    "column of another name": (
        lambda: dpb.Schema({"a": Y}), dpb.SchemaError, "columns: 'a' stands for a column 'y'"
    ),
    "name of a column": (
        lambda: dpb.Column(1e308, "count", upper=3), dpb.SchemaError, "the name of a column is"
    ),
    "from_toml": (lambda: dpb.Schema.from_toml(None), dpb.SchemaError, "expected a path"),
    "to_toml": (lambda: SCHEMA.to_toml(None), dpb.SchemaError, "expected a path"),
    "adapt_delta": (
        lambda: dpb.SamplerSettings(adapt_delta=".9"), dpb.EngineError, "adapt_delta = '.9'"
    ),
    "for_total": (lambda: dpb.for_total(SCHEMA, 1), dpb.GuaranteeError, "synthesizer is of type"),
    "tune": (lambda: dpb.tune("x", RECORDS, 1), dpb.GuaranteeError, "synthesizer is of type str"),
    "save": (lambda: synthesizer().fit(RECORDS).save(1), dpb.OutputError, "expected a path"),
    "load": (lambda: dpb.load(None), dpb.OutputError, "expected a path"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "part"), CALLS.values(), ids=CALLS)
def test_a_wrong_argument_is_refused(call, error, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert part in str(caught.value)


def test_a_message_repeats_no_record_and_no_password():
    with pytest.raises(dpb.SchemaError, match="is of type DataFrame") as caught:
        dpb.Synthesizer(RECORDS, LAPLACE)
    assert "7.5" not in str(caught.value)
    with pytest.raises(dpb.LedgerError) as refused:
        dpb.Job((synthesizer(),), "out", ledger="postgresql://me:sesame@host/db", dataset="a")
    assert "sesame" not in str(refused.value)
