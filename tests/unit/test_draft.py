"""Schemas read off records: every entry is marked, and no claim holds while one is left."""

import re
import tomllib

import jsonschema
import numpy as np
import pandas as pd
import pyreadstat
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.core.errors import DpbayesError
from dpbayes.core.frames import as_frame
from dpbayes.records.formats.reader import read_coded
from dpbayes.schema.columns import KEYS
from dpbayes.schema.draft import FORMATS, MARK, guesses, text
from dpbayes.schema.editors import json_schema, key_descriptions
from dpbayes.schema.table import UNITS
from tests.fuzzing import many, numbers, said, scalars
from tests.unit.test_any_input import schemas

ROWS = 40
VALIDATOR = jsonschema.Draft202012Validator(json_schema())
TEXTS = {"region": ["north", "south", "west"], "name": [f"n{k}" for k in range(ROWS)]}


def records():
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "income": rng.integers(0, 2_300_000, ROWS) / 100,
            "year": rng.integers(1990, 2021, ROWS),
            "change": rng.integers(-12, 13, ROWS),
            "children": rng.integers(0, 4, ROWS),
            "ill": rng.integers(0, 2, ROWS).astype(bool),
            "sex": rng.choice([1, 2], ROWS),
            "code": rng.choice(["01", "02", "10"], ROWS),
            "region": rng.choice(TEXTS["region"], ROWS),
            "score": np.where(np.arange(ROWS) == 3, 999, rng.integers(0, 40, ROWS)),
            "name": TEXTS["name"],
            "person": rng.permutation(ROWS) + 17,
            "born": ["1980-01-31", "2001-12-24"] * (ROWS // 2),
            "one": 1,
            "always": "x",
            "none": [None] * ROWS,
        }
    )


def test_what_is_guessed():
    found = dpb.Schema.from_frame(records())
    entries = {
        c.name: (c.type, c.lower, c.upper, c.levels, c.digits) for c in found.columns.values()
    }
    assert entries == {
        "income": ("continuous", 0, 30_000, (), 2),
        "year": ("count", 1990, 2020, (), None),
        "change": ("continuous", -20, 20, (), 0),
        "children": ("count", 0, 3, (), None),
        "ill": ("binary", None, None, (0, 1), None),
        "sex": ("binary", None, None, (1, 2), None),
        "code": ("categorical", None, None, ("01", "02", "10"), None),
        "region": ("categorical", None, None, ("north", "south", "west"), None),
        "score": ("count", 0, 40, (), None),
        "born": ("date", 3652, 11687, (), None),  # from 1980-01-01 to 2001-12-31
        "one": ("count", 0, 1, (), None),
    }
    for column in found.columns.values():
        marked = {
            key for key in KEYS if not (getattr(column, key) in (None, ()) or key == "public")
        }
        marked -= {MARK}
        assert set(column.guessed) == marked, "every key is marked"
    assert len(found.validate(records())) == ROWS


def test_a_draft_reads_as_it_was_guessed_and_comments_each_guess():
    found = guesses(records())
    draft = text(found)
    schema = dpb.Schema.from_dict(tomllib.loads(draft))
    assert schema == dpb.Schema.from_frame(records())
    marked = sum(len(column.guessed) for column in schema.columns.values())
    assert draft.count("  # GUESSED: ") == marked
    reasons = {
        "name": "40 different texts in 40 rows: names, keys or notes?",
        "person": "Whole numbers, another one in every row: a key of persons? Then "
        'type = "identifier", which is dropped.',
        "always": "The same value everywhere; a column needs two levels.",
        "none": "No row has a value.",
    }
    for name, why in reasons.items():
        assert f"# {why}\n# [columns.{name}] left out" in draft
        assert name not in schema.columns
    assert "\nmissing = [999]  # GUESSED: far from the others" in draft


def test_what_is_missing_and_what_is_a_day():
    frame = pd.DataFrame(
        {
            "wage": [3.5, None, 7.25, 1.0] * 5,
            "seen": ["2020-02-01", "", "2021-07-31", "."] * 5,
            "at": ["2020-02-01 12:00:00", "2021-07-31 00:00:00"] * 10,
        }
    )
    found = guesses(frame)
    draft = text(found)
    assert "missing = true  # GUESSED: " in draft
    assert "lower = 2020-01-01  # GUESSED: " in draft
    assert "lower = 2020-01-01 00:00:00  # GUESSED: " in draft
    schema = dpb.Schema.from_dict(tomllib.loads(draft))
    assert schema["seen"].type == "date"
    assert schema["seen"].missing == ("",)
    assert schema["at"].type == "datetime"
    assert schema.validate(frame)["wage"].isna().sum() == 5


def test_days_in_other_formats():
    days = pd.Series(pd.date_range("1978-03-01", periods=60, freq="17D"))
    columns = {name: days.dt.strftime(name) for name in FORMATS}
    early = days.dt.strftime("%Y").radd("05/04/")
    found = guesses(pd.DataFrame({**columns, "early": early}))
    for name in FORMATS:
        assert found[name].entry["format"] == name
        assert found[name].entry["lower"].year == 1978
    assert "%d/%m/%Y fits, too" in found["early"].why["format"]


def test_texts_for_no_value_and_true_reasons():
    numbers = [str(k) for k in range(97)]
    frame = pd.DataFrame(
        {
            "income": [*numbers, "N/A", "null", "?"],
            "town": [f"town {k % 50}" for k in range(98)] + ["N/A"] * 2,
            "dollars": [f"${k}" for k in range(100)],
            "all": ["N/A"] * 100,
        }
    )
    found = guesses(pd.concat([frame] * 5))
    for other in ("2,483.62", "2.483,62", "2 483", "-2'483'000"):
        marked = pd.DataFrame({"x": [other, "12,001"] * 9})
        assert "marks for thousands" in guesses(marked)["x"].notes[0]
    assert not any("marks" in note for note in found["town"].notes)
    assert not any("marks" in note for note in found["income"].notes)
    assert found["income"].entry["type"] == "count"
    assert found["income"].entry["missing"] == ["?", "N/A", "null"]
    assert len(found["town"].entry["levels"]) == 50
    assert found["town"].entry["missing"] == ["N/A"]
    many = guesses(pd.DataFrame({"x": [f"${k % 401}" for k in range(900)]}))["x"]
    assert not many.entry
    assert many.notes[0].startswith("401 different texts, more than 400: ")
    assert guesses(pd.DataFrame({"age": [20, 31, -9, -6, 55] * 9}))["age"].entry["lower"] == -10


def panel(rows=800):
    rng = np.random.default_rng(2)
    year = np.tile(np.arange(1980, 1988), rows // 8)
    wage, bonus = rng.integers(0, 900, rows), rng.integers(0, 90, rows)
    start = pd.Series(pd.date_range("1990-01-01", periods=rows))
    town = rng.integers(0, 30, rows)
    return pd.DataFrame(
        {
            "nr": np.repeat(rng.permutation(rows // 8), 8),
            "year": year,
            "wage": wage,
            "bonus": bonus,
            "total": wage + bonus,
            "late": np.where(year > 1985, "yes", "no"),
            "asked": np.where(year == 1986, rng.choice(["a", "b"], rows), None),
            "town": town,
            "region": np.arange(30)[town] // 10,
            "start": start.dt.strftime("%Y-%m-%d"),
            "end": (start + pd.to_timedelta(rng.integers(0, 9, rows), "D")).dt.strftime("%d.%m.%Y"),
        }
    )


def test_persons_of_a_panel_with_gaps_are_known_by_their_rows():
    """Whatever the column is called: nobody has two rows of one year, as chance would bring."""
    rng = np.random.default_rng(1)
    person = np.repeat(np.arange(400), rng.integers(1, 12, 400))
    year = np.concatenate([rng.choice(15, (person == k).sum(), replace=False) for k in range(400)])
    height = rng.normal(170, 8, 400).round(2)[person]
    records = pd.DataFrame(
        {"zper": person * 7 + 100_003, "year": 1970 + year, "height": height,
         "wage": rng.gamma(3, 4, len(person)).round(1), "rank": rng.integers(0, 400, len(person))}
    )  # fmt: skip
    found = guesses(records)
    assert [name for name, guess in found.items() if guess.of_persons] == ["zper"]
    assert found["height"].entry["type"] == "continuous"
    assert not any("Follows from 'zper'" in note for g in found.values() for note in g.notes)


def test_a_condition_on_a_number_of_a_file_is_a_number():
    """Files are read as text: with quotes the rule would be refused."""
    rng = np.random.default_rng(2)
    year = rng.integers(0, 4, 600)
    pay = pd.Series(rng.integers(9, 99, 600).astype(str)).mask(year == 1)
    records = pd.DataFrame({"year": [str(70 + k) for k in year], "pay": pay})
    text = "\n".join(guesses(records)["pay"].notes)
    assert "only_if = 'year != 71'" in text


def test_nothing_follows_from_a_measurement_that_tells_rows_apart():
    """Each wage has one value of the treatment, as few rows share one: that is chance."""
    rng = np.random.default_rng(3)
    wage = (rng.permutation(600) + 0.25).repeat(6)
    records = pd.DataFrame({"wage": wage, "treated": wage % 2 > 1, "pay": 2 * wage + 1})
    notes = {name: "".join(guess.notes) for name, guess in guesses(records).items()}
    assert "Follows" not in notes["treated"]
    assert "Follows from 'wage'" in notes["pay"]  # one for one


def test_what_columns_have_to_do_with_each_other():
    found = guesses(panel())
    notes = {name: "\n".join(guess.notes) for name, guess in found.items()}
    assert not found["nr"].entry
    assert "Each of 100 values stands in up to 8 rows: an identifier of persons?" in notes["nr"]
    assert 'column = "nr"\nmost =  #' in notes["nr"]
    assert 'rules = ["total == wage + bonus"]' in notes["total"]
    assert "Follows from 'year'" in notes["late"]
    assert "Follows from 'town'" in notes["region"]
    assert "only_if = 'year == 1986'" in notes["asked"]
    assert 'rules = ["start <= end"]' in notes["start"]
    some = panel().assign(nr=panel()["nr"].where(np.arange(len(panel())) % 40 > 0))
    assert not guesses(some)["nr"].entry  # an identifier all the same
    assert "Each of 100 values stands in up to 8 rows" in guesses(some)["nr"].notes[0]
    apart = panel().rename(columns={"start": "first day"})
    assert "`first day` <= end" in guesses(apart)["first day"].notes[0]
    assert [notes[name] for name in ("year", "wage", "town", "end")] == [""] * 4


def test_who_decides_other_columns_is_asked_about_whatever_the_name():
    """Mothers of one to three children: what is the mother's is the same in all of their rows."""
    rng = np.random.default_rng(4)
    mother = np.repeat(np.arange(700), rng.integers(1, 4, 700))
    n = len(mother)
    records = pd.DataFrame({
        "mom": 1000 + mother, "village": rng.integers(0, 60, 700)[mother],
        "school": rng.integers(0, 4, 700)[mother], "work": rng.integers(0, 2, 700)[mother],
        "ill": rng.integers(0, 2, n), "age": rng.integers(0, 5, n), "ward": rng.integers(0, 60, n),
    })  # fmt: skip
    found = guesses(records)
    assert [name for name, guess in found.items() if guess.of_persons] == ["mom"]
    apart = records.assign(mom=rng.permutation(records["mom"]))
    assert not any(guess.of_persons for guess in guesses(apart).values())


def test_parts_of_a_column_are_suggested_and_no_accident():
    """Hits are at most trials; heights are above weights, and income above age, by their scale."""
    rng = np.random.default_rng(5)
    trials = rng.poisson(3, 900)
    hits = rng.binomial(trials, 0.4)
    frame = pd.DataFrame({"hits": hits, "trials": trials, "double hits": rng.binomial(hits, 0.3)})
    frame["height"] = rng.normal(170, 8, 900).round(1)
    frame["weight"] = (frame["height"] - 100 + rng.normal(0, 9, 900)).round(1)
    frame["age"], frame["income"] = rng.integers(18, 90, 900), rng.integers(500, 9000, 900)
    notes = {name: guess.notes for name, guess in guesses(frame).items()}
    assert notes.pop("hits") == ['True in all rows: rules = ["hits <= trials"]?']
    assert notes.pop("double hits") == ['True in all rows: rules = ["`double hits` <= hits"]?']
    assert not any(notes.values())
    assert dpb.Schema.from_dict(
        {"rules": ["`double hits` <= hits"], "columns": {
            name: {"type": "count", "upper": 30} for name in ("hits", "trials", "double hits")
        }}
    )  # fmt: skip


def couples():
    """Columns with equations: of ages with a constant, of a square, and of rounded wages."""
    rng = np.random.default_rng(6)
    n = 600
    frame = pd.DataFrame({"school": rng.integers(8, 19, n), "work": rng.integers(0, 40, n)})
    frame["age"] = frame["school"] + frame["work"] + 6
    frame["squared"] = frame["work"] ** 2
    frame["hours"] = rng.integers(0, 60, n)
    wage = rng.gamma(4, 3, n).astype(np.float32)
    frame["wage"] = np.where(frame["hours"] > 0, wage.astype(float), np.nan)
    exact = np.where(frame["hours"] > 0, frame["hours"] * frame["wage"], 0.0)
    frame["pay"] = exact.astype(np.float32).astype(float)
    frame["dollars"] = rng.integers(0, 5, n) * 22_500
    frame["thousands"] = frame["dollars"] / 1000 * rng.random(n)
    frame["none"] = 0
    return frame


def test_equations_are_found_with_a_constant_and_up_to_rounding():
    notes = {name: guess.notes for name, guess in guesses(couples()).items()}
    assert notes["age"] == ['True in all rows: rules = ["age == school + work + 6"]?']
    assert 'True in all rows: rules = ["squared == work * work"]?' in notes["squared"]
    assert [note[:34] for note in notes["pay"]] == ["Equal to hours * wage in all rows "]
    tree = tomllib.loads(text(guesses(couples())))
    tree["rules"] = ["age == school + work + 6", "squared == work * work"]
    assert len(dpb.Schema.from_dict(tree).validate(couples())) == 600


def test_no_order_is_suggested_between_unlike_units_or_where_it_follows():
    """Equal at 0 alone, or at 0 and 1; or a term of a sum."""
    assert not any("<=" in note for g in guesses(couples()).values() for note in g.notes)
    once = couples().assign(age=lambda frame: frame["age"] - 6)
    notes = [note for guess in guesses(once).values() for note in guess.notes]
    assert 'True in all rows: rules = ["age == school + work"]?' in notes
    assert not any("<=" in note for note in notes)


def test_what_is_suggested_is_taken():
    """A schema with the lines written in is one that the records fit."""
    tree = tomllib.loads(text(guesses(panel())))
    tree["columns"]["nr"] = {"type": "identifier"}
    tree["cluster"] = {"column": "nr", "most": 8}
    tree["columns"]["asked"]["only_if"] = "year == 1986"
    tree["rules"] = ["total == wage + bonus", "start <= end"]
    schema = dpb.Schema.from_dict(tree)
    assert len(schema.validate(panel())) == 800
    schema.check_identifiers(panel())


def test_nothing_is_suggested_of_columns_without_relations():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(rng.integers(0, 12, (600, 8)), columns=list("abcdefgh"))
    frame["text"] = rng.choice(["u", "v", "w"], 600)
    frame["gap"] = np.where(rng.random(600) < 0.3, None, "x")
    frame.loc[frame["gap"].notna(), "gap"] = rng.choice(["s", "t"], int(frame["gap"].notna().sum()))
    assert not any(guess.notes for guess in guesses(frame).values())


def test_labels_are_levels_in_the_order_of_their_codes():
    frame = pd.DataFrame({"health": [3.0, 1.0] * 5, "age": [20.0, 99.0, 31.0, 40.5, 7.0] * 2})
    labels = {"health": {1: "good", 2: "fair", 3: "bad\n#"}, "age": {99: "refused"}}
    found = guesses(frame, labels)
    assert found["health"].entry["levels"] == ["good", "fair", "bad\n#"]
    assert found["age"].entry["type"] == "continuous"
    assert any("'99' 'refused'" in note for note in found["age"].notes)
    assert tomllib.loads(text(found))["columns"]["health"]["levels"] == ["good", "fair", "bad\n#"]


def test_what_a_stata_file_says_of_columns(tmp_path):
    """Labels of kinds of missing values are no levels, and a title cannot write a line."""
    frame = pd.DataFrame({"health": [1.0, 2.0, "b", "a"] * 5, "wage": [2.0, "a", 31.0, 40.0] * 5})
    labels = {"health": {1: "good", 2: "bad", "a": "refused"}, "wage": {"a": "refused"}}
    pyreadstat.write_dta(
        frame, tmp_path / "x.dta", variable_value_labels=labels,
        column_labels={"health": "state of health", "wage": "euros\n[columns.wage]\npublic = true"},
        missing_user_values={"health": ["a", "b"], "wage": ["a"]},
    )  # fmt: skip
    read = read_coded(tmp_path / "x.dta")
    found = guesses(read.frame, read.labels, read.titles)
    assert found["health"].entry["levels"] == ["good", "bad"]
    read = tomllib.loads(text(found))["columns"]
    assert read["health"]["label"] == "state of health"
    assert read["wage"]["label"] == "euros [columns.wage] public = true"
    assert "public" not in read["wage"]
    assert "label" in read["wage"]["guessed"]


def test_a_label_that_a_column_cannot_have_is_a_comment():
    frame = pd.DataFrame({"age": np.arange(30) % 7, "name": [f"person {k}" for k in range(30)]})
    found = guesses(frame, titles={"age": "a" * 81, "name": "of the person"})
    assert "label" not in found["age"].entry
    assert found["age"].notes[0] == f"In the file: {'a' * 81}"
    assert found["name"].notes[0] == "In the file: of the person"


def test_spikes_stand_out_and_groups_are_few():
    steps = np.tile(np.arange(40) / 2, 10)  # each with 2.5 % of the rows
    income = np.where(np.arange(400) % 10 == 0, 7.25, np.arange(400) / 16)
    town = np.resize([3750, 8750, 250_000], 400)
    rng = np.random.default_rng(3)
    even = np.concatenate([steps[:200], rng.choice([5.0, 5.5, 6.0], 200)])
    frame = pd.DataFrame({"steps": even, "income": income, "town": town})
    frame["year"] = np.resize([-2.5, -1.5, 0.5], 400)
    notes = {name: " ".join(guess.notes) for name, guess in guesses(frame).items()}
    assert "exactly 5, 5.5, 6." in notes["steps"]
    assert "exactly 7.25." in notes["income"]
    assert 'rules = ["NAME in [-2.5, -1.5, 0.5]"]' in notes["year"]
    assert "atoms" not in notes["year"]
    assert 'type = "ordinal", levels = [3750, 8750, 250000]' in notes["town"]
    usual = pd.DataFrame({"z": np.round(rng.normal(0, 4, 400) * 2) / 2})  # modes of 4 %, no spike
    assert not guesses(usual)["z"].notes


def test_few_decimals_that_repeat_are_suggested_as_levels():
    """As whole numbers are; a few measurements, each once or twice, are not."""
    hospital = [2.40000009536743, 2.5, 6, *np.arange(14) * 0.7 + 0.3]
    frame = pd.DataFrame({"hospital": np.resize(hospital, 400)})
    note = guesses(frame)["hospital"].notes[0]
    assert note.startswith("17 different values only. If they are groups")
    assert 'type = "ordinal", levels = [0.3, 1, 1.7' in note
    assert "2.40000009536743, 2.5, " in note
    for few in (np.resize(np.arange(20) * 0.7, 40), np.arange(400) / 16):
        assert "levels" not in " ".join(guesses(pd.DataFrame({"x": few}))["x"].notes)


def test_no_claim_holds_while_a_guess_is_left(tmp_path):
    schema = dpb.Schema.from_frame(records()[["income", "region"]])
    claim = dpb.Synthesizer(schema, dpb.Laplace(1)).guarantee()
    assert claim.basis == "none"
    assert claim.to_dict()["epsilon"] is None
    assert "not confirmed from public knowledge (column 'income': type" in claim.paragraph()
    for accept in ("strict", "asymptotic"):
        with pytest.raises(dpb.GuaranteeError, match="guesses left: column 'income': type, lower"):
            claim.require(accept)
        synthesizer = dpb.Synthesizer(schema, dpb.Laplace(1))
        with pytest.raises(dpb.GuaranteeError, match="column 'region': type, levels"):
            dpb.Job((synthesizer,), tmp_path / "out", accept=accept)
    with pytest.raises(dpb.GuaranteeError, match="guesses left"):
        dpb.Synthesizer(schema, dpb.Laplace(1)).fit(records()).sample(seed=1)
    assert dpb.Synthesizer(schema, dpb.Laplace(1)).fit(records()).sample(seed=1, accept="none")


def test_a_confirmed_schema_has_its_claim():
    tree = dpb.Schema.from_frame(records()[["income", "region"]]).to_dict()
    tree["columns"]["income"][MARK] = []
    with pytest.raises(dpb.GuaranteeError, match=r"left: column 'region': type, levels\. What"):
        dpb.Synthesizer(dpb.Schema.from_dict(tree), dpb.Laplace(1)).guarantee().require("strict")
    del tree["columns"]["region"][MARK]
    confirmed = dpb.Schema.from_dict(tree)
    assert confirmed.guesses == ""
    dpb.Synthesizer(confirmed, dpb.Laplace(1)).guarantee().require("strict")


@pytest.mark.parametrize("value", ["type", ["kind"], ["guessed"], 1, True, [["type"]]])
def test_marks_are_keys(value):
    entry = {"type": "count", MARK: value}
    with pytest.raises(dpb.SchemaError, match=r"guessed = .* must be a list of keys: type, lower"):
        dpb.Schema.from_dict({"columns": {"x": entry}})


cells = st.one_of(scalars, numbers, st.sampled_from(["01", "2020-01-31", "NA", ".", "1.0", "a"]))


@pytest.mark.fuzz
@given(
    table=st.dictionaries(
        st.text(max_size=4), st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=3
    ),
    labelled=st.dictionaries(
        st.one_of(st.text(max_size=3), st.floats(), st.integers(-99, 99)),
        st.text(max_size=5),
        max_size=3,
    ),
)
@many
def test_any_frame(table, labelled):
    """A draft of it is a schema, which the records fit."""
    frame = as_frame(pd.DataFrame(table, dtype=object))
    found = guesses(frame, {next(iter(table)): labelled})
    tree = tomllib.loads(text(found))
    if not tree.get("columns"):
        return
    schema = dpb.Schema.from_dict(tree)
    assert all(column.guessed for column in schema.columns.values())
    refused = said(lambda: schema.validate(frame).shape)
    assert labelled or refused.startswith("("), refused


@pytest.mark.fuzz
@given(tree=schemas)
@many
def test_editors_refuse_no_schema_that_is_taken(tree):
    try:
        plain = dpb.Schema.from_dict(tree).to_dict()
    except DpbayesError:
        return
    VALIDATOR.validate(plain)


@pytest.mark.parametrize(
    "change",
    [
        {"typ": "count"},
        {"type": "number"},
        {"lower": "0"},
        {"levels": "a"},
        {"public": "yes"},
        {"digits": 1.5},
        {MARK: ["kind"]},
    ],
)
def test_editors_see_what_is_wrong(change):
    good = {"columns": {"x": {"type": "count", "lower": 0, "upper": 9}}}
    jsonschema.validate(good, json_schema())
    bad = {"columns": {"x": {**good["columns"]["x"], **change}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(bad, json_schema())
    with pytest.raises(dpb.SchemaError):
        dpb.Schema.from_dict(bad)


def test_every_key_is_described_where_people_look():
    from dpbayes.schema import COLUMN_TYPES
    from tests.unit.test_contributing import PACKAGE

    page = (PACKAGE.parent / "docs" / "schema.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    named = {name for cell in listed for name in re.findall(r"`(\w+)`", cell)}
    assert set(KEYS) <= named
    assert all(f"`{kind}`" in page for kind in COLUMN_TYPES)
    descriptions = key_descriptions(dpb.Column)
    assert set(KEYS) <= set(descriptions), "the docstring of Column says what each key is"


def test_bounds_that_are_values_of_records_are_called_so():
    years = pd.DataFrame(
        {"year": [1979 + k % 10 for k in range(40)], "age": [23 + k // 2 for k in range(40)]}
    )
    year, age = (guesses(years)[name] for name in ("year", "age"))
    assert (year.entry["lower"], year.why["lower"].partition(";")[0]) == (
        1979,
        "the smallest value",
    )
    assert age.entry["upper"] > 42
    assert age.why["upper"].startswith("above the largest value;")


def test_columns_that_follow_with_missing_values_and_both_ways():
    """Of two columns that say the same the later one follows; chance makes none."""
    rng = np.random.default_rng(1)
    party = rng.choice(["left", "middle", "right", "other"], 400)
    number = pd.Series(party).map({"left": 1, "middle": 2, "right": 3})  # missing for others
    side = pd.Series(party).map({"left": "l", "middle": "m", "right": "r", "other": "o"})
    table = pd.DataFrame({"party": party, "number": number, "side": side})
    table["by_chance"] = rng.choice(["x", "y", "z"], 400)
    notes = {name: " ".join(guess.notes) for name, guess in guesses(table).items()}
    assert "Follows from 'party'" in notes["number"]
    assert "Follows from 'party'" in notes["side"]
    assert "Follows" not in notes["party"] + notes["by_chance"]
    table.loc[np.flatnonzero(party == "left")[0], "number"] = 2
    assert "Follows" not in " ".join(guesses(table)["number"].notes)


def test_a_question_that_was_not_asked_in_some_years_is_suggested():
    """Also where others did not answer it, and not where few rows are missing by chance."""
    rng = np.random.default_rng(1)
    year = rng.choice([1986, 1991, 1998, 2006], 800)
    answer = np.where(rng.random(800) < 0.3, np.nan, rng.integers(1, 9, 800))
    table = pd.DataFrame({"year": year, "sex": rng.choice(["f", "m"], 800)})
    table["late"] = np.where(year >= 1998, answer, np.nan)
    table["but_one"] = np.where(year != 1991, answer, np.nan)
    table["any"] = answer
    table.loc[800] = [1977, "f", 3.0, 3.0, np.nan]  # one row of a year
    notes = {name: " ".join(guess.notes) for name, guess in guesses(table).items()}
    some = "Missing wherever this is not true, and in some other rows: only_if = "
    assert f"{some}'year in [1977, 1998, 2006]'" in notes["late"]
    assert f"{some}'year != 1991', beside missing = true?" in notes["but_one"]
    assert "only_if" not in notes["any"] + notes["sex"]


def test_codes_that_begin_at_1_have_no_0():
    found = guesses(pd.DataFrame({"code": [1, 2, 3, 4] * 20, "age": [11, 30, 52, 71] * 20}))
    assert (found["code"].entry["lower"], found["code"].entry["upper"]) == (1, 4)
    assert found["age"].entry["lower"] == 0


@pytest.mark.parametrize("kind", UNITS)
def test_editors_know_what_makes_up_a_unit(kind):
    """Households and panels, with all that their declarations can have."""
    entry = tomllib.loads(f"x = {kind.example}")["x"]
    columns = {"age": {"type": "count", "upper": 99}}
    jsonschema.validate({kind.table: entry, "columns": columns}, json_schema())
    with pytest.raises(jsonschema.ValidationError, match="wave"):
        jsonschema.validate({kind.table: entry | {"wave": 1}, "columns": columns}, json_schema())
