"""Values of a column that are told apart from the others: missing codes and atoms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dpbayes.core.errors import SchemaError
from dpbayes.schema import dates
from dpbayes.schema.values import level_text

if TYPE_CHECKING:
    from dpbayes.schema.columns import Column

NUMERIC = ("continuous", "count", "date")  # types with bounds
MOST_ATOMS = 100


def missing_codes(column: Column) -> tuple[str, ...]:
    """The texts that ``missing`` names: true is the empty one.

    Raises:
        SchemaError: it is none; a code is a level, or could be a value inside the bounds.
    """
    where, given = f"column {column.name!r}", column.missing
    if isinstance(given, bool):
        return ("",) if given else ()
    one = isinstance(given, list | tuple) and all(
        isinstance(code, str | int | float) and not isinstance(code, bool) for code in given
    )
    if not one:
        raise SchemaError(
            f"{where}: missing = {given!r} must be true, or a list of the codes that stand for a "
            "missing value."
        )
    codes = tuple(dict.fromkeys(map(level_text, given)))
    if any(not code.isprintable() or _inside(column, code) for code in codes):
        raise SchemaError(
            f"{where}: missing = {given!r}: a code is text that can be printed, and no value "
            "inside the bounds. Narrow the bounds, or recode."
        )
    taken = [code for code in codes if code in map(level_text, column.levels)]
    if taken:
        raise SchemaError(
            f"{where}: {taken[0]!r} is a level and stands for a missing value; it is one only."
        )
    return codes


def _inside(column: Column, code: str) -> bool:
    """A missing code that could be a number or a day of the column."""
    if column.type not in NUMERIC or not code:
        return False
    number = dates.day_of(code, column.format) if column.type == "date" else _as_number(code)
    low = -math.inf if column.lower is None else column.lower
    high = math.inf if column.upper is None else column.upper
    return number is not None and low <= number <= high


def _as_number(code: str) -> float | None:
    try:
        return float(code)
    except ValueError:
        return None


def checked_atoms(column: Column) -> tuple[float, ...]:
    """Atoms in order; SchemaError for what is no value of the column."""
    where, given = f"column {column.name!r}", column.atoms
    found: list[Any] = []
    if not isinstance(given, list | tuple) or len(given) > MOST_ATOMS:
        raise SchemaError(
            f"{where}: atoms = {given!r:.80} must be a list of at most {MOST_ATOMS} values."
        )
    if given and column.type not in NUMERIC:
        raise SchemaError(f"{where}: atoms are for numbers and dates; remove the key.")
    for atom in given:
        found.append(dates.bound(where, "atoms", atom) if column.type == "date" else atom)
        if isinstance(found[-1], bool) or not isinstance(found[-1], int | float):
            what = "atoms are days" if column.type == "date" else f"atoms: {atom!r} is not a number"
            raise SchemaError(f"{where}: {what}.")
    for atom in found:
        inside = (column.lower is None or column.lower <= atom) and (
            column.upper is None or atom <= column.upper
        )
        if not inside or _off_the_grid(column, atom):
            raise SchemaError(f"{where}: atoms: {column.shown(atom)} is not among its values.")
    return tuple(sorted(set(found)))


def _off_the_grid(column: Column, atom: float) -> bool:
    """No released value is this one."""
    if column.whole:
        return bool(atom % 1)
    return bool(abs(column.rounded_numbers(np.asarray(float(atom))) - atom) > 1e-6 * column.step)
