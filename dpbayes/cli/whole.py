"""``dpbayes risk`` and ``dpbayes utility``: compare a synthetic table with the records."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpbayes.cli.options import RECORDS, InputOptions, ShowValues
from dpbayes.cli.streams import say
from dpbayes.core.errors import OutputError
from dpbayes.core.files import refuse_in_release, write_whole
from dpbayes.core.lazy import pd
from dpbayes.records.formats import read_records
from dpbayes.schema import Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = ("png", "pdf", "svg")
Synthetic = Annotated[
    Path, typer.Argument(metavar="SYNTHETIC", help="A synthetic table, as in OUT/release.")
]
Records = Annotated[str, typer.Option(help=RECORDS)]
Sensitive = Annotated[str | None, typer.Option(help="Column that an intruder wants to know.")]
Holdout = Annotated[
    str | None, typer.Option(help="Records of the same population that were not synthesised.")
]
SchemaFile = Annotated[Path, typer.Option(help="Schema file of both, TOML.")]
Drawing = Annotated[
    Path | None, typer.Option(help="Draw to this file: .png, .pdf or .svg. Confidential.")
]
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
    delta: Annotated[float | None, typer.Option(help="δ of that ε [0].")] = None,
    figure: Drawing = None,
    show_values: ShowValues = False,
) -> None:
    """Measure what an intruder learns of single records: matches, attributes, membership.

    Beside a measure stand its value without the synthetic table and its bound by ε, where it has
    them. An attack that fails proves nothing. The output is confidential.
    """
    from dpbayes.pages.figures import risk as drawn
    from dpbayes.report.whole import Whole, stated
    from dpbayes.report.whole import risk as table

    kind = kind_of(figure)
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
    measures = table(whole, names_of(keys), sensitive, bounds)
    _say(measures)
    if figure is not None:
        _draw(drawn(measures), figure, kind)


def utility(
    synthetic: Synthetic,
    records: Records,
    schema: SchemaFile,
    source: InputOptions,
    formula: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMULA", help="A regression to fit to both, 'y ~ x'. May be given again."
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS", help="A contingency table of both: age,sex. May be given again."
        ),
    ] = None,
    figure: Drawing = None,
    show_values: ShowValues = False,
) -> None:
    """Measure how close a synthetic table is: columns by one, two and three, pMSE, regressions.

    The figure shows every pair of columns. The output is confidential.
    """
    from dpbayes.pages.comparison import pair_grids
    from dpbayes.pages.figures import pairs
    from dpbayes.pages.regressions import compared
    from dpbayes.report.whole import TREES, Whole, contingency, joint_utility

    kind = kind_of(figure)
    declared = Schema.from_toml(schema)
    own, made = source.read(records, declared), read_records(synthetic, declared)
    whole = Whole.of(declared, own, made, show_values=show_values)
    measures = joint_utility(whole)
    tables = [
        (text, compared(whole.of_members(declared, own, made, text), text).coefficients())
        for text in formula or ()
    ]
    tables += [(text, contingency(whole, names_of(text))) for text in table or ()]
    _say(measures)
    if declared.survey is not None:
        say("(records count by their sampling weights)")
    trees = measures.loc[measures["measure"].str.endswith(TREES), "mean"]
    if len(trees) and trees.isna().all():
        say("(trees need scikit-learn: pip install 'dpbayes[analysis]')")
    for title, rows in tables:
        say(f"\n{title}\n")
        say(_text(rows))
    if figure is not None:
        names, grid, _ = pair_grids(whole)
        _draw(pairs(names, grid), figure, kind)


def names_of(keys: str | None) -> list[str]:
    """Names of columns in an option such as ``age,sex,zip``."""
    return [name.strip() for name in (keys or "").split(",") if name.strip()]


def kind_of(figure: Path | None) -> str:
    """Format of a figure by its file name; OutputError unless it is one of ``DRAWN``."""
    kind = "png" if figure is None else figure.suffix.lower().removeprefix(".")
    if kind not in DRAWN:
        raise OutputError(f"--figure {str(figure)!r}: its name must end in {', '.join(DRAWN)}.")
    if figure is not None:
        refuse_in_release(figure)
    return kind


def _say(table: pd.DataFrame) -> None:
    say(CONFIDENTIAL)
    say(_text(table))


def _text(table: pd.DataFrame) -> str:
    return table.to_string(index=False, na_rep="", float_format=lambda v: f"{v:.4g}")


def _draw(drawing: Figure, path: Path, kind: str) -> None:
    from dpbayes.plots.charts import mark

    mark(drawing, "confidential")
    content = io.BytesIO()
    drawing.savefig(content, format=kind, dpi=150)
    try:
        write_whole(path, content.getvalue(), 0o600)
    except OSError as error:
        raise OutputError(f"--figure {str(path)!r}: {error.strerror}.") from None
    say(f"\nWritten: {path}")
