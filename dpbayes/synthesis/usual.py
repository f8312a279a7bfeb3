"""The mechanism that is taken if none is named."""

from __future__ import annotations

from collections.abc import Iterable

from dpbayes.core.errors import DpbayesError
from dpbayes.mechanisms import MECHANISMS, Anchored, Marginals, Score, get_kind
from dpbayes.schema import Schema
from dpbayes.stan.model import ModelChoice, Regression
from dpbayes.synthesis.synthesizer import Synthesizer


def of_tables(schema: Schema) -> str:
    """Name of the mechanism of noisy tables for the records that the schema declares."""
    kinds = (kind for kind in MECHANISMS.values() if isinstance(schema.unit, kind.units))
    return Marginals.name if schema.unit is None else next(kinds).name


def usual(schema: Schema, model: ModelChoice | None, settings: Iterable[str] = ()) -> str:
    """Name the mechanism that is taken if none is named.

    It is that of the schema's households or panel, ``Marginals`` without a model, ``Score`` for a
    family where it takes the model and the settings, and ``Anchored``, which takes any model, else.

    Args:
        schema: schema of the records.
        model: the model that is asked for.
        settings: names of the settings that are given.
    """
    if schema.unit is not None or model is None:
        return of_tables(schema)
    kind = get_kind(Score.name, {})
    if not isinstance(model, Regression) or not all(map(kind.takes, settings)):
        return Anchored.name
    try:
        Synthesizer(schema, Score(epsilon=1.0), model)  # whether the model is taken depends on no ε
    except DpbayesError:  # if the model itself is wrong, the other mechanism says so, too
        return Anchored.name
    return Score.name
