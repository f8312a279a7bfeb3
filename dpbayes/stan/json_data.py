"""Stan data from a JSON file: numbers, and arrays of numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpbayes.core.errors import DataError
from dpbayes.core.files import read_whole

MOST_WHOLE = 2**31 - 1  # largest int of Stan
_LARGEST = 2**63  # whole numbers from here on do not fit into an array
_DEEPEST = 8  # largest number of dimensions


def read_json_data(path: str | Path | None) -> dict[str, Any]:
    """Read Stan data from a JSON file; return no data if there is no file name.

    Raises:
        DataError: no such file, no JSON object, or entries that are neither numbers nor
            rectangular arrays of numbers.
    """
    if path is None:
        return {}
    where = f"data file {str(path)!r}"
    try:
        tree = json.loads(read_whole(path))
    except FileNotFoundError:
        raise DataError(f"{where} does not exist.") from None
    except OSError as error:
        raise DataError(f"{where}: {error.strerror}.") from None
    except ValueError as error:
        raise DataError(f"{where} is not valid JSON: {error}.") from None
    except RecursionError:
        raise DataError(f"{where} is nested too deeply.") from None
    if not isinstance(tree, dict):
        raise DataError(f"{where} must hold one JSON object of Stan data.")
    for name, value in tree.items():
        _shape(f"{where}: entry {name!r}", value)
    count = tree.get("n", 0)
    if not isinstance(count, int) or not 0 <= count <= MOST_WHOLE:
        raise DataError(f"{where}: n must be a whole number from 0 to {MOST_WHOLE:,}.")
    return tree


def _shape(where: str, value: Any, depth: int = 0) -> tuple[int, ...]:
    """Check an entry and return its shape: () for a number, the lengths for nested lists."""
    if isinstance(value, int | float):
        if isinstance(value, int) and abs(value) >= _LARGEST:
            raise DataError(f"{where} holds a whole number beyond ±{_LARGEST:,}.")
        return ()
    if not isinstance(value, list):
        kind = "null" if value is None else type(value).__name__
        raise DataError(f"{where} holds {kind}; expected a number or an array of numbers.")
    if depth == _DEEPEST:
        raise DataError(f"{where} has more than {_DEEPEST} dimensions.")
    shapes = {_shape(where, item, depth + 1) for item in value}
    if len(shapes) > 1:
        raise DataError(f"{where} is ragged: its rows have different lengths.")
    return (len(value), *(shapes.pop() if shapes else ()))
