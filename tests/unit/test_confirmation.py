"""Confirmation of guesses in the text of a drafted schema."""

import tomllib

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import SchemaError
from dpbayes.schema.confirmation import changed, confirmed, guessed_columns, left_out
from dpbayes.schema.draft import guesses, text
from tests.unit.test_draft import panel, records


@pytest.fixture(params=[records, panel])
def draft(request):
    frame = request.param()
    frame["a. b [c]"] = np.arange(len(frame)) % 5
    return text(guesses(frame, titles={"a. b [c]": 'a "title" # of it'}))


def test_all_columns_with_guesses_are_listed(draft):
    schema = dpb.Schema.from_dict(tomllib.loads(draft))
    listed = guessed_columns(draft)
    assert [c.name for c in listed] == list(schema.columns)
    for column in listed:
        assert tuple(column.lines) == schema[column.name].guessed
        assert all(column.reasons.values())
        tree = tomllib.loads("\n".join(column.lines.values()))
        assert dpb.Schema.from_dict({"columns": {column.name: tree}})


def test_key_by_key_until_nothing_is_guessed(draft):
    """The declared values stay, and all comments but those of the guesses."""
    values = dpb.Schema.from_dict(tomllib.loads(draft))
    new, count = draft, sum(len(column.guessed) for column in values.columns.values())
    while columns := guessed_columns(new):
        key = next(iter(columns[0].lines))
        new = confirmed(new, columns[0].name, [key], "page 3\n[columns.x]")
        count -= 1
        left = dpb.Schema.from_dict(tomllib.loads(new)).columns.values()
        assert sum(len(column.guessed) for column in left) == count
    done = dpb.Schema.from_dict(tomllib.loads(new))
    assert done.guesses == ""
    plain = {c.name: {**c.to_dict(), "guessed": []} for c in values.columns.values()}
    assert {c.name: {**c.to_dict(), "guessed": []} for c in done.columns.values()} == plain
    assert "GUESSED:" not in new
    assert new.count("  # page 3 [columns.x]") == draft.count("# GUESSED:")
    notes = [line for line in draft.splitlines() if line.startswith("#")]
    assert [line for line in new.splitlines() if line.startswith("#")] == notes


def test_a_value_is_replaced_on_its_line():
    draft = text(guesses(pd.DataFrame({"age": np.arange(40) % 30, "sex": [1, 2] * 20})))
    new = changed(draft, "age", "upper = 120")
    assert tomllib.loads(new)["columns"]["age"]["upper"] == 120
    assert "upper" in tomllib.loads(new)["columns"]["age"]["guessed"]
    assert len(new.splitlines()) == len(draft.splitlines())
    assert tomllib.loads(changed(draft, "sex", 'levels = ["1", "2", "3"]'))["columns"]["sex"][
        "levels"
    ] == ["1", "2", "3"]


def test_whole_numbers_become_levels():
    """From the lower to the upper bound, to be confirmed; other columns stay as they are."""
    draft = text(guesses(pd.DataFrame({"grade": np.arange(40) % 7 + 1, "sex": [1, 2] * 20})))
    new = changed(changed(draft, "grade", "lower = 1"), "grade", 'type = "ordinal"')
    tree = tomllib.loads(new)["columns"]
    assert tree["grade"] == {
        "type": "ordinal", "levels": [1, 2, 3, 4, 5, 6, 7], "guessed": ["type", "levels"],
    }  # fmt: skip
    assert tree["sex"] == tomllib.loads(draft)["columns"]["sex"]
    assert set(guessed_columns(new)[0].lines) == {"type", "levels"}
    done = confirmed(new, "grade", ["type", "levels"], "page 3")
    assert dpb.Schema.from_dict(tomllib.loads(done))["grade"].guessed == ()
    partly = confirmed(changed(draft, "grade", "lower = 1"), "grade", ["type", "lower", "upper"])
    sure = tomllib.loads(changed(partly, "grade", 'type = "categorical"'))["columns"]["grade"]
    assert sure == {"type": "categorical", "levels": [1, 2, 3, 4, 5, 6, 7]}


@pytest.mark.parametrize("values", [[2.4, 6.0, 6.55], [0, 50, 3000]], ids=["decimals", "whole"])
@pytest.mark.parametrize("sure", [[], ["type", "lower", "upper"], None], ids=["no", "some", "all"])
def test_levels_that_the_draft_suggests_are_taken(values, sure):
    """They were read off records: guesses, even where the bounds were confirmed."""
    frame = pd.DataFrame({"hospital": np.resize(values, 60), "sex": [1, 2] * 30})
    title = 'levels = [bad], 3 different values only. type = "ordinal", levels = [7, 8]'
    draft = text(guesses(frame, titles={"hospital": title + "." * 80}))
    keys = guessed_columns(draft)[0].lines if sure is None else sure
    partly = confirmed(draft, "hospital", list(keys))
    new = changed(partly, "hospital", 'type = "ordinal"')
    column = tomllib.loads(new)["columns"]["hospital"]
    guessed = ["levels"] if keys else ["type", "levels"]
    assert column == {"type": "ordinal", "levels": values, "guessed": guessed}
    schema = dpb.Schema.from_dict(tomllib.loads(new))
    assert len(schema.validate(frame)) == 60
    done = confirmed(new, "hospital", column["guessed"], "page 3")
    assert dpb.Schema.from_dict(tomllib.loads(done))["hospital"].guessed == ()


def test_columns_are_left_out_one_by_one(draft):
    """The others, and the notes on all of them, stay."""
    values = dpb.Schema.from_dict(tomllib.loads(draft))
    new, names = draft, list(values.columns)
    for k, name in enumerate(names):
        new = left_out(new, name)
        assert list(tomllib.loads(new).get("columns", {})) == names[k + 1 :]
        assert new.count(" left out") == draft.count(" left out") + k + 1
    notes = {line for line in draft.splitlines() if line.startswith("#")}
    assert notes <= set(new.splitlines())


@pytest.mark.parametrize("upper", [0, 400])
def test_bounds_too_far_apart_or_equal_become_no_levels(upper):
    draft = text(guesses(pd.DataFrame({"age": np.arange(40) % 30})))
    with pytest.raises(SchemaError, match="bounds less than 400 apart become levels"):
        changed(changed(draft, "age", f"upper = {upper}"), "age", 'type = "ordinal"')


@pytest.mark.parametrize(
    "line", ["upper", "upper =", "= 3", "upper = 1\nlower = 0", "digit = 2", ""]
)
def test_lines_that_replace_nothing(line):
    draft = text(guesses(pd.DataFrame({"age": np.arange(40) % 30})))
    with pytest.raises(SchemaError, match=r"is no line of the schema|is no key of a column"):
        changed(draft, "age", line)


def test_a_key_that_the_draft_leaves_out_is_added():
    draft = text(guesses(pd.DataFrame({"year": (np.arange(60) % 6) * 1.05 - 2.5})))
    new = changed(draft, "year", "atoms = [-2.5, -1.45]")
    column = tomllib.loads(new)["columns"]["year"]
    assert column["atoms"] == [-2.5, -1.45]
    assert column["guessed"] == tomllib.loads(draft)["columns"]["year"]["guessed"]
    assert len(new.splitlines()) == len(draft.splitlines()) + 1
    again = changed(new, "year", "atoms = [-2.5]")
    assert tomllib.loads(again)["columns"]["year"]["atoms"] == [-2.5]


def test_what_is_no_guess():
    draft = text(guesses(pd.DataFrame({"age": np.arange(40) % 30})))
    with pytest.raises(SchemaError, match="'levels' is no guess; guesses are type, lower, upper"):
        confirmed(draft, "age", ["type", "levels"])
