"""What pages do to a schema file, one after the other: other columns stay, and guesses marked."""

import tomllib

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbayes.app.forms import answered, checked, column_forms, with_table, without_columns
from dpbayes.core.errors import SchemaError
from dpbayes.schema.columns import COLUMN_TYPES
from dpbayes.schema.confirmation import as_identifier, columns_left_out, taken_back
from dpbayes.schema.draft import MARK, guesses, text
from tests.fuzzing import many

pytestmark = pytest.mark.fuzz
ODD = ["a", 'b"', "c\\", "# [columns.age] left out", "#: d", "x\n[columns.age]\npublic = true",
       "e  # GUESSED: f", "g\rh", "i\u2028j", "guessed = []", "]", "'''", "1", "true"]  # fmt: skip
NUMBERS = [[0, 1], [1, 2, 3, 7], [10, 4000, 77], [0.5, 1.25, 9.0]]
TYPED = [*ODD, "", "0", "5", "99999", "1\n2\n3", "0.5", "2020-01-01", "[1, 2]"]
columns = st.dictionaries(
    st.sampled_from([*ODD, "age", "d.e", ""]),
    st.one_of(st.lists(st.sampled_from(ODD), min_size=2, unique=True), st.sampled_from(NUMBERS)),
    min_size=2,
    max_size=4,
)
labels = st.dictionaries(st.sampled_from([*ODD, "age"]), st.sampled_from(ODD), max_size=3)
acts = st.sampled_from(["as it is", "confirm", "type", "key", "out", "back", "identifier", "table"])


def sent(form):
    """What a browser sends of a form as it is: lines end in two characters."""
    return {
        field.key: field.typed.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
        for field in form.fields
        if field.kind != "truth" or field.typed == "true"
    }


def acted(schema, act, name, draw):
    """The file after an act; and the guesses that somebody confirmed, or replaced by a value."""
    form = column_forms(schema)[name]
    if act == "out":
        return without_columns(schema, [name]), set()
    if act == "table":
        key = draw(st.sampled_from(["title", "rows", "rules", "cluster.column", "panel.id"]))
        return with_table(schema, {key: draw(st.sampled_from(TYPED))}), set()
    typed, known = sent(form), set()
    if act == "confirm":
        known = {f.key for f in form.fields if f.guessed and draw(st.booleans())}
    elif act == "type":
        typed["type"] = draw(st.sampled_from(COLUMN_TYPES))
    elif act == "key":
        keys = [f.key for f in form.fields if f.kind in ("line", "lines")]
        typed |= draw(st.dictionaries(st.sampled_from(["x", *keys]), st.sampled_from(TYPED)))
    source = draw(st.sampled_from(ODD))
    return answered(schema, name, typed | {f"confirm-{k}": "on" for k in known}, source), known


def entries(schema):
    return tomllib.loads(schema).get("columns", {})


@given(values=columns, titles=labels, data=st.data())
@many
def test_pages_one_after_the_other(values, titles, data):
    frame = pd.DataFrame({name: (each * 60)[:60] for name, each in values.items()})
    known_titles = {name: title for name, title in titles.items() if name in frame}
    schema, left = text(guesses(frame, titles=known_titles)), {}
    try:
        checked(schema)
    except SchemaError:
        return
    for _ in range(6):
        before = entries(schema)
        forms = column_forms(schema)
        for name, form in forms.items():
            assert {f.key for f in form.fields if f.guessed} == set(before[name].get(MARK, []))
        act, known = data.draw(acts), set()
        gone = sorted(columns_left_out(schema))
        if act in ("back", "identifier"):
            if not gone:
                continue
            name = data.draw(st.sampled_from(gone))
        elif not before:
            return
        else:
            name = data.draw(st.sampled_from(sorted(before)))
        try:
            if act in ("back", "identifier"):
                take = taken_back if act == "back" else as_identifier
                schema = checked(take(schema, name))
            else:
                schema, known = acted(schema, act, name, data.draw)
        except SchemaError:
            assert act != "as it is"
            continue
        after = entries(schema)
        changed = {c for c in {*before, *after} if before.get(c) != after.get(c)}
        assert changed <= ({name} - {"" if act == "table" else None})
        if act == "table":
            assert before == after
        elif act == "as it is":
            assert not changed
        elif act == "out":
            left[name] = before[name]
            assert name not in after
        elif act == "back" and name in left:
            assert after[name] == left[name]
        elif act in ("confirm", "key", "type"):
            old, new = before[name], after[name]
            marks = set(new.get(MARK, []))
            assert not new.get("public")
            for key in set(old.get(MARK, [])) - marks - known:
                assert key not in new or act == "type"
            guessed = {"levels", "lower", "upper"} & set(old.get(MARK, []))
            for key in set(new) - set(old) - {MARK}:  # levels made of bounds, and bounds of levels
                assert act == "key" or key in marks or not guessed
