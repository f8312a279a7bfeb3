"""The schema as a form: what is typed becomes lines of the file, and other lines stay."""

import tomllib

import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.app.forms import (
    WORDS,
    answered,
    column_forms,
    grouping_forms,
    table_form,
    with_table,
    without_columns,
)
from dpbayes.core.errors import SchemaError
from dpbayes.schema.columns import KEYS
from dpbayes.schema.confirmation import (
    as_identifier,
    columns_left_out,
    confirmed,
    declared,
    removed,
    taken_back,
)
from dpbayes.schema.draft import MARK, guesses, text
from dpbayes.schema.table import KNOWN


@pytest.fixture
def draft():
    """A draft as `dpbayes schema draft` writes it."""
    frame = pd.DataFrame(
        {
            "person": [f"p{k}" for k in range(40)],
            "age": [18 + k % 20 for k in range(40)],
            "wage": [100.5 * k if k % 5 else None for k in range(40)],
            "sex": ["f", "m"] * 20,
        }
    )
    return text(guesses(frame))


def as_typed(schema, column):
    """What the form holds when the page is opened."""
    return {
        field.key: field.typed
        for field in column_forms(schema)[column].fields
        if field.kind != "truth" or field.typed == "true"
    }


def as_grouped(schema):
    """What the page holds of rows that belong together."""
    return {field.key: field.typed for form in grouping_forms(schema).values() for field in form}


def entry(schema, column):
    return tomllib.loads(schema)["columns"][column]


def test_every_key_of_a_column_has_words():
    assert set(WORDS) == {key for key in KEYS if key != MARK}


def test_every_key_of_the_table_has_a_place():
    """But the columns, and what the page takes as choices or only as text."""
    assert set(table_form("")) | set(grouping_forms("")) == set(KNOWN) - {
        "columns",
        "keep",
        "model",
    }


def test_a_form_that_is_sent_as_it_is_changes_nothing(draft):
    for name in column_forms(draft):
        assert answered(draft, name, as_typed(draft, name), "") == draft
    assert with_table(draft, table_form(draft) | as_grouped(draft)) == draft


def test_all_guesses_confirmed_with_their_source(draft):
    for name, form in column_forms(draft).items():
        ticks = {f"confirm-{field.key}": "on" for field in form.fields if field.guessed}
        draft = answered(draft, name, as_typed(draft, name) | ticks, "questionnaire, p. 3")
    assert not dpb.Schema.from_dict(tomllib.loads(draft)).guesses
    assert draft.count("# questionnaire, p. 3") > 6


def test_a_value_is_replaced_and_what_is_not_ticked_stays_guessed(draft):
    typed = as_typed(draft, "age") | {"upper": "110", "confirm-upper": "on"}
    after = answered(draft, "age", typed, "law of 1990")
    assert entry(after, "age")["upper"] == 110
    assert set(entry(after, "age")[MARK]) == set(entry(draft, "age")[MARK]) - {"upper"}
    assert "upper = 110  # law of 1990" in after


def test_who_says_so_is_asked(draft):
    with pytest.raises(SchemaError, match="who says so"):
        answered(draft, "age", as_typed(draft, "age") | {"confirm-upper": "on"}, " ")


def test_levels_and_codes_are_lines(draft):
    typed = as_typed(draft, "sex") | {"levels": "f\r\nm\r\nx\r\n", "type": "categorical"}
    after = answered(draft, "sex", typed, "")
    assert entry(after, "sex")["levels"] == ["f", "m", "x"]
    typed = as_typed(after, "age") | {"missing": "-9\n-8"}
    assert entry(answered(after, "age", typed, ""), "age")["missing"] == [-9, -8]
    typed = as_typed(after, "age") | {"missing": "N/A"}
    assert entry(answered(after, "age", typed, ""), "age")["missing"] == ["N/A"]


def test_an_empty_entry_takes_the_key_out(draft):
    after = answered(draft, "wage", as_typed(draft, "wage") | {"missing": ""}, "")
    assert "missing" not in entry(after, "wage")
    assert "missing" not in entry(after, "wage")[MARK]


def test_public_and_words(draft):
    typed = as_typed(draft, "age") | {"public": "true", "label": "age in years", "unit": "years"}
    after = answered(draft, "age", typed, "")
    assert (entry(after, "age")["public"], entry(after, "age")["label"]) == (True, "age in years")
    unticked = {key: value for key, value in as_typed(after, "age").items() if key != "public"}
    assert "public" not in entry(answered(after, "age", unticked, ""), "age")


def test_an_identifier_has_no_other_key(draft):
    after = answered(draft, "age", as_typed(draft, "age") | {"type": "identifier"}, "")
    assert entry(after, "age") == {"type": "identifier"}


def test_codes_become_levels(draft):
    """As by `dpbayes schema confirm`: the whole numbers between the bounds, still guessed."""
    after = answered(draft, "age", as_typed(draft, "age") | {"type": "ordinal"}, "")
    assert entry(after, "age")["levels"][0] == entry(draft, "age")["lower"]
    assert "levels" in entry(after, "age")[MARK]


def test_bounds_that_change_with_the_type_come_first(draft):
    typed = as_typed(draft, "age") | {"type": "ordinal", "lower": "18", "upper": "21"}
    assert entry(answered(draft, "age", typed, ""), "age")["levels"] == [18, 19, 20, 21]


@pytest.mark.parametrize("kind", ["count", "continuous"])
def test_levels_become_bounds_and_what_the_new_type_has_not_goes(kind):
    frame = pd.DataFrame({"code": [2, 7] * 30, "wage": [1.25 * k for k in range(60)]})
    draft = text(guesses(frame))
    after = answered(draft, "code", as_typed(draft, "code") | {"type": kind}, "")
    guessed = ["type", "lower", "upper"]
    assert entry(after, "code") == {"type": kind, "lower": 2, "upper": 7, MARK: guessed}
    sure = {f"confirm-{key}": "" for key in ("type", "levels")}
    known = answered(draft, "code", as_typed(draft, "code") | sure, "p. 2")
    after = answered(known, "code", as_typed(known, "code") | {"type": kind}, "")
    assert entry(after, "code") == {"type": kind, "lower": 2, "upper": 7}
    after = answered(draft, "wage", as_typed(draft, "wage") | {"type": kind}, "")
    assert ("digits" in entry(after, "wage")) is (kind == "continuous")


def test_levels_are_typed_together_with_the_type():
    """Codes far apart, as of schools, which no bounds make levels of; and the way back."""
    draft = text(guesses(pd.DataFrame({"school": [20920, 84772, 31207] * 20})))
    draft = with_table(draft, {"title": "Schools"})
    typed = as_typed(draft, "school") | {"type": "categorical", "levels": "20920\n31207\n84772"}
    after = answered(draft, "school", typed, "")
    levels = [20920, 31207, 84772]
    assert entry(after, "school") == {"type": "categorical", "levels": levels, MARK: ["type"]}
    typed = as_typed(after, "school") | {"type": "count", "levels": "20000\n31207\n84772"}
    again = entry(answered(after, "school", typed, ""), "school")
    assert (again["lower"], again["upper"]) == (20000, 84772)
    with pytest.raises(SchemaError, match="has bounds, not levels"):
        answered(draft, "school", as_typed(draft, "school") | {"levels": "1\n2"}, "")


def test_what_is_confirmed_and_changed_later_has_its_source(draft):
    sure = {f"confirm-{key}": "" for key in ("type", "lower", "upper")}
    known = answered(draft, "age", as_typed(draft, "age") | sure, "law, p. 2")
    after = answered(known, "age", as_typed(known, "age") | {"upper": "99"}, "law of 2025")
    assert "upper = 99  # law of 2025" in after
    assert after.count("# law, p. 2") == 2


def test_what_was_not_shown_as_a_guess_is_not_confirmed(draft):
    """As of a page that shows bounds while another page has made levels of them."""
    levels = answered(draft, "age", as_typed(draft, "age") | {"type": "ordinal"}, "")
    typed = {"type": "count", "lower": "", "upper": "", "confirm-lower": "", "confirm-upper": ""}
    after = answered(levels, "age", as_typed(levels, "age") | typed, "law")
    assert {"lower", "upper"} <= set(entry(after, "age")[MARK])


HIDDEN = 'levels = ["a  # GUESSED: 1", "b"]  # GUESSED: texts that were found; are there others?'
BY_HAND = """\
[columns.income]
type = "count"
upper = 200

[columns.region]  # see p. 4
type = "categorical"
levels = [
  "e", "n",  # of the map
]

# published anyway
public = true
guessed = [
  "levels",
]

[columns.ill]
type = "binary"
levels = ["no", "yes"]
"""


@pytest.mark.parametrize("key", ["levels", "label"])
def test_a_text_that_looks_like_a_mark_is_none(key):
    """It deleted the marks of its column, and all columns after it."""
    draft = text(guesses(pd.DataFrame({"c": ["x", "y"] * 30, "z": ["f", "m"] * 30})))
    lines = draft.split("\n")
    place = next(k for k, line in enumerate(lines) if line.startswith("levels"))
    lines[place : place + 1] = [HIDDEN, 'label = "c  # GUESSED: x"  # GUESSED: of the file']
    place = next(k for k, line in enumerate(lines) if line.startswith(MARK))
    lines[place] = 'guessed = ["type", "levels", "label"]'
    hostile = "\n".join(lines)
    after = removed(hostile, "c", key)
    assert entry(after, "c")[MARK] == [k for k in ("type", "levels", "label") if k != key]
    assert entry(after, "z") == entry(draft, "z")
    sure = confirmed(hostile, "c", [key], 'Survey 7" # p')
    assert entry(sure, "c")[key] == entry(hostile, "c")[key]


def test_a_file_laid_out_by_hand():
    """Nothing of a section is left to the column above, and marks on several lines count."""
    assert [form.guesses for form in column_forms(BY_HAND).values()] == [0, 1, 0]
    after = without_columns(BY_HAND, ["region"])
    assert tomllib.loads(after)["columns"].keys() == {"income", "ill"}
    assert "public" not in entry(after, "income")
    assert taken_back(after, "region").replace("  # see p. 4", "") == BY_HAND.replace(
        "  # see p. 4", ""
    )
    known = answered(BY_HAND, "region", as_typed(BY_HAND, "region") | {"confirm-levels": ""}, "p")
    assert entry(known, "region") == {
        "type": "categorical", "levels": ["e", "n"], "public": True,
    }  # fmt: skip
    for layout in (
        'columns.x = {type = "binary", levels = ["a", "b"], guessed = ["levels"]}\n',
        '[columns]\nx.type = "binary"\nx.levels = ["a", "b"]\nx.guessed = ["levels"]\n',
    ):
        (form,) = column_forms(layout).values()
        assert form.guesses == 1
        for change in (
            lambda text=layout: without_columns(text, ["x"]),
            lambda text=layout: answered(text, "x", {"type": "ordinal"}, ""),
        ):
            with pytest.raises(SchemaError, match="edit"):
                change()


@pytest.mark.parametrize(
    ("column", "typed", "message"),
    [
        ("age", {"upper": "ten"}, "upper"),
        ("age", {"lower": "200"}, "lower"),
        ("sex", {"levels": "f"}, "levels"),
        ("wage", {"digits": "x"}, "digits"),
    ],
)
def test_what_is_no_schema_is_refused(draft, column, typed, message):
    with pytest.raises(SchemaError, match=message):
        answered(draft, column, as_typed(draft, column) | typed, "")


def test_a_column_that_is_not_there(draft):
    for change in (lambda: answered(draft, "x", {}, ""), lambda: without_columns(draft, ["x"])):
        with pytest.raises(SchemaError, match="has no column 'x'"):
            change()


def test_columns_are_left_out_and_taken_back(draft):
    """With all guesses and comments, in any order."""
    after = without_columns(draft, ["wage", "age"])
    assert list(column_forms(after)) == ["sex"]
    assert {name: left.has_section for name, left in columns_left_out(after).items()} == {
        "person": False, "age": True, "wage": True,
    }  # fmt: skip
    assert taken_back(taken_back(after, "age"), "wage") == draft
    known = as_identifier(after, "age")
    assert entry(known, "age") == {"type": "identifier"}
    assert entry(taken_back(known, "wage"), "wage") == entry(draft, "wage")
    for name, message in (("person", "has no section"), ("sex", "'sex' was not left out")):
        with pytest.raises(SchemaError, match=message):
            taken_back(after, name)


def test_a_section_that_an_editor_has_trimmed_is_taken_back_whole():
    """An empty line in it would end it before the marks."""
    schema = BY_HAND.replace("\nguessed = [", "\n\nguessed = [")
    trimmed = "\n".join(line.rstrip() for line in without_columns(schema, ["region"]).split("\n"))
    assert entry(taken_back(trimmed, "region"), "region") == entry(schema, "region")


def test_columns_that_others_need_stay(draft):
    needed = with_table(draft, {"rules": "wage >= age"})
    with pytest.raises(SchemaError, match="'wage'"):
        without_columns(needed, ["sex", "wage"])


def test_a_comment_that_looks_like_a_column_left_out_is_none(draft):
    assert list(columns_left_out(draft + "\n# [columns.a b] left out\n")) == ["person"]


def test_a_column_that_was_left_out_identifies_persons(draft):
    assert "names, keys or notes" in columns_left_out(draft)["person"].notes[0]
    after = as_identifier(draft, "person")
    assert entry(after, "person") == {"type": "identifier"}
    assert not columns_left_out(after)
    assert list(columns_left_out(without_columns(after, ["wage"]))) == ["wage"]
    again = draft + '[columns.person]\ntype = "categorical"\nlevels = ["p0", "p1"]\n'
    assert not columns_left_out(again)  # it was written in again
    for schema, name in ((draft, "age"), (again, "person")):
        with pytest.raises(SchemaError, match=f"{name!r} was not left out"):
            as_identifier(schema, name)


def test_the_whole_table(draft):
    typed = {
        "title": 'Wages, "all"', "publisher": "Office", "unit_of_record": "a person",
        "rows": "noisy", "rules": "age >= 18\r\n\r\nwage >= 0",
    }  # fmt: skip
    after = with_table(draft, typed)
    schema = dpb.Schema.from_dict(tomllib.loads(after))
    assert (schema.title, schema.unit_of_record) == ('Wages, "all"', "a person")
    assert schema.rules == ("age >= 18", "wage >= 0")
    again = with_table(after, {"rows": "5000", "rules": "", "title": "Wages"})
    schema = dpb.Schema.from_dict(tomllib.loads(again))
    assert (schema.rows.number, schema.rules, schema.title) == (5000, (), "Wages")
    assert draft.split("[columns.age]")[1] == again.split("[columns.age]")[1]


def test_rows_that_belong_together(draft):
    draft = answered(draft, "age", as_typed(draft, "age") | {"type": "identifier"}, "")
    after = with_table(draft, {"cluster.column": "age", "cluster.most": "3"})
    assert dpb.Schema.from_dict(tomllib.loads(after)).cluster.most == 3
    assert as_grouped(after)["cluster.column"] == "age"
    changed = with_table(after, {"cluster.most": "4"})
    assert dpb.Schema.from_dict(tomllib.loads(changed)).cluster.most == 4
    none = with_table(changed, {"cluster.column": "", "cluster.most": ""})
    assert dpb.Schema.from_dict(tomllib.loads(none)).cluster is None
    with pytest.raises(SchemaError, match=r"cluster\.most: 'three' must be a number"):
        with_table(draft, {"cluster.column": "age", "cluster.most": "three"})
    with pytest.raises(SchemaError, match="must name an identifier"):
        with_table(draft, {"cluster.column": "age"})


def test_waves_and_weights_are_declared_key_by_key(draft):
    draft = answered(draft, "sex", as_typed(draft, "sex") | {"type": "identifier"}, "")
    typed = {
        "panel.id": "sex", "panel.most": "20", "panel.time": "age",
        "panel.rules": "wage >= before.wage\r\nage > before.age",
    }  # fmt: skip
    schema = dpb.Schema.from_dict(tomllib.loads(with_table(draft, typed)))
    assert schema.panel == dpb.Panel(
        "sex", 20, "age", rules=("wage >= before.wage", "age > before.age")
    )
    typed = {"survey.weights": "wt", "survey.population": "1_250_000", "survey.largest": "400.5"}
    after = with_table(draft, typed)
    assert dpb.Schema.from_dict(tomllib.loads(after)).survey == dpb.Survey("wt", 1_250_000, 400.5)
    assert with_table(after, table_form(after) | as_grouped(after)) == after


def test_values_on_several_lines_are_replaced_whole():
    """As somebody writes them by hand; comments elsewhere stay."""
    schema = (
        'rules = [\n  "a >= 0",\n]  # law\n\n# about a\n[columns.a]\ntype = "count"\nupper = 9\n'
        'missing = [\n  "x",\n]\n\n[columns.b]\ntype = "binary"\nlevels = ["n", "y"]\n'
    )
    after = declared(schema, "rules", ["a >= 1"])
    assert after.startswith('rules = ["a >= 1"]\n\n# about a\n[columns.a]')
    assert tomllib.loads(removed(after, "a", "missing"))["columns"]["a"].keys() == {"type", "upper"}
    assert declared(after, "rules", None).startswith("\n# about a")
