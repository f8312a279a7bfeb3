"""``dpbayes ledger``: budgets of data sets, what was spent, and unfinished releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dpbayes.cli.options import Data, InputOptions, ShowValues, flattened
from dpbayes.cli.streams import say, say_done, say_table
from dpbayes.privacy.accounting import stated, stated_left
from dpbayes.privacy.guarantee import amount
from dpbayes.publication.account import check_new
from dpbayes.publication.ledger import STATES, Ledger, loss_in
from dpbayes.publication.resolve import resolve as resolve_all
from dpbayes.publication.url import redact
from dpbayes.records.chunked_overlap import identity_of
from dpbayes.records.chunks import table_of
from dpbayes.records.formats.source import place
from dpbayes.schema import Schema

ledger_app = typer.Typer(
    help="A privacy budget per data set, and every release that was paid from it. Confidential.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Url = Annotated[
    str, typer.Argument(metavar="URL", help="File, or postgresql://USER@HOST/DATABASE.")
]
OneAccount = Annotated[str, typer.Option("--account", help="Name of the data set.")]
AnyAccount = Annotated[str | None, typer.Option("--account", help="Only this data set.")]


@ledger_app.command()
def create(
    url: Url,
    account: OneAccount,
    epsilon: Annotated[float, typer.Option(help="Budget of all releases together, in nats.")],
    delta: Annotated[float, typer.Option(help="δ of the budget; 0: pure ε, plain sums.")] = 0.0,
    adjacency: Annotated[
        str, typer.Option(help="What the budget is for: add-remove or substitution.")
    ] = "add-remove",
    overlap: Annotated[
        float | None,
        typer.Option(
            help="For a new ledger: share of the smaller of two data sets, from which common "
            "records are refused a second budget [0.5]."
        ),
    ] = None,
) -> None:
    """Open the account of a data set with its budget, in a ledger that is created if needed.

    A budget is never raised, and a data set is recognised by its records, not by its file name.
    """
    check_new(account, epsilon, delta, adjacency)  # before a ledger file is created in vain
    opened = Ledger.create(url, overlap).add_dataset(
        account,
        epsilon,
        delta,
        adjacency,  # type: ignore[arg-type]  # checked there
    )
    say_done(opened.statement())


@ledger_app.command()
def show(url: Url, account: AnyAccount = None) -> None:
    """Show budgets, what was spent, and what is left."""
    ledger = Ledger(url)
    accounts = ledger.accounts() if account is None else [ledger.account(account)]
    table = Table(box=None, pad_edge=False)
    for name in ("data set", "adjacency"):
        table.add_column(name)
    for name in ("budget ε", "δ", "spent ε", "left", *STATES):
        table.add_column(name, justify="right")
    for dataset in accounts:
        budget = dataset.budget
        table.add_row(
            str(dataset.name),
            dataset.adjacency,
            stated_left(budget.epsilon),
            stated(budget.delta),
            stated(dataset.spent[0]),
            stated_left(dataset.left),
            *(str(dataset.entries[state]) for state in STATES),
        )
    say_table(table)
    if any(dataset.entries[state] for dataset in accounts for state in ("reserved", "writing")):
        say("Unfinished entries count as spent; see `dpbayes ledger resolve`.")


@ledger_app.command()
def history(url: Url, account: AnyAccount = None) -> None:
    """List every entry in the order of the reservations."""
    entries = Ledger(url).history(account)
    table = Table(box=None, pad_edge=False)
    table.add_column("number", justify="right")
    persons = ["records"] if (entries["records"] > 1).any() else []
    names = ("created", "dataset", "kind", "state", "mechanism", "draws", "once", "each", *persons,
             "by", "note")  # fmt: skip
    for name in names:
        right = name in ("draws", "once", "each", "records")
        table.add_column(name, justify="right" if right else "left")
    for number, row in entries.iterrows():
        table.add_row(
            str(number), row["created"], row["dataset"], row["kind"], row["state"],
            row["mechanism"],
            str(row["datasets"]),
            amount(loss_in(row["once_epsilon"], row["once_rho"])),
            amount(loss_in(row["each_epsilon"], row["each_rho"])),
            *(str(row[name]) for name in persons),
            f"{row['actor']}@{row['host']}", redact(row["note"]),
        )  # fmt: skip
    say_table(table)
    say(
        "Costs by the adjacency of the data set's account: ε, or ρ (zCDP) where δ = 0 has no ε; "
        "times in UTC, by the writer's clock."
    )
    if persons:
        say("They are of one record. A person has as many as the largest number in the account.")


@ledger_app.command()
def resolve(
    url: Url,
    entry: Annotated[
        str | None, typer.Option(help="This entry, even if its process seems to run.")
    ] = None,
) -> None:
    """Finish or void releases and choices that crashed.

    An entry is void, with its cost given back, only if no data set can have been written. It is
    finished if the files are complete. All other entries stay paid.
    """
    lines = [
        f"{item.entry.number} {item.entry.dataset} ({item.entry.id}): "
        f"{item.state or f'left {item.entry.state}'}; {item.reason}."
        for item in resolve_all(Ledger(url), entry)
    ]
    say_done("\n".join(lines or ["No entry is unfinished."]))


@ledger_app.command()
@flattened
def accept(
    url: Url,
    account: OneAccount,
    data: Data,
    source: InputOptions,
    schema: Annotated[
        Path, typer.Option(help="Their schema file: data sets are known by declared columns.")
    ],
    show_values: ShowValues = False,
) -> None:
    """Add records to a data set's account, on your assertion as its curator.

    You assert that they are a corrected version about the same persons, and share the budget, or
    that they are about other persons than the data sets that they resemble.
    """
    ledger = Ledger(url)
    public = Schema.from_toml(schema)
    records = source.read(data, public)
    presented = identity_of(table_of(public, records, show_values=show_values))
    shared = ledger.accept(account, presented, place(data))
    if shared:
        say(f"Common records with other data sets: {', '.join(map(str, shared))}.")
    say_done(ledger.account(account).statement())
