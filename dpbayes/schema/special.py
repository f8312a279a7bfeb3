"""Special values of a column: codes of missing values, and atoms."""

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
    """Texts that stand for a missing value; ``missing = true`` means the empty text.

    Raises:
        SchemaError: ``missing`` is neither true nor a list of codes; a code is a level, or could be
            a value inside the bounds.
    """
    where, declared = f"column {column.name!r}", column.missing
    if isinstance(declared, bool):
        return ("",) if declared else ()
    valid = isinstance(declared, list | tuple) and all(
        isinstance(code, str | int | float) and not isinstance(code, bool) for code in declared
    )
    if not valid:
        raise SchemaError(
            f"{where}: missing = {declared!r} must be true, or a list of the codes that stand for "
            "a missing value."
        )
    codes = tuple(dict.fromkeys(map(level_text, declared)))
    if any(not code.isprintable() or _inside(column, code) for code in codes):
        raise SchemaError(
            f"{where}: missing = {declared!r}: a code is text that can be printed, and no value "
            "inside the bounds. Narrow the bounds, or recode."
        )
    taken = [code for code in codes if code in map(level_text, column.levels)]
    if taken:
        raise SchemaError(
            f"{where}: {taken[0]!r} is a level and stands for a missing value; it can be one only."
        )
    return codes


def _inside(column: Column, code: str) -> bool:
    """True if a missing code could be a number or a day inside the bounds of the column."""
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
    """Atoms in ascending order; SchemaError if one cannot be a value of the column."""
    where, declared = f"column {column.name!r}", column.atoms
    atoms: list[Any] = []
    if not isinstance(declared, list | tuple) or len(declared) > MOST_ATOMS:
        raise SchemaError(
            f"{where}: atoms = {declared!r:.80} must be a list of at most {MOST_ATOMS} values."
        )
    if declared and column.type not in NUMERIC:
        raise SchemaError(f"{where}: atoms are for numbers and dates; remove the key.")
    for atom in declared:
        atoms.append(dates.bound(where, "atoms", atom) if column.type == "date" else atom)
        if isinstance(atoms[-1], bool) or not isinstance(atoms[-1], int | float):
            problem = (
                "atoms are days" if column.type == "date" else f"atoms: {atom!r} is not a number"
            )
            raise SchemaError(f"{where}: {problem}.")
    for atom in atoms:
        inside = (column.lower is None or column.lower <= atom) and (
            column.upper is None or atom <= column.upper
        )
        if not inside or _off_the_grid(column, atom):
            raise SchemaError(f"{where}: atoms: {column.shown(atom)} is not among its values.")
    return tuple(sorted(set(atoms)))


def _off_the_grid(column: Column, atom: float) -> bool:
    """True if rounding to the public precision changes the atom: no released value equals it."""
    if column.whole:
        return bool(atom % 1)
    return bool(abs(column.rounded_numbers(np.asarray(float(atom))) - atom) > 1e-6 * column.step)
