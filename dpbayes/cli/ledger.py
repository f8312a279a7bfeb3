"""``dpbayes ledger``: budgets of data sets, what was spent, and unfinished releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

ledger_app = typer.Typer(
    help="A privacy budget per data set, and every release that was paid from it. Confidential.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
console = Console()

Url = Annotated[
    str, typer.Argument(metavar="URL", help="File, or postgresql://USER@HOST/DATABASE.")
]
Dataset = Annotated[str, typer.Option(help="Name of the data set.")]
OneDataset = Annotated[str | None, typer.Option("--dataset", help="Only this data set.")]


@ledger_app.command()
def create(
    url: Url,
    dataset: Dataset,
    epsilon: Annotated[float, typer.Option(help="Budget of all releases together, in nats.")],
    delta: Annotated[float, typer.Option(help="δ of the budget; 0: pure ε, plain sums.")] = 0.0,
    adjacency: Annotated[
        str, typer.Option(help="What the budget is for: add-remove or substitution.")
    ] = "add-remove",
) -> None:
    """Give a data set its budget, in a ledger that is made if there is none.

    A budget is never raised, and a data set is known by its records, not by its file's name.
    """
    from dpbayes.publication.ledger import Ledger

    account = Ledger.create(url).add_dataset(
        dataset,
        epsilon,
        delta,
        adjacency,  # type: ignore[arg-type]  # which checks the word
    )
    console.print(account.statement(), highlight=False, soft_wrap=True)


@ledger_app.command()
def show(url: Url, dataset: OneDataset = None) -> None:
    """Show budgets, what was spent, and what is left."""
    from dpbayes.publication.ledger import STATES, Ledger

    ledger = Ledger(url)
    accounts = ledger.accounts() if dataset is None else [ledger.account(dataset)]
    table = Table(box=None, pad_edge=False)
    for name in ("data set", "adjacency"):
        table.add_column(name)
    for name in ("budget ε", "δ", "spent ε", "left", *STATES):
        table.add_column(name, justify="right")
    for account in accounts:
        budget = account.budget
        numbers = (budget.epsilon, budget.delta, account.spent[0], account.left)
        table.add_row(
            account.name,
            account.adjacency,
            *(f"{number:.6g}" for number in numbers),
            *(str(account.entries[state]) for state in STATES),
        )
    _print(table)
    if any(account.entries[state] for account in accounts for state in ("reserved", "writing")):
        console.print("Unfinished entries count as spent; see `dpbayes ledger resolve`.")


@ledger_app.command()
def history(url: Url, dataset: OneDataset = None) -> None:
    """List every entry in the order of the reservations."""
    from dpbayes.publication.ledger import Ledger

    found = Ledger(url).history(dataset)
    table = Table(box=None, pad_edge=False)
    table.add_column("number", justify="right")
    names = ("created", "dataset", "state", "mechanism", "draws", "ε once", "ε each", "by", "note")
    for name in names:
        table.add_column(name, justify="right" if name in ("draws", "ε once", "ε each") else "left")
    for number, row in found.iterrows():
        table.add_row(
            str(number), row["created"], row["dataset"], row["state"], row["mechanism"],
            str(row["datasets"]), f"{row['once_epsilon']:.4g}", f"{row['each_epsilon']:.4g}",
            f"{row['actor']}@{row['host']}", row["note"],
        )  # fmt: skip
    _print(table)
    console.print(
        "ε by the adjacency of the data set's account; times in UTC, by the writer's clock."
    )


@ledger_app.command()
def resolve(
    url: Url,
    entry: Annotated[
        str | None, typer.Option(help="This entry, even if its process seems to run.")
    ] = None,
) -> None:
    """Finish or void releases that crashed.

    Void, with the cost given back, only where no data set can have been written. Finished where
    the files are whole. Everything else stays paid.
    """
    from dpbayes.publication.gate import resolve as resolve_all
    from dpbayes.publication.ledger import Ledger

    done = resolve_all(Ledger(url), entry)
    for item in done:
        state = item.state or f"left {item.entry.state}"
        console.print(
            f"{item.entry.number} {item.entry.dataset} ({item.entry.id}): {state}; {item.reason}.",
            highlight=False,
            soft_wrap=True,
        )
    if not done:
        console.print("No entry is unfinished.")


@ledger_app.command()
def accept(
    url: Url,
    dataset: Dataset,
    data: Annotated[Path, typer.Argument(metavar="DATA.csv", help="Corrected records.")],
) -> None:
    """Take in corrected records of the same persons, under the budget that they have."""
    from dpbayes.publication.ledger import Ledger
    from dpbayes.schema import read_records
    from dpbayes.schema.fingerprint import content_digest

    ledger = Ledger(url)
    ledger.accept_version(dataset, content_digest(read_records(data)))
    console.print(ledger.account(dataset).statement(), highlight=False, soft_wrap=True)


@ledger_app.command()
def upgrade(url: Url) -> None:
    """Bring a ledger of an older dpbayes to this version's schema."""
    from dpbayes.publication.database import VERSION
    from dpbayes.publication.ledger import Ledger

    console.print(f"{Ledger.upgrade(url).url} has version {VERSION}.", soft_wrap=True)


def _print(table: Table) -> None:
    """A file or pipe has no width to keep to."""
    (console if console.is_terminal else Console(width=160)).print(table)
