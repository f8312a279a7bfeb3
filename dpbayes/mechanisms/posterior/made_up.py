"""Checks of a user's program on made-up records, before a confidential record is read."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import pd, xr
from dpbayes.engines.base import CompiledModel, limited_waits
from dpbayes.engines.contract import (
    MOVED,
    POINTS,
    ContractReport,
    check_contract,
    contract_defaults,
)
from dpbayes.engines.extremes import broken
from dpbayes.mechanisms.posterior.starts import mode_given
from dpbayes.schema import Schema
from dpbayes.schema.domain import made_up
from dpbayes.stan.model import Model
from dpbayes.stan.outcomes import codes_of

CHECKED = 40  # made-up records on which a user's program is checked
BLOCKS = 9_000  # made-up records where the program sums blocks in threads: three blocks


def check_on_made_up(
    model: Model,
    compiled: CompiledModel,
    schema: Schema,
    rows: int,
    threads: int,
    chains: bool = True,
) -> ContractReport:
    """Check a user's program on made-up records, so that no confidential record has a say.

    Args:
        model: the program with its columns and constants.
        compiled: the program, compiled.
        schema: declaration of the columns.
        rows: public number of rows, on which scales may depend.
        threads, chains: as in ``check_contract``.
    Raises:
        ProgramError, DataError: as ``check_contract``.
    """
    count = CHECKED if threads == 1 else BLOCKS
    data = made_up_data(model, schema, rows, count)
    with limited_waits():
        report = check_contract(
            model.program, compiled, data,
            private=model.private, threads=threads, ends=model.ends(), chains=chains,
            inside=model.inside(min(count, MOVED)),
        )  # fmt: skip
        _check_replicates(model, compiled, data, model.public(_made_up(schema, count), count))
    return report


def _check_replicates(
    model: Model, compiled: CompiledModel, data: Mapping[str, Any], public: pd.DataFrame
) -> None:
    """Raise ProgramError for a y_rep that is no value of an outcome, or that cannot be drawn.

    Far from any posterior generators may fail. Only one that fails at all random points and at the
    mode given made-up records is refused.

    Args:
        data: program data of made-up records.
        public: their public columns.
    """
    bound = compiled.bind({**data, **contract_defaults(len(public))})
    points = bound.random_points(POINTS, CHECKED)
    drawn: list[list[NDArray[Any]]] = []

    def replicate(at: xr.DataTree, number: int, changes: Mapping[str, Any]) -> NDArray[Any]:
        drawn[-1].append(bound.rebind(**changes).y_rep(at, number, CHECKED))
        return drawn[-1][-1]

    for number in range(POINTS):
        drawn.append([])
        with contextlib.suppress(EngineError):
            model.draw(public, partial(replicate, points, number))
    if not any(len(columns) == len(model.columns) for columns in drawn):
        drawn.append([])
        try:
            model.draw(public, partial(replicate, mode_given(model, data, len(public)), 0))
        except EngineError as error:
            raise broken(
                model.program,
                "y_rep cannot be drawn, neither at random points nor at the mode given made-up "
                "records.",
            ) from error
    by_column = itertools.zip_longest(*drawn, fillvalue=np.empty(0))
    for column, replicates in zip(model.columns, by_column, strict=False):
        name, values = column.outcome.name, np.stack([y for y in replicates if y.size])
        if np.isnan(values).any(axis=1).all():
            raise broken(
                model.program,
                f"y_rep of {name!r} is no number for some records. Assign it for every record.",
            )
        if column.outcome.levels:
            first, last = codes_of(column.outcome)
            wrong = values[(values < first) | (values > last)]
            if wrong.size:
                raise broken(
                    model.program,
                    f"y_rep of {name!r} is {wrong[0]:g}, which is none of its levels: they are "
                    f"{first} to {last}.",
                )


def _made_up(schema: Schema, count: int) -> pd.DataFrame:
    return made_up(schema, count, np.random.default_rng(CHECKED))


def made_up_data(model: Model, schema: Schema, rows: int, count: int) -> dict[str, Any]:
    """Program data of ``count`` made-up records."""
    data = model.data(_made_up(schema, count), rows)
    return {**data, **model.constants_at(np.arange(count) % max(1, rows), rows)}
