"""First draft of a schema, read off the records. It is confidential: every entry is a guess.

A bound or a level that is read off the records is a disclosure that nothing has paid for. Each
entry is therefore marked: its key stands in the column's list ``guessed``, and whoever has checked
or replaced it from public knowledge takes it out there.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tomli_w

from dpbayes.core.lazy import pd
from dpbayes.schema.suggestions import FEWEST_OF_VALUE, Guess, suggest
from dpbayes.schema.values import NO_FIELD, WRITTEN, level_text

MARK = "guessed"
LEVELS = "levels = "  # before the levels that a comment suggests
MOST_LEVELS = 400  # a column with more different texts is left out
MOST_DIGITS = 6
MOST = 1e99  # largest absolute value that a drafted bound can have
LEAST = 1e-90  # smallest distance between drafted bounds
MOST_CODE = 10  # whole numbers below it may be codes
MOST_COUNT = 2**31 - 1
FEWEST = 20  # rows that are needed to judge whether whole numbers are a key
NINES = tuple(sign * int(f"{'9' * n}{k}") for n in range(4) for k in (7, 8, 9) for sign in (1, -1))
NEAR = 1e-6  # smallest distance between bounds, relative to their size
SPIKE = 0.03  # share of rows from which a value counts as a spike
STANDS_OUT = 4  # a spike is more frequent than its neighbours' median by this factor
AROUND = 10  # neighbouring values on either side that a spike is compared with
MOST_SPIKES = 20
MOST_TITLE = 200  # characters of a comment
MOST_LABEL = 80  # characters of ``Column.label``: what a Stata file takes
MOST_APART = 10  # range per different value, above which a count may be a set of groups
_CODES = r"0\d+"  # leading zeros: codes, not numbers
_THOUSANDS = r"-?\d{1,3}([,.' ]\d{3})+([.,]\d+)?"  # 2,483.62, 2.483,62 and 2 483
_DATES = r"\d{4}-\d{2}-\d{2}([ T].*)?"
# Formats of days besides that of ISO 8601; the earlier one is taken if several fit.
DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d")
FORMATS = (*DAYS, *(f"{day} {time}" for time in ("%H:%M", "%H:%M:%S") for day in DAYS))
# Texts that programs and people write where there is no value, besides those that are always read
# as missing (values.py).
NO_VALUE = ("N/A", "n/a", "#N/A", "na", "null", "NULL", "Null", "<NA>", "?", "-", "--", "..")
HEAD = """\
# Draft of a schema. CONFIDENTIAL: all that is marked GUESSED was read off the records.
#
# Replace each guess by what documentation, a questionnaire or a law says, or confirm it from there,
# and take its key out of the list `guessed`. A strict release refuses a schema with a guess left;
# `dpbayes schema check` says which are. What is not declared is neither used nor released.
#
# The number of rows is public if a column is, and otherwise released with noise, for 5 % of ε; with
# rows = "public" or a number that was chosen without looking it is free (docs/schema.md).
#
# For the page that readers see; fill in, and remove the mark in front:
# title = "..."
# publisher = "..."
# unit_of_record = "..."  # what one row describes: a person, a household, a stay in hospital
"""


Labels = Mapping[str, Mapping[Any, str]]  # by column: label by code


def guesses(
    frame: pd.DataFrame, labels: Labels | None = None, titles: Mapping[str, str] | None = None
) -> dict[str, Guess]:
    """Guess the schema entry of each column.

    Args:
        frame: plain records, with codes where there are labels.
        labels: labels of codes, from the file.
        titles: labels of columns, from the file.
    """
    by_column = {
        str(name): _guess(frame[name], (labels or {}).get(str(name), {})) for name in frame
    }
    suggest(frame, by_column)
    for name, title in (titles or {}).items():
        _entitle(by_column[name], _one_line(title))
    return by_column


def _entitle(guess: Guess, title: str) -> None:
    """Take over the file's label of a column, as a comment if it cannot be a ``label``."""
    if guess.entry and 0 < len(title) <= MOST_LABEL:
        guess.say("label", title, "the file's label of the column")
    elif title:
        guess.notes.insert(0, f"In the file: {title}")


def _one_line(title: str) -> str:
    """Make a title fit on one line: a line break in a comment would end it in the schema file."""
    return _printable(title)[:MOST_TITLE].strip()


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def tree(guesses: Mapping[str, Guess]) -> dict[str, Any]:
    """Tree that ``Schema.from_dict`` reads, with every key marked as guessed."""
    return {
        "columns": {
            name: {**guess.entry, MARK: list(guess.entry)}
            for name, guess in guesses.items()
            if guess.entry
        }
    }


def text(guesses: Mapping[str, Guess]) -> str:
    """Text of a schema file, with a comment at each guess."""
    return HEAD + "".join(_section(name, guess) for name, guess in guesses.items())


def _section(name: str, guess: Guess) -> str:
    title = tomli_w.dumps({"columns": {name: {"x": 0}}}).partition("\n")[0]
    notes = [f"# {_printable(note)}" for note in guess.notes]
    if not guess.entry:
        return "\n".join(["", *notes, f"# {title} left out", ""])
    lines = [f"{line_of(k, v)}  # GUESSED: {guess.why[k]}" for k, v in guess.entry.items()]
    marked = f"{line_of(MARK, list(guess.entry))}  # take out what you have checked"
    return "\n".join(["", *notes, title, *lines, marked, ""])


def line_of(key: str, value: object) -> str:
    """Format ``key = value`` on one line of TOML."""
    if isinstance(value, list):
        items = (tomli_w.dumps({"x": item}).removeprefix("x = ").strip() for item in value)
        return f"{key} = [{', '.join(items)}]"
    return tomli_w.dumps({key: value}).strip()


def _guess(values: pd.Series, labels: Mapping[Any, str]) -> Guess:
    guess = Guess()
    signs = {*NO_FIELD, *WRITTEN}
    missing = values.isna() | values.map(lambda v: isinstance(v, str) and v.strip() in signs)
    present = values[~missing.astype(bool)]
    if present.empty:
        guess.notes.append("No row has a value.")
    elif labels and _all_labelled(present, labels):
        names = list(
            dict.fromkeys(str(label).strip() for _, label in sorted(labels.items(), key=_order))
        )
        _levels(guess, names, "the file's value labels, in the order of their codes")
    else:
        codes = _written_codes(present)
        _unlabelled(guess, present[~present.isin(codes)])
        if codes and guess.entry:
            guess.say("missing", codes, "texts that look like no value")
        if labels:
            known = ", ".join(f"{level_text(code)!r} {label!r}" for code, label in labels.items())
            guess.notes.append(f"Labels of single codes, perhaps of missing values: {known}.")
    if guess.entry and len(present) == len(values) > 1 and present.nunique() == 1:
        guess.notes.append(
            "The same value in every row: leave it out, and add it to the synthetic rows?"
        )
    if len(present) < len(values) and guess.entry and "missing" not in guess.entry:
        guess.say("missing", True, "some rows have no value; for codes that say so, a list of them")
    return guess


def _written_codes(present: pd.Series) -> list[str]:
    """Texts such as N/A and null that stand for no value, if there are other values."""
    texts = {value for value in present.unique().tolist() if isinstance(value, str)}
    codes = sorted(text for text in texts if text.strip() in NO_VALUE)
    return codes if present.isin(codes).mean() < 1 else []


def _order(labelled: tuple[Any, str]) -> tuple[bool, Any, str]:
    """Sort key that puts numeric codes first, by value."""
    code = labelled[0]
    text = isinstance(code, str)
    return text, 0 if text else code, str(code)


def _all_labelled(present: pd.Series, labels: Mapping[Any, str]) -> bool:
    return len(labels) > 1 and bool(present.isin(list(labels)).all())


def _unlabelled(guess: Guess, present: pd.Series) -> None:
    if pd.api.types.is_datetime64_any_dtype(present):
        present = present.astype(str)  # they would be numbers below
    numbers = pd.to_numeric(present, errors="coerce")
    if present.map(lambda value: isinstance(value, bool)).all():
        _levels(guess, [0, 1], "true and false")
    elif not numbers.isna().any() and not _coded(present) and np.isfinite(numbers).all():
        _numbers(guess, numbers.astype(float))
    else:
        texts = present.map(lambda v: v.strip() if isinstance(v, str) else level_text(v))
        if texts.str.fullmatch(_THOUSANDS).all():
            guess.notes.append(
                "These look like numbers with marks for thousands, which are read as texts: take "
                "the marks out of the file."
            )
        _texts(guess, texts)


def _coded(present: pd.Series) -> bool:
    texts = present.map(lambda value: value if isinstance(value, str) else "")
    return bool(texts.str.strip().str.fullmatch(_CODES).any())


def _numbers(guess: Guess, numbers: pd.Series) -> None:
    low, high = float(numbers.min()), float(numbers.max())
    whole = bool((numbers % 1 == 0).all())
    if max(abs(low), abs(high)) > MOST:
        guess.notes.append("Numbers too large to be taken.")
        return
    if numbers.nunique() == 2 and whole and max(abs(low), abs(high)) <= MOST_COUNT:
        _levels(guess, [int(low), int(high)], "the only two values")
        return
    if whole and numbers.is_unique and len(numbers) >= FEWEST:
        guess.notes.append(
            "Whole numbers, another one in every row: a key of persons? Then "
            'type = "identifier", which is dropped.'
        )
        return
    codes = _outlying(numbers)
    numbers = numbers[~numbers.isin(codes)]
    low, high = float(numbers.min()), float(numbers.max())
    count = whole and low >= 0 and high <= MOST_COUNT
    near = not whole and 0 < max(high - low, NEAR * max(abs(low), abs(high))) < LEAST
    bottom, top = (0.0, 0.0) if near else _bounds(low, high, 1.0 if whole else 0.0)
    if top - bottom < LEAST:
        guess.notes.append("Numbers too close together to be taken; scale the column.")
        return
    if count:
        guess.say("type", "count", "whole numbers; for codes ordinal or categorical, with levels")
        top, bottom = min(top, MOST_COUNT), min(bottom, MOST_COUNT - 1)
        bottom = low if low < high < MOST_CODE else bottom  # codes that begin at 1 have no 0
    else:
        guess.say("type", "continuous", "numbers")
    groups = _groups(numbers, whole)
    if groups:
        shown = ", ".join(str(_plain(value)) for value in groups)
        guess.notes.append(
            f"{len(groups)} different values only. If they are groups, not numbers with any "
            f'value between: type = "ordinal", {LEVELS}[{shown}], and no bounds.'
        )
    if not count and numbers.nunique() > 1 and (spikes := _spikes(numbers)):
        shown = ", ".join(str(_plain(value)) for value in spikes)
        if len(spikes) == numbers.nunique():  # an atom would leave room between them
            guess.notes.append(
                f"The only values are {shown}. If documentation says so, a rule at the top of "
                f'this file keeps it: rules = ["NAME in [{shown}]"], with the column as NAME, '
                "for a table by marginals."
            )
        elif not groups:
            guess.notes.append(
                f"Many rows have exactly {shown}. If documentation says so: atoms = [{shown}], "
                "for a table by marginals. Few families of a model take a column with atoms."
            )
    if outside := [_plain(code) for code in codes if not bottom <= code <= top]:
        guess.say(
            "missing", outside, "far from the others: codes for no value? Or widen the bounds"
        )
    below = "below the" if bottom < low else "the"
    above = "above the" if top > high else "the"
    guess.say("lower", _plain(bottom), f"{below} smallest value; what can it be at least?")
    guess.say("upper", _plain(top), f"{above} largest value; what can it be at most?")
    digits = _digits(numbers)
    if not count and digits is not None and _spacing(bottom, top) <= 10.0**-digits <= top - bottom:
        guess.say("digits", digits, "decimals that were found; released values are rounded to them")


def _spikes(numbers: pd.Series) -> list[float]:
    """Values that many rows have exactly and that bins would smear.

    They are more frequent than their neighbours, unless there are few different values in all.
    """
    shares = numbers.value_counts(normalize=True).sort_index()
    if len(numbers) < FEWEST:
        return []
    usual = shares.rolling(2 * AROUND + 1, center=True, min_periods=1).median()
    few = len(shares) <= MOST_SPIKES
    frequent = shares[(shares >= SPIKE) & (few | (shares > STANDS_OUT * usual))]
    return [float(value) for value in frequent.index][:MOST_SPIKES]


def _groups(numbers: pd.Series, whole: bool) -> list[float]:
    """Different values if they are few, which suggests groups; else none.

    Whole numbers must be far apart, and decimals repeat often: others may be measurements.
    """
    values = sorted(numbers.unique().tolist())
    if not 1 < len(values) <= MOST_SPIKES or len(numbers) < FEWEST:
        return []
    if whole:
        return values if values[-1] - values[0] > MOST_APART * len(values) else []
    return values if len(numbers) >= FEWEST_OF_VALUE * len(values) else []


def _outlying(numbers: pd.Series) -> list[float]:
    """Values such as -9 and 999, far from the others, which may be codes of missing values."""
    others = numbers[~numbers.isin(NINES)]
    if others.empty:
        return []
    far = (numbers < min(others.min(), 0)) | (numbers > 2 * max(others.max(), 0))
    return sorted(set(numbers[far & numbers.isin(NINES)].tolist()))


def _plain(bound: float) -> float:
    return int(bound) if bound % 1 == 0 and abs(bound) <= MOST_COUNT else bound


def _spacing(bottom: float, top: float) -> float:
    """Largest distance between neighbouring floating-point numbers inside the bounds."""
    return float(np.spacing(max(abs(bottom), abs(top))))


def _bounds(low: float, high: float, least: float) -> tuple[float, float]:
    """Round bounds around a range of values, at least ``least`` apart."""
    span = max(high - low, least, NEAR * max(abs(low), abs(high))) or 1.0
    exponent = math.floor(math.log10(span))
    step = 10.0**exponent
    bottom = 0.0 if 0 <= low <= span else _rounded(low, exponent, math.floor)
    top = _rounded(high, exponent, math.ceil)
    # Rounding to the step's multiples can move a bound past the value itself.
    bottom -= step * (bottom > low)
    return bottom, top + step * (top < high or top <= bottom)


def _rounded(value: float, exponent: int, way: Any) -> float:
    if exponent < 0:
        return float(way(value * 10.0**-exponent) / 10.0**-exponent)
    return float(way(value / 10.0**exponent) * 10.0**exponent)


def _digits(numbers: pd.Series) -> int | None:
    for digits in range(MOST_DIGITS):
        if (numbers.round(digits) == numbers).all():
            return digits
    return None


def _texts(guess: Guess, texts: pd.Series) -> None:
    distinct = sorted(set(texts.tolist()))
    if texts.str.fullmatch(_DATES).all():
        _days(guess, pd.to_datetime(texts, errors="coerce", format="ISO8601"))
    elif formats := _formats(distinct):
        _days(guess, pd.to_datetime(texts, errors="coerce", format=formats[0]))
        if guess.entry:
            others = f"; {' and '.join(formats[1:])} fits, too" if formats[1:] else ""
            guess.say("format", formats[0], f"how they are written{others}")
    elif len(distinct) > MOST_LEVELS:
        guess.notes.append(
            f"{len(distinct):,} different texts, more than {MOST_LEVELS}: names, keys or notes? "
            "Numbers and days are not read with signs, units or words beside them."
        )
    elif len(distinct) > max(2, len(texts) / 2):
        guess.notes.append(
            f"{len(distinct):,} different texts in {len(texts):,} rows: names, keys or notes?"
        )
    else:
        _levels(guess, distinct, "texts that were found; are there others?")


def _formats(texts: Sequence[str]) -> list[str]:
    """Formats of days that all of the texts have."""
    return [
        each
        for each in FORMATS
        if not pd.to_datetime(pd.Series(texts), errors="coerce", format=each).isna().any()
    ]


def _days(guess: Guess, moments: pd.Series) -> None:
    if moments.isna().any() or (moments.dt.floor("s") != moments).any():
        guess.notes.append("Not all of them can be read as a day, or as a moment in whole seconds.")
        return
    if moments.dt.tz not in (None, datetime.UTC):
        guess.notes.append("Moments with a time zone: write them by one clock, without it.")
        return
    first, last = moments.min().year, moments.max().year
    if first < 1678 or last > 2261:  # the range of 64-bit nanoseconds
        guess.notes.append("Days too far off to be taken.")
        return
    lower, upper = datetime.date(first, 1, 1), datetime.date(last, 12, 31)
    if (moments.dt.normalize() == moments).all():
        guess.say("type", "date", "days")
    else:
        guess.say("type", "datetime", "days with a time of day")
        minutes = bool((moments.dt.second == 0).all())
        if minutes:
            guess.say("format", "%Y-%m-%d %H:%M", "no seconds were found")
        lower = datetime.datetime.combine(lower, datetime.time())
        upper = datetime.datetime.combine(upper, datetime.time(23, 59, 0 if minutes else 59))
    guess.say("lower", lower, "the year of the first; what can it be?")
    guess.say("upper", upper, "the year of the last; what can it be?")


def _levels(guess: Guess, levels: Sequence[str | int], why: str) -> None:
    distinct = {level_text(level): level for level in levels if str(level) not in NO_FIELD}
    if len(distinct) < 2:
        guess.notes.append("The same value everywhere; a column needs two levels.")
        return
    kind = "binary" if len(distinct) == 2 else "categorical"
    ordered = "" if kind == "binary" else "; ordinal if their order means something"
    guess.say("type", kind, f"{len(distinct)} levels{ordered}")
    guess.say("levels", list(distinct.values()), why)
