"""What a mechanism without a Stan program is: it prepares records, and draws from them privately.

The comparison synthesizers of Bowen & Liu (Statistical Science 35, 2020) and MODIPS (Liu 2016).
All confidential columns of the schema are synthesised together, given the public ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dpbayes.errors import DataError, GuaranteeError, SchemaError
from dpbayes.mechanisms.base import Mechanism
from dpbayes.privacy.accounting import NOTHING, Loss
from dpbayes.privacy.guarantee import (
    ADJACENCIES,
    PUBLIC_INPUTS,
    SECRET_NOISE,
    Adjacency,
    Guarantee,
    check_epsilon,
)
from dpbayes.privacy.noise import Noise
from dpbayes.schema import Column, Schema

MIN_RECORDS = 2


class Prepared(ABC):
    """A mechanism with the records that it is applied to. Confidential.

    Attributes:
        settings: what the release says of it; public.
    """

    settings: dict[str, Any]

    @abstractmethod
    def private(self, noise: Noise) -> Any:
        """One private output: what epsilon is paid for."""

    @abstractmethod
    def synthetic(self, output: Any, rng: np.random.Generator) -> pd.DataFrame:
        """Synthesised columns for every row of the public ones; uses no confidential value."""


class Dips(Mechanism):
    """Base of mechanisms without a Stan program. Subclasses are frozen dataclasses.

    Attributes:
        epsilon: of one private draw, for ``adjacency``.
        adjacency: what epsilon is for.
    """

    epsilon: float
    adjacency: Adjacency
    both: ClassVar[bool] = False  # epsilon holds for either adjacency
    source: ClassVar[str] = SECRET_NOISE

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.adjacency not in ADJACENCIES:
            raise GuaranteeError(
                f"adjacency = {self.adjacency!r} must be one of {', '.join(ADJACENCIES)}."
            )

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Raise SchemaError unless the mechanism can synthesise these columns."""

    @abstractmethod
    def prepare(self, schema: Schema, records: pd.DataFrame) -> Prepared:
        """Take validated records, shape (n, columns of the schema)."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the settings that were chosen; public."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        plain = (str, int, float, Mapping, list, tuple)
        return {key: value for key, value in given.items() if isinstance(value, plain)}

    @property
    def loss(self) -> Loss:
        """Of one private draw.

        Without ``both``, epsilon for add/remove bounds twice as much for substitution, and epsilon
        for substitution bounds half of it for add/remove only where ``halves``.
        """
        if self.both:
            return Loss.pure(self.epsilon, changed=self.epsilon)
        if self.adjacency == "add-remove":
            return Loss.pure(self.epsilon)
        return Loss.pure(self.epsilon / 2 if self.halves else self.epsilon, changed=self.epsilon)

    @property
    def halves(self) -> bool:
        """Adding or removing a record costs half of changing one."""
        return False

    @property
    def noisy(self) -> bool:
        """It needs OpenDP."""
        return self.source == SECRET_NOISE

    @property
    def sets_per_draw(self) -> int:
        """Data sets per private draw; 0 if all data sets come from one."""
        return 1

    def guarantee(self) -> Guarantee:
        claim = Guarantee(
            self.name,
            self.loss,
            "strict",
            (PUBLIC_INPUTS, self.source),
            adjacency=self.adjacency,
        )
        if self.sets_per_draw:
            return replace(claim, nested=self.sets_per_draw)
        return replace(claim, once=self.loss, each=NOTHING, once_for="the sanitised distribution")


def check_records(records: pd.DataFrame) -> None:
    """Raise DataError if there are too few."""
    if len(records) < MIN_RECORDS:
        raise DataError(f"{len(records)} record(s): at least {MIN_RECORDS} are needed.")


def confidential(schema: Schema) -> list[Column]:
    """Columns to synthesise, or SchemaError if there are none."""
    columns = [column for column in schema.columns.values() if not column.public]
    if not columns:
        raise SchemaError("every column is public; there is nothing to synthesise.")
    return columns
