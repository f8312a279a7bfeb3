"""People who are made up from a schema, for trials of mechanisms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd, special, stats
from dpbayes.mechanisms.marginals.bins import auto_bins
from dpbayes.mechanisms.marginals.structure import AGAIN, Structure, Walk
from dpbayes.mechanisms.tables.cells import Axis, make_axis
from dpbayes.schema import Column, Schema
from dpbayes.schema.rows import Rows

COMMON = 0.2  # squared loading of every column on a factor that all of them share
SKEW = (1.5, 4.0)  # parameters of the beta distribution of numbers between their bounds
SPECIAL = 0.1  # share of each atom, and of missing values


def invented(schema: Schema, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Make up people with skewed columns that are correlated through one normal factor.

    Levels have shares in proportion to 1, 1/2, 1/3, ... in their order, numbers a beta distribution
    over the declared range. Two columns have a correlation of about 0.2 on the normal scale, also
    where rules tie columns together: of its levels or bins a column takes those that rules allow.

    Raises:
        SchemaError: there is no column, a count has no upper bound, or no row was found that keeps
            the rules.
    """
    if not schema.columns:
        raise SchemaError("the schema declares no column but identifiers, which are dropped.")
    for column in schema.columns.values():
        if not column.levels and column.upper is None:
            raise SchemaError(
                f"column {column.name!r} needs a public upper bound; add upper = ... (from "
                "documentation, never from the confidential data)."
            )
    # Public columns are made up like all others, so that rules among them hold here, too.
    columns = {name: replace(column, public=False) for name, column in schema.columns.items()}
    axes = [axis_of(column, rows) for column in columns.values()]
    walk = Walk(Structure(Schema(columns, Rows(), schema.rules), axes), rows, {})
    draw_all(walk, rng)
    valid = walk.frame(list(columns))[~walk.dead]
    if valid.empty:
        raise SchemaError(
            "no row was found that keeps the rules of the schema "
            f"({', '.join(map(repr, schema.rules))}): they may exclude every one."
        )
    valid = valid.iloc[np.arange(rows) % len(valid)].reset_index(drop=True)
    return pd.DataFrame({name: column.released(valid[name]) for name, column in columns.items()})


def axis_of(column: Column, rows: int) -> Axis:
    """Levels of a column, or bins of numbers, among which values are made up."""
    return Axis(column) if column.levels else make_axis(column, auto_bins(column, rows), None, 1)


def draw_all(walk: Walk, rng: np.random.Generator, latent: Floats | None = None) -> None:
    """Draw every column of the rows of a walk, and those again that keep no rules, some times.

    Args:
        walk: the rows, with what is given.
        rng: draws what is not given.
        latent: standard normal numbers: of the common factor, and of each column, shape
            (1 + columns, rows); of rows that are drawn again, others.
    """
    _draw_once(walk, rng, latent)
    for _ in range(AGAIN):
        if not walk.dead.any():
            break
        again = walk.of(walk.dead)
        _draw_once(again, rng, None)
        walk.put(walk.dead.copy(), again)


def _draw_once(walk: Walk, rng: np.random.Generator, latent: Floats | None) -> None:
    """Draw every column of the rows of a walk, one after the other."""
    factor = rng.standard_normal(walk.rows) if latent is None else latent[0]
    for number in range(len(walk.structure.axes)):
        weights = _weights(walk.axis(number), factor)
        allowed = walk.allowed(number)
        total = np.cumsum(weights if allowed is None else weights * allowed, axis=1)
        place = rng.random(walk.rows) if latent is None else special.ndtr(latent[1 + number])
        codes = (total <= place[:, None] * total[:, -1:]).sum(axis=1)
        walk.take(number, np.minimum(codes, weights.shape[1] - 1), rng)


def _weights(axis: Axis, factor: Floats) -> Floats:
    """Probabilities of the levels of a column given the common factor, shape (rows, levels).

    Atoms and missing values have a share of their own, whatever the factor is.
    """
    apart = np.zeros(axis.size, dtype=bool)
    apart[axis.valued :] = True
    if axis.edges is None:
        ends = np.cumsum(1 / np.arange(1, axis.valued + 1))
        ends = ends / ends[-1]
    else:
        apart[: axis.valued] = axis.ranges[2]
        lower, upper = axis.edges[0], axis.edges[-1]
        ends = stats.beta.cdf((axis.edges[1:] - lower) / (upper - lower), *SKEW)
    cuts = (special.ndtri(ends) - np.sqrt(COMMON) * factor[:, None]) / np.sqrt(1 - COMMON)
    below = special.ndtr(cuts)
    below[:, -1] = 1.0
    share = min(SPECIAL, 0.5 / max(apart.sum(), 1))
    weights = np.full((len(factor), axis.size), share)
    weights[:, ~apart] = np.diff(below, prepend=0.0) * (1 - share * apart.sum())
    return weights
