"""``dpbayes plan``: costs and expected accuracy of each mechanism, without private records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dpbayes.cli.models import ModelOptions
from dpbayes.cli.options import InputOptions, check_kept
from dpbayes.cli.streams import say, say_error, say_table, shows_progress
from dpbayes.core.errors import SchemaError
from dpbayes.mechanisms.forecast import COUNTED, DISTANCE
from dpbayes.privacy.accounting import stated, stated_left
from dpbayes.schema import Schema

if TYPE_CHECKING:  # it imports every mechanism
    from dpbayes.planning.plan import Plan


LARGE = 500_000  # cells of the tables of all trials together, from which these take minutes


@dataclass(frozen=True, kw_only=True)
class PlannedOptions(ModelOptions):
    """Options for a schema, with or without models."""

    schema: Annotated[Path, typer.Argument(metavar="SCHEMA.toml", help="Schema file, TOML.")]


def plan(
    model: PlannedOptions,
    source: InputOptions,
    rows: Annotated[
        int | None, typer.Option(help="Number of records [that of the schema file].")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="FILE of public or earlier records to try mechanisms on [made up]."),
    ] = None,
    datasets: Annotated[
        int | None, typer.Option(help="Number m of data sets [as by `synthesize`].")
    ] = None,
    total_epsilon: Annotated[
        float | None,
        typer.Option(help="ε of all data sets together [0.1, 0.5, 1 and 3, beside each other]."),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="δ at which ε is stated [0].")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="As by `synthesize`, besides those of the schema; may be repeated."),
    ] = None,
    runs: Annotated[int, typer.Option(help="Tables that each mechanism is tried on.")] = 3,
) -> None:
    """Compare the cost and accuracy of mechanisms, and recommend one.

    No confidential record is read and nothing is spent. Mechanisms for whole tables are run on
    reference records, or on people made up from the schema, with noise that is not for release.
    Those that draw from a posterior need a model (--formula, --model, or [[model]] in the schema
    file); their accuracy is derived from α and the numbers of records and parameters.
    """
    from dpbayes.planning.plan import EPSILONS, make_plan

    if reference is not None:
        say_error(
            "What is planned follows the reference records, and nothing pays for it: they must be "
            "earlier or public ones, not those that you will release."
        )
    elif source != InputOptions():
        raise SchemaError("options of how records are read need --reference.")
    schema = Schema.from_toml(model.schema)
    schema = replace(schema, keep=(*schema.keep, *(keep or ())))
    check_kept(schema)
    number = schema.rows.number if rows is None else rows
    if number is None:
        raise SchemaError("--rows N is needed: the schema file declares no number of rows.")
    totals = EPSILONS if total_epsilon is None else (total_epsilon,)
    columns = len(schema.columns)
    if number * columns * runs * len(totals) > LARGE:
        less = "" if len(totals) == 1 else "; --total-epsilon tries one ε"
        say_error(
            f"Each mechanism is tried at {len(totals)} ε on {runs} tables of {columns} columns and "
            f"{number:,} rows, which takes minutes{less}."
        )
    result = make_plan(
        schema,
        number,
        totals=totals,
        datasets=datasets,
        delta=delta,
        reference=None if reference is None else source.read_reference(reference, schema),
        model=model.choice() if model.given else None,
        runs=runs,
        say=lambda what: say_error(f"trying {what} ...") if shows_progress() else None,
    )
    _say_accuracy(result, totals, datasets)
    _say_kept(result, reference is None)
    _say_costs(result, totals)
    _say_models(result, totals)
    reasons: dict[str, list[str]] = {}
    for name, why in result.refused.items():
        text = why.rstrip(".").replace(f"mechanism {name!r}", "the mechanism")
        reasons.setdefault(text.removeprefix(f"{name} is "), []).append(name)
    for reason, names in reasons.items():
        say(f"Not {', '.join(names)}: {reason}.")
    _say_advice(result, totals)


def _columns(title: str, first: Sequence[str], totals: Sequence[float]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in first:
        table.add_column(name)
    for total in totals:
        table.add_column(f"ε = {stated(total)}", justify="right")
    return table


def _say_accuracy(result: Plan, totals: Sequence[float], datasets: int | None) -> None:
    """Print the expected distances by mechanism and total ε."""
    how_many = "as many data sets as `synthesize` makes" if datasets is None else f"{datasets} sets"
    together = "" if datasets == 1 else f"; ε is of {how_many}, together"
    table = _columns(
        f"Distance from the table, single columns / pairs (total variation; {result.tried:,} "
        f"{result.source}{together})",
        ["mechanism"],
        totals,
    )
    for name, entries in result.expected.items():
        cells = [
            f"{e.accuracy.columns:.3f} / {e.accuracy.pairs:.3f}" for e in entries if e.accuracy
        ]
        if cells:
            table.add_row(name, *cells)
    yardstick = f"{result.sampling.columns:.3f} / {result.sampling.pairs:.3f}"
    table.add_row("(another sample, no privacy)", *[yardstick] * len(totals))
    say_table(table)


def _say_kept(result: Plan, made_up: bool) -> None:
    """Print how far coefficients of kept regressions will be off."""
    table = _columns(
        "Kept regressions: error of a coefficient, in standard errors that it has in the records / "
        "length of readers' intervals, relative to that from the records",
        ["mechanism", "regression"],
        [entry.total for entry in next(iter(result.expected.values()), ())],
    )
    for name, entries in result.expected.items():
        kept = [e.accuracy.kept for e in entries if e.accuracy]
        for formula in kept[0] if kept else ():
            cells = [
                f"{of[formula].off:.1f} / {of[formula].longer:.1f}" if formula in of else ""
                for of in kept
            ]
            table.add_row(name, formula, *cells)
    if table.row_count:
        from dpbayes.planning.plan import MORE_THAN_MADE_UP

        say_table(table)
        if made_up:
            say(MORE_THAN_MADE_UP)


def _say_costs(result: Plan, totals: Sequence[float]) -> None:
    """Print the ε to set for one data set."""
    table = _columns("ε to set for one data set", ["mechanism"], totals)
    for name, entries in result.expected.items():
        table.add_row(name, *[stated_left(e.epsilon) for e in entries])
    say_table(table)


def _say_models(result: Plan, totals: Sequence[float]) -> None:
    """Print the records counted per parameter by each posterior, and a bound on the distance."""
    table = _columns(
        "Posteriors: records counted per parameter / distance of a draw from the fit, at most",
        ["mechanism"],
        totals,
    )
    for name, entries in result.expected.items():
        facts = [entry.outlook.facts for entry in entries]
        if any(DISTANCE in f for f in facts):
            cells = [
                f"{f[COUNTED]:.3g} / {f[DISTANCE]:.3f}" if DISTANCE in f else "clamped"
                for f in facts
            ]
            table.add_row(name, *cells)
    if table.row_count:
        say_table(table)
        say("That is of tempering or noise alone: what a clip cuts comes on top; see the warnings.")


def _say_advice(result: Plan, totals: Sequence[float]) -> None:
    """Print the recommended mechanism for each total ε, with reasons and each warning once."""
    say("")
    told: dict[float, list[str]] = {}
    for total in totals:
        name, why = result.recommended(total)
        advice, fitted, told[total] = {}, result.posterior(total), []
        if fitted is not None:  # what was asked for comes first
            advice[fitted] = f"ε = {stated(total)}, with the model: take {fitted}."
        if name != fitted:
            advice[name] = f"ε = {stated(total)}: take {name}: {why}."
        for chosen, line in advice.items():
            told[total].append(line)
            (expected,) = (entry for entry in result.expected[chosen] if entry.total == total)
            told[total] += [f"  warning: {text}" for text in expected.outlook.warnings]
    shared = set.intersection(*map(set, told.values())) if len(told) > 1 else set()
    for lines in told.values():
        for line in dict.fromkeys(lines):
            if line not in shared:
                say(line)
    if shared:
        say("At each of these ε:")
        for line in dict.fromkeys(line for line in told[totals[0]] if line in shared):
            say(line)
