"""Interface of models for MODIPS: sufficient statistics, posterior draws given them, predictions.

A model does not determine how its parameters become private: noise is added to its statistics, or
its posterior given them is put on a grid (``grid.py``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.privacy.statistic import Statistic, same_change
from dpbayes.schema import Column, ColumnType, Schema
from dpbayes.schema.columns import listed_columns

Sanitised = Mapping[str, NDArray[Any]]
RECORDS = "records"  # statistic of the models that divide by the number of records


@dataclass(frozen=True)
class Spending:
    """Privacy budget of the statistics; public, so that a model's settings may depend on it.

    Attributes:
        epsilon: budget of all statistics together.
        parts: share of each budget in the total, by name (``StatisticModel.parts``).
        rho: zCDP budget of all statistics together, if the noise is Gaussian; else None.
    """

    epsilon: float
    parts: Mapping[str, float]
    rho: float | None = None

    @classmethod
    def equal(cls, epsilon: float, parts: list[str]) -> Spending:
        """Divide epsilon into equal parts."""
        return cls(epsilon, dict.fromkeys(parts, 1 / len(parts)))

    def variance(self, part: str, entries: int) -> float:
        """Variance of the noise in each of ``entries`` real numbers of L2 sensitivity 1 together.

        The noise is Gaussian, or radial (``Noise.radial``), whose length has a gamma distribution.
        """
        share = self.parts[part]
        if self.rho is not None:
            return 1 / (2 * share * self.rho)
        return (entries + 1) / (share * self.epsilon) ** 2


# A draw of a model's parameters, whose form its own ``predict`` knows.
Parameters = Floats | tuple[Floats, Floats] | Mapping[str, Any]
P = TypeVar("P", bound=Parameters)


class FittedStatistics(ABC, Generic[P]):
    """A model with its exact statistics of the records. Confidential.

    Attributes:
        statistics: statistics to which noise is added; those with the same ``part`` share a budget.
        settings: settings to report; public.
        shrunk: by column, the share of a usual coefficient that the prior removes; public.
    """

    statistics: list[Statistic]
    settings: dict[str, Any]
    shrunk: Mapping[str, float] = MappingProxyType({})

    def part(self, name: str) -> str:
        """Name of the budget to which a statistic belongs."""
        return name

    @abstractmethod
    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> P:
        """Draw parameters from the posterior given noisy statistics."""

    @abstractmethod
    def predict(self, parameters: P, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw one data set of ``rows`` rows given parameters."""


class StatisticModel(ABC):
    """Base of the models. Subclasses are frozen dataclasses of public settings.

    ``both``: a changed record moves the statistics by no more than a removed one.
    ``halves``: an added or removed record moves them half as much as a changed one.
    ``few``: one column with few parameters (``Scalar``), which can be put on a grid.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    both: ClassVar[bool] = False
    halves: ClassVar[bool] = False
    few: ClassVar[bool] = False

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Raise SchemaError unless the model fits the columns."""

    @abstractmethod
    def fit(
        self, schema: Schema, records: pd.DataFrame, spending: Spending, rows: int
    ) -> FittedStatistics[Any]:
        """Compute the statistics of validated records.

        Args:
            spending, rows: public; settings may depend on them, and on no other number. ``rows``
                replaces the number of records wherever a scale needs it. What is divided by the
                number of records takes that of ``number_of_records``.
        """

    @abstractmethod
    def parts(self, schema: Schema) -> list[str]:
        """Names of the budgets, in order."""


def counted(schema: Schema) -> list[str]:
    """Name of the number of records, which needs noise unless it is public; else none."""
    return [] if schema.rows.public else [RECORDS]


def number_statistics(schema: Schema, records: pd.DataFrame) -> list[Statistic]:
    """Number of records as a statistic, of sensitivity 1, unless it is public; else none."""
    n = np.array(len(records))
    return [
        Statistic(name, n, same_change(1), 1, math.inf, integer=True) for name in counted(schema)
    ]


def number_of_records(sanitised: Sanitised, rows: int) -> NDArray[Any]:
    """Return the noisy number of records, or the public one."""
    return np.asarray(sanitised.get(RECORDS, rows))


def most_records(schema: Schema, rows: int) -> float:
    """Largest number of records that is known publicly; inf if n is not public."""
    return rows if schema.rows.public else math.inf


class Scalar(FittedStatistics[P]):
    """A model of one column with few parameters, which can also be put on a grid."""

    column: Column
    rows: int
    parameters: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of records, at least 1, for densities given them. Confidential unless public.

        Without a record a density would be NaN, by which an empty table could be told apart.
        """
        exact = {s.name: s.value for s in self.statistics}
        return max(1, int(number_of_records(exact, self.rows)))

    @abstractmethod
    def ranges(self) -> list[tuple[float, float]]:
        """Public range of each parameter."""

    @abstractmethod
    def log_density(self, points: Floats) -> Floats:
        """Log posterior density given the records, up to a constant, shape (points,)."""


def only_column(schema: Schema, kind: ColumnType, model: str) -> Column:
    """Return the single confidential column, of type ``kind``; SchemaError otherwise."""
    columns = schema.confidential()
    if len(columns) != 1 or columns[0].type != kind:
        raise SchemaError(
            f"model {model!r} is for one confidential column of type {kind}; found "
            f"{listed_columns(columns)}."
        )
    no_public(schema, model)
    return columns[0]


def no_public(schema: Schema, model: str) -> None:
    """Raise SchemaError if there are public columns, which the model cannot condition on."""
    public = [c.name for c in schema.columns.values() if c.public]
    if public:
        raise SchemaError(
            f"model {model!r} has no place for public columns ({', '.join(public)}): they would be "
            "released without any relation to the rest. Take model 'sequential', or drop them."
        )
