"""Persons with several waves, made up from a schema, for trials of mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import DataError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.marginals.structure import Structure, Walk
from dpbayes.planning.made_up import axis_of, draw_all
from dpbayes.schema import Column, Schema
from dpbayes.schema.panels import LAST
from dpbayes.schema.rows import Rows
from dpbayes.schema.rules import Values, values_of

STAYS = 0.8  # correlation of a column with itself one wave before, on the normal scale
ALONE = "no second wave of a person was found that keeps the rules of the schema"


def invented_panel(schema: Schema, persons: int, rng: np.random.Generator) -> pd.DataFrame:
    """Make up persons with one to ``most`` waves each, all numbers of waves as often.

    A wave is made up like a row by itself (``made_up.invented``), and each of its columns is
    correlated with the one before by ``STAYS``. Where a rule about two waves is broken, the person
    stays as they were; where that breaks one as well, the wave before was the last.

    Raises:
        SchemaError: no persons with several waves were found that keep the rules.
    """
    assert schema.panel is not None
    homes, most = schema.homes, schema.panel.most
    sizes = rng.integers(1, most + 1, persons)
    times = _times(schema[homes.order], sizes, most, rng)
    latent = rng.standard_normal((1 + len(schema.columns), persons))
    waves: list[Values] = []
    for number, time in enumerate(times):
        shared = {name: waves[0][name] for name in homes.shared} if number else {}
        values, dead = _wave(schema, {homes.order: time, **shared}, latent, rng)
        if number:
            stays = {**waves[-1], homes.order: time}
            broken = ~_keeps(schema, values, waves[-1]) | dead
            values = {name: np.where(broken, stays[name], of) for name, of in values.items()}
            dead = ~_keeps(schema, values, waves[-1])
        sizes = np.where(dead, np.minimum(sizes, number), sizes)
        waves.append(values)
        latent = STAYS * latent + np.sqrt(1 - STAYS**2) * rng.standard_normal(latent.shape)
    if not (sizes > 1).any():
        raise SchemaError(f"panel: {ALONE}. Give earlier records, as `reference`.")
    made = np.flatnonzero(sizes > 0)
    chosen = made[np.arange(persons) % len(made)]
    table = _table(schema, waves, chosen, sizes[chosen])
    try:
        schema.validate(table)
    except DataError as error:
        raise SchemaError(
            f"panel: persons cannot be made up ({error}) Give earlier ones, as `reference`."
        ) from None
    return table


def _times(column: Column, sizes: np.ndarray, most: int, rng: np.random.Generator) -> list[Floats]:
    """Times of the waves of each person, one after the other, shape (persons,) for each wave."""
    lower, upper = float(column.lower or 0.0), float(column.upper or 0.0)
    whole = column.type == "count"
    step = 1.0 if whole else (upper - lower) / most
    room = np.floor((upper - lower) / step) + whole - sizes
    start = lower + step * np.floor(rng.random(len(sizes)) * (np.maximum(room, 0) + 1))
    later = (start + step * number for number in range(most))
    return [np.array(column.rounded_numbers(np.minimum(time, upper))) for time in later]


def _wave(
    schema: Schema, given: Values, latent: Floats, rng: np.random.Generator
) -> tuple[Values, np.ndarray]:
    """Make up a wave of each person, given some of its columns.

    Returns:
        Values of all columns, and a mask of persons for whom no wave keeps the rules.
    """
    persons = latent.shape[1]
    columns = {name: replace(column, public=False) for name, column in schema.columns.items()}
    axes = [axis_of(column, persons) for name, column in columns.items() if name not in given]
    plain = Schema(columns, Rows(), schema.rules)
    walk = Walk(Structure(plain, axes, given), persons, given)
    draw_all(walk, rng, latent)
    return walk.known(), walk.dead


def _keeps(schema: Schema, values: Values, before: Values) -> np.ndarray:
    """Mask of persons whose wave keeps all rules, also those about the wave before."""
    last = {f"{LAST}.{name}": before[name] for name in schema.homes.own}
    rules = (*schema.kept, *(rule for _, rule in schema.homes.rules))
    kept = [rule.holds({**values, **last}) for rule in rules]
    return np.logical_and.reduce(kept) if kept else np.ones(len(values[schema.homes.order]), bool)


def _table(
    schema: Schema, waves: list[Values], chosen: np.ndarray, sizes: np.ndarray
) -> pd.DataFrame:
    """Rows of the chosen persons, who have so many waves each, as in a file."""
    assert schema.panel is not None
    rows = [np.flatnonzero(sizes > number) for number in range(len(waves))]
    numbers: Mapping[str, Floats] = {
        name: np.concatenate(
            [wave[name][chosen[there]] for wave, there in zip(waves, rows, strict=True)]
        )
        for name in schema.columns
    }
    table = pd.DataFrame({schema.panel.id: np.concatenate(rows)})
    for name, column in schema.columns.items():
        typed = values_of(column, numbers[name])
        table[name] = column.released(pd.Series(typed.astype(object) if column.levels else typed))
    return table.sort_values([schema.panel.id, schema.panel.time]).reset_index(drop=True)
