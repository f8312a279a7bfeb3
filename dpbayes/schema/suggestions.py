"""Suggestions of a draft that take several columns: clusters, conditions, and what follows.

They are comments in the draft, with the lines to write. Like all of a draft they are read off the
records, and hold only if documentation says so.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.lazy import pd
from dpbayes.schema.dates import Calendar
from dpbayes.schema.values import CLOSE

FEWEST_PERSONS = 20  # different values of an identifier
MOST_OF_PERSON = 100  # rows of one person
FEWEST_AGREEING = 3  # columns in which all rows of each person agree, if those tell who is one
MOSTLY = 0.9  # share of rows with one value from which a column tells nothing
BY_CHANCE = 1e-4  # probability of missing values by chance, below which a condition explains them
MOST_CONDITIONS = 40  # values of a column on which another may depend
FEWEST_OF_VALUE = 5  # rows of each value, on average, from which a relation is no accident
MOST_NUMBERS = 30  # numeric columns of which sums and products are looked for
LOOKED_AT = 200  # rows in which they are looked for before they are tried in all
FEWEST_WHOLE = 3  # values at which a part is the whole: 0 and 1 may be equal in unlike units
STEEPER = 5  # least ratio of the largest sampling weight to the smallest, for a suggestion
ROUNDED = 1e-6  # relative error of products in single precision, or of as many digits
CONSTANT_DIGITS = 9  # of a constant in a sum; more are rounding errors
_TIMES = re.compile(r"year|month|week|quarter|wave|round|period|time|date|day", re.I)
_NAMES = re.compile(
    r"(?:^|_)(?:id|nr|pid|key|person|respondent|household|hhid|ident|firm|subj(?:ect)?|patient)"
    r"(?:$|_)|^(?:id|hhid|pers|case|ind)(?:code|nr|num|no|pn)$|\w+id$",
    re.I,
)
EXPECTED = 30  # repeats of a value at one time that chance would bring, if none is there by design

# Weights of survey files; weights of bodies have such names, too, so that a draft asks.
_WEIGHTS = re.compile(
    r"(?:^|[_.])(?:p|d|an|per|psp|fin(?:al)?|samp(?:ling)?_?|fnl)?"
    r"(?:wt|wgt|wght|weights?)(?:ss\w*|\d*)$"
    r"|^wt(?:int|mec|saf|dr|ssnh|ph|fr)\w*yr$",  # of NHANES: WTMEC2YR
    re.I,
)


@dataclass
class Guess:
    """Guessed schema entry of a column.

    Attributes:
        entry: guessed values by key of the schema; empty for a column that is left out.
        why: comment for each key.
        notes: comments on the column.
        of_persons: true if the column may tell which rows are a person's.
    """

    entry: dict[str, Any] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    of_persons: bool = False

    def say(self, key: str, value: object, why: str) -> None:
        """Add a key, its guessed value, and the reason for it."""
        self.entry[key], self.why[key] = value, why

    def leave_out(self, *notes: str) -> None:
        """Drop the entry, for the reasons given in the notes."""
        self.entry, self.why, self.notes = {}, {}, [*self.notes, *notes]


def suggest(frame: pd.DataFrame, guesses: Mapping[str, Guess]) -> None:
    """Add comments on relations between columns to their guesses; leave out identifiers.

    Args:
        frame: plain records.
        guesses: guessed entries by column.
    """
    by_name = {str(name): frame[name] for name in frame}
    if frame.shape[0] < FEWEST_PERSONS or len(by_name) < frame.shape[1]:
        return
    codes = {name: pd.factorize(values)[0] for name, values in by_name.items()}
    for name in identifiers(by_name):
        if guesses[name].entry.get("type") == "continuous":
            continue  # a measure of persons that does not change
        most = int(np.bincount(codes[name][codes[name] >= 0]).max())
        guesses[name].of_persons = True
        guesses[name].leave_out(
            f"Each of {codes[name].max() + 1:,} values stands in up to {most} rows: an identifier "
            "of persons? Then ε can be stated for all rows of a person (where they are the same "
            "person at several times, [panel] in place of [cluster] draws persons whole):",
            *_section("", f"column = {json.dumps(name)}"),
            "most =  # rows of one person, at most: what is public?",
            *_section(name, 'type = "identifier"'),
        )
    used = [name for name, guess in guesses.items() if guess.entry]
    for place, name in enumerate(used):
        conditions = dict(_conditions(name, used, by_name, codes, guesses))
        if exact := [condition for condition, everywhere in conditions.items() if everywhere]:
            guesses[name].notes.append(
                f"Missing exactly where this is not true: only_if = {min(exact, key=len)!r}?"
            )
        elif conditions:
            guesses[name].notes.append(
                "Missing wherever this is not true, and in some other rows: "
                f"only_if = {min(conditions, key=len)!r}, beside missing = true?"
            )
        before = set(used[:place])  # of two columns that say the same the later one follows
        own = codes[name]
        # A measurement with few different values may tell much of a row by chance.
        keys = [
            o
            for o in used
            if guesses[o].entry["type"] != "continuous"
            or (o in before and codes[o].max() == own.max())
        ]
        if other := next((o for o in keys if _follows(own, codes[o], alike=o in before)), None):
            guesses[name].notes.append(
                f"Follows from {other!r}, each value of which has one value here: leave it out, "
                "and add it to the synthetic rows?"
            )
    numeric = [n for n in used if guesses[n].entry["type"] in ("count", "continuous")]
    for name in numeric:
        if _WEIGHTS.search(name) and _may_weigh(by_name[name]):
            guesses[name].notes += [
                "A sampling weight? Then synthetic rows can represent the population, in place of "
                "the sample: take this column out, and write",
                "[survey]",
                f"weights = {json.dumps(name)}",
                "population =  # units that the weights add up to: what is public?",
                "largest =  # weights above are cut: what is public, or enough?",
            ]
    if len(numeric) <= MOST_NUMBERS:
        numbers = {n: pd.to_numeric(by_name[n], errors="coerce").to_numpy(float) for n in numeric}
        equations = list(_equations(numbers))
        for name, note, _ in equations:
            guesses[name].notes.append(note)
        related = {pair for *_, members in equations for pair in itertools.permutations(members, 2)}
        for first, second in _orders(numbers):
            if (first, second) not in related:  # it may follow from the equation
                guesses[first].notes.append(_as_rule(f"{_word(first)} <= {_word(second)}"))
    calendars = {name: c for name in used if (c := _calendar(guesses[name])) is not None}
    for first, second in itertools.permutations(calendars, 2):
        if calendars[first].seconds != calendars[second].seconds:
            continue
        a, b = (calendars[name].steps(by_name[name]) for name in (first, second))
        both = ~(a.isna() | b.isna())
        if both.any() and (a <= b)[both].all() and (a < b)[both].any():
            guesses[first].notes.append(_as_rule(f"{_word(first)} <= {_word(second)}"))


def identifiers(columns: Mapping[str, pd.Series]) -> list[str]:
    """Names of columns whose values repeat like those of persons with several rows."""
    codes = {name: pd.factorize(values)[0] for name, values in columns.items()}
    return [name for name in columns if _is_identifier(name, codes)]


def _may_weigh(values: pd.Series) -> bool:
    """Tell whether numbers may be sampling weights: they vary more than those of bodies."""
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
    return bool((numbers >= 0).all() and numbers.max() >= STEEPER * numbers.min())


def _section(column: str, line: str) -> tuple[str, str]:
    title = f"[columns.{json.dumps(column)}]" if column else "[cluster]"
    return title, line


def _is_identifier(name: str, codes: Mapping[str, NDArray[Any]]) -> bool:
    """Tell whether values repeat like an identifier's: a person, and in each row another wave."""
    own = codes[name][codes[name] >= 0]  # some rows may have lost theirs
    if not own.size:
        return False
    counts = np.bincount(own)
    persons, most = len(counts), int(counts.max())
    if not (persons >= FEWEST_PERSONS and 1 < most <= MOST_OF_PERSON and persons * 20 > len(own)):
        return False
    if _TIMES.search(name):
        return False
    if _NAMES.search(name):
        return True
    if len(own) == len(codes[name]) and _decides(own, [c for o, c in codes.items() if o != name]):
        return True
    waves = [c for o, c in codes.items() if o != name and 1 < c.max() + 1 <= 2 * most]
    return len(own) == len(codes[name]) and any(
        c.min() >= 0
        and _once_each(own, c)
        and (most * persons == len(own) or _by_chance(own, c) >= EXPECTED)
        for c in waves
    )


def _decides(own: NDArray[Any], others: Sequence[NDArray[Any]]) -> bool:
    """Tell whether a person's rows agree in several other columns, and in a third of them all.

    Columns with as many values as there are persons say nothing, nor do those with hardly any
    other value than one.
    """
    persons = own.max() + 1
    if len(own) - persons < FEWEST_PERSONS:
        return False
    varied = [c for c in others if 0 < c.max() < persons - 1]
    agreeing = 0
    for c in varied:
        last = np.empty(persons, dtype=np.int64)
        last[own] = c
        most = np.bincount(c[c >= 0]).max()
        agreeing += bool((last[own] == c).all() and most < MOSTLY * len(c))
    return agreeing >= FEWEST_AGREEING and 3 * agreeing >= len(varied)


def _once_each(own: NDArray[Any], wave: NDArray[Any]) -> bool:
    """True if no person has two rows of one wave."""
    return len(np.unique(own.astype(np.int64) * (wave.max() + 1) + wave)) == len(own)


def _by_chance(own: NDArray[Any], wave: NDArray[Any]) -> float:
    """Pairs of a person's rows that would be of one wave if waves were dealt at random."""
    counts, shares = np.bincount(own), np.bincount(wave) / len(wave)
    return float((counts * (counts - 1) / 2).sum() * (shares**2).sum())


def _conditions(
    name: str,
    used: list[str],
    by_name: Mapping[str, pd.Series],
    codes: Mapping[str, NDArray[Any]],
    guesses: Mapping[str, Guess],
) -> Iterator[tuple[str, bool]]:
    """Yield rules of one other column without which a column is missing; True if never with it."""
    missing = codes[name] < 0
    if not FEWEST_OF_VALUE <= missing.sum() <= len(missing) - FEWEST_OF_VALUE:
        return
    for other in used:
        own = codes[other]
        count = int(own.max()) + 1
        if other == name or own.min() < 0 or not 2 <= count <= MOST_CONDITIONS:
            continue
        rows, blank = np.bincount(own, minlength=count), np.bincount(own, missing, count)
        whole = blank == rows
        if not 0 < whole.sum() < count:
            continue
        elsewhere = blank[~whole].sum() / rows[~whole].sum()
        never = whole & (elsewhere**rows < BY_CHANCE)
        if never.any():
            first = np.unique(own, return_index=True)[1]
            one = never.sum() == 1 < count - 1
            values = by_name[other].iloc[first[never if one else ~never]].tolist()
            if guesses[other].entry["type"] in ("count", "continuous"):
                values = sorted(map(float, values))  # numbers of a file are text here
            shown = [f"{v:g}" if isinstance(v, float) else repr(v) for v in values]
            rule = f"in [{', '.join(shown)}]"
            if len(shown) == 1:
                rule = f"{'!=' if one else '=='} {shown[0]}"
            yield f"{_word(other)} {rule}", elsewhere == 0


def _word(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def _follows(own: NDArray[Any], other: NDArray[Any], *, alike: bool) -> bool:
    """Tell whether each value of another column comes with one value of a column.

    A missing value counts as one.

    Args:
        own, other: codes of the values, -1 where they are missing, shape (n,).
        alike: it may be so the other way round, too.
    """
    own, other = (codes + 1 if codes.min() < 0 else codes for codes in (own, other))
    values, others = int(own.max()) + 1, int(other.max()) + 1
    if not 2 <= values < others + alike:
        return False
    if others * FEWEST_OF_VALUE > len(own):
        return False
    return len(np.unique(other.astype(np.int64) * values + own)) == others


def _as_rule(rule: str) -> str:
    return f'True in all rows: rules = ["{rule}"]?'


def _equations(
    numbers: Mapping[str, NDArray[np.float64]],
) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Find columns that are a sum, with a constant, or a product of two others in all rows.

    A difference is a sum the other way round: a == b - c says b == a + c.

    Yields:
        The column, a note on it, and the columns of the equation.
    """
    names, found = list(numbers), set[frozenset[str]]()
    heads = np.array([numbers[name][:LOOKED_AT] for name in names])
    for first, second in itertools.combinations_with_replacement(names, 2):
        pair = numbers[first], numbers[second]
        for sign, value in (("+", pair[0] + pair[1]), ("*", pair[0] * pair[1])):
            if sign == "+" and first == second:
                continue
            # Only columns that differ by about a constant in the first rows are tried in all.
            apart = heads - value[:LOOKED_AT]
            spread = np.fmax.reduce(apart, axis=1) - np.fmin.reduce(apart, axis=1)
            size = np.fmax.reduce(abs(heads), axis=1) + np.fmax.reduce(abs(value[:LOOKED_AT]))
            for k in np.flatnonzero(~(spread > 2 * ROUNDED * size)):
                name, members = names[k], frozenset((names[k], first, second))
                if name in (first, second) or members in found:
                    continue
                texts = _word(name), f"{_word(first)} {sign} {_word(second)}"
                if note := _equation(numbers[name], *pair, sign, texts):
                    found.add(members)
                    yield name, note, members


def _equation(
    one: NDArray[np.float64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    sign: str,
    texts: tuple[str, str],
) -> str:
    """Note that a column is the sum or the product of two others; "" if it is not.

    Args:
        one, first, second: numbers of the three columns, shape (n,).
        sign: "+" or "*".
        texts: name of the column, and the sum or product.
    """
    known = ~np.isnan(one + first + second)
    one, first, second = one[known], first[known], second[known]
    if len(one) < FEWEST_PERSONS or len(np.unique(one)) < 3:
        return ""
    if first.min() == first.max() or second.min() == second.max():
        return ""  # it would be a multiple of one column, or as far from it in every row
    rule, other = " == ".join(texts), texts[1]
    if sign == "*":
        errors, size = abs(one - first * second), abs(one) + abs(first * second)
        if (errors <= CLOSE * size).all():
            return _as_rule(rule)
        if (errors <= ROUNDED * size).all():
            return (
                f"Equal to {other} in all rows that have the three, but for rounding: leave one "
                "of them out, and compute it in the synthetic rows?"
            )
        return ""
    size = abs(one) + abs(first) + abs(second)
    constant = float(f"{np.median(one - first - second):.{CONSTANT_DIGITS}g}")
    if abs(constant) <= CLOSE * size.max():
        constant = 0.0
    errors = abs(one - first - second - constant)
    if not (errors <= CLOSE * (size + abs(constant))).all():
        return ""
    shown = f" {'-' if constant < 0 else '+'} {abs(constant):.{CONSTANT_DIGITS}g}"
    return _as_rule(rule + (shown if constant else ""))


def _orders(numbers: Mapping[str, NDArray[np.float64]]) -> Iterator[tuple[str, str]]:
    """Find columns that are a part of another one, as far as rows tell.

    No value is larger than the other, some are equal, at several values, and of rows put together
    at random ``FEWEST_PERSONS`` or more would be larger. What follows from two other orders is
    left out.
    """
    parts = [
        (first, second)
        for first, second in itertools.permutations(numbers, 2)
        if _is_part(numbers[first], numbers[second])
    ]
    for first, second in parts:
        if not any((first, n) in parts and (n, second) in parts for n in numbers):
            yield first, second


def _is_part(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    if (one[:LOOKED_AT] > other[:LOOKED_AT]).any():
        return False
    known = ~(np.isnan(one) | np.isnan(other))
    a, b = one[known], np.sort(other[known])
    equal = a[a == other[known]]
    if (a > other[known]).any() or len(np.unique(equal)) < FEWEST_WHOLE:
        return False
    if not FEWEST_PERSONS <= len(equal) <= len(a) - FEWEST_PERSONS:
        return False
    return bool((np.searchsorted(b, a) / len(a)).sum() >= FEWEST_PERSONS)


def _calendar(guess: Guess) -> Calendar | None:
    return Calendar.of(guess.entry["type"], guess.entry.get("format"))
