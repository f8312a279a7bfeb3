"""Records of several rows in an analysis: columns of a record's other rows beside a row's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpbayes.core.errors import InferenceError, listed
from dpbayes.core.lazy import pd
from dpbayes.schema.households import BY_ORDER, role_name
from dpbayes.schema.panels import LAST, Panel


def with_others(data: pd.DataFrame, names: Sequence[str], unit: Mapping[str, Any]) -> pd.DataFrame:
    """Rows that a regression is of, with the columns of other rows that it reads.

    In a panel ``before.wage`` is the wage of the wave before, and first waves are left out. In a
    household ``child.age ~ head.age`` is of children, beside the head of each.

    Args:
        data: rows of a data set.
        names: columns of the regression.
        unit: declaration of the records, as ``unit_of`` reads it.
    Raises:
        InferenceError: columns of members of several places beside the head's.
    """
    others = [name for name in names if name not in data and "." in name]
    read = {name: tuple(name.split(".", 1)) for name in others}
    read = {name: (of, column) for name, (of, column) in read.items() if column in data}
    if not read:
        return data
    own, named = unit["id"], listed(sorted({of for of, _ in read.values()}), len(read))
    if unit["noun"] == Panel.noun:
        if named != LAST:
            raise InferenceError(
                f"a regression may read columns of the wave before, as {LAST}.COLUMN, not of "
                f"{named}."
            )
        time = data[unit["time"]]  # dates are texts in CSV; a release has waves in order
        by = [own, unit["time"]] if pd.api.types.is_numeric_dtype(time) else [own]
        rows = data.sort_values(by, kind="stable")
        before = rows.groupby(own, sort=False)[[column for _, column in read.values()]].shift(1)
        before.columns = pd.Index(read)
        return rows.join(before)[rows.duplicated(own)]
    places = _places(data, unit)
    head = unit["once"][0] if "role" in unit else BY_ORDER[0]
    members = {of for of, _ in read.values()} - {head}
    if len(members) > 1 or not members <= {*places}:
        raise InferenceError(
            f"a regression may read columns of the head and of members of one other place, as "
            f"ROLE.COLUMN, not of {named}."
        )
    place = members.pop() if members else head
    rows, heads = data[places == place], data[places == head].set_index(own)
    return rows.assign(**{
        name: rows[column] if of == place else rows[own].map(heads[column])
        for name, (of, column) in read.items()
    })  # fmt: skip


def _places(data: pd.DataFrame, unit: Mapping[str, Any]) -> pd.Series:
    """Name of each member's place, by role, or by order, the largest first."""
    if "role" in unit:
        roles: pd.Series = data[unit["role"]].astype(object).map(role_name)
        return roles
    ranks = data.sort_values(unit["order"], ascending=False, kind="stable")
    turns = ranks.groupby(unit["id"]).cumcount().reindex(data.index)
    names: pd.Series = turns.clip(upper=len(BY_ORDER) - 1).map(dict(enumerate(BY_ORDER)))
    return names
