"""No value of a column that the schema does not name decides whether there is a release."""

import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.records.fingerprint import cell_texts
from dpbayes.schema.values import level_text

SCHEMA = dpb.Schema.from_dict({"columns": {"x": {"type": "binary", "levels": ["no", "yes"]}}})
NOTES = {
    "digits": "1" * 4301 + ".0",
    "whole number": 10**5000,
    "half an emoji": "\ud83d",
    "list": [1, 2],
    "table": {"a": 1},
}


@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("accounted", [True, False])
def test_a_value_of_an_undeclared_column_stops_no_job(note, accounted, tmp_path):
    records = pd.DataFrame({
        "x": ["no", "yes"] * 10, "note": pd.Series([*"a" * 19, NOTES[note]], dtype=object),
    })  # fmt: skip
    account = {}
    if accounted:
        ledger = dpb.Ledger.create(f"{tmp_path}/ledger.db")
        ledger.add_dataset("a", epsilon=1)
        account = {"ledger": ledger, "dataset": "a"}
    synthesizer = dpb.Synthesizer(SCHEMA, dpb.Laplace(1))
    dpb.Job((synthesizer,), tmp_path / "out", **account).run(records, lambda line: None)
    assert (tmp_path / "out" / "release" / "guarantee.json").exists()


def test_a_long_field_of_an_undeclared_column_is_read(tmp_path):
    """Python's reader refuses more than 131,072 characters by default."""
    (tmp_path / "a.csv").write_text("x,note\nyes,a\nno," + "b" * 140_000 + "\n")
    read = dpb.read_records(tmp_path / "a.csv", SCHEMA)
    assert read["x"].tolist() == ["yes", "no"]
    chunks = dpb.open_records(tmp_path / "a.csv", SCHEMA, chunk_rows=1)
    assert sum(len(part()) for part in chunks.read()) == 2


def test_a_table_of_noise_begins_no_checkpoint(tmp_path):
    """It has no chains, for which all records would be hashed."""
    table = dpb.Synthesizer(SCHEMA, dpb.Laplace(1))
    fit = table.fit(pd.DataFrame({"x": ["no", "yes"]}), checkpoint=tmp_path / "none")
    assert fit.checkpoint is None
    assert not (tmp_path / "none").exists()


def test_whole_numbers_lose_their_fraction_as_text():
    ones = "1" * 5000
    values = {"1.0": "1", "-0.0": "0", "-12.00": "-12", "01.0": "01.0", f"{ones}.00": ones}
    assert {value: level_text(value) for value in values} == values


def test_lists_have_texts():
    column = pd.Series([[1], [1], None, 2**60], dtype=object)
    assert cell_texts(column)[:3] == ["[1]", "[1]", ""]
