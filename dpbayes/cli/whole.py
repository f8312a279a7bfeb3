"""``dpbayes risk`` and ``dpbayes utility``: a synthetic table beside the confidential records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.options import RECORDS, InputOptions, ShowValues
from dpbayes.cli.streams import say
from dpbayes.formats import read_records
from dpbayes.heavy import pd
from dpbayes.schema import Schema

Synthetic = Annotated[
    Path, typer.Argument(metavar="SYNTHETIC", help="A synthetic table, as in OUT/release.")
]
Records = Annotated[str, typer.Option(help=RECORDS)]
Sensitive = Annotated[str | None, typer.Option(help="Column that an intruder wants to know.")]
Holdout = Annotated[
    str | None, typer.Option(help="Records of the same population that were not synthesised.")
]
SchemaFile = Annotated[Path, typer.Option(help="Schema file of both, TOML.")]
CONFIDENTIAL = "Confidential: computed from the records.\n"


def risk(
    synthetic: Synthetic,
    records: Records,
    schema: SchemaFile,
    source: InputOptions,
    keys: Annotated[str, typer.Option(help="Columns that an intruder knows: age,sex,zip.")],
    sensitive: Sensitive = None,
    holdout: Holdout = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="ε of the release, for its bounds [guarantee.json beside SYNTHETIC]."),
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of that ε.")] = 0.0,
    show_values: ShowValues = False,
) -> None:
    """What an intruder learns of single records: matches, attributes, membership.

    Beside each measure stands what it is without the synthetic table, and what ε bounds it by. An
    attack that fails proves nothing. The output is confidential.
    """
    from dpbayes.report.whole import Whole, stated
    from dpbayes.report.whole import risk as table

    declared = Schema.from_toml(schema)
    bounds = stated(synthetic, epsilon, delta)
    others = None if holdout is None else source.read(holdout, declared)
    whole = Whole.of(
        declared,
        source.read(records, declared),
        read_records(synthetic, declared),
        others,
        show_values=show_values,
    )
    _say(table(whole, names_of(keys), sensitive, bounds))


def utility(
    synthetic: Synthetic,
    records: Records,
    schema: SchemaFile,
    source: InputOptions,
    show_values: ShowValues = False,
) -> None:
    """How close a synthetic table is as a whole: columns by one, two and three, and pMSE.

    The output is confidential.
    """
    from dpbayes.report.whole import Whole, joint_utility

    declared = Schema.from_toml(schema)
    whole = Whole.of(
        declared,
        source.read(records, declared),
        read_records(synthetic, declared),
        show_values=show_values,
    )
    _say(joint_utility(whole))


def names_of(keys: str | None) -> list[str]:
    """Columns of an option such as ``age,sex,zip``."""
    return [name.strip() for name in (keys or "").split(",") if name.strip()]


def _say(table: pd.DataFrame) -> None:
    say(CONFIDENTIAL)
    say(table.to_string(index=False, na_rep="", float_format=lambda v: f"{v:.4g}"))
