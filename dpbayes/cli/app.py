"""Application ``dpbayes``: its commands read options, call the library and print."""

from __future__ import annotations

import functools
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Annotated, Any

import typer

from dpbayes.cli.audit import audit
from dpbayes.cli.browser import app as in_browser
from dpbayes.cli.check import check
from dpbayes.cli.demo import demo
from dpbayes.cli.inference import combine
from dpbayes.cli.ledger import ledger_app
from dpbayes.cli.options import flattened
from dpbayes.cli.pages import report
from dpbayes.cli.plan import plan
from dpbayes.cli.schema import schema_app
from dpbayes.cli.streams import FAILED, run, say, say_error, sign_of_life, spelled
from dpbayes.cli.synthesize import synthesize
from dpbayes.cli.tune import tune
from dpbayes.cli.whole import risk, utility
from dpbayes.core.errors import DpbayesError
from dpbayes.core.interrupts import finished, first_signal, ignore, leave, stop_if_interrupted
from dpbayes.engines import ENGINES
from dpbayes.mechanisms import MECHANISMS
from dpbayes.stan.families import FAMILIES

# Output folders hold confidential files: nothing here prints values of single records.
app = typer.Typer(
    name="dpbayes",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def run_command(application: typer.Typer | None = None, name: str = "dpbayes") -> None:
    """Run the command line; an error that a user can mend gives one message and exit code 2.

    Args:
        application: application with other commands, in place of ``dpbayes``.
        name: name of the application, for its help.
    """
    spelled.options = functools.cache(lambda: options_of(application or app, sys.argv[1:]))
    code = run(lambda: _command(application or app, name))
    if first_signal() is not None:
        leave(code)
    if finished():
        ignore()
    sys.exit(code)


def _command(application: typer.Typer, name: str) -> int:
    """Run a command and return its exit code; 128 plus the signal's number if a signal ended it."""
    try:
        stop_if_interrupted()
        with warnings.catch_warnings():
            warnings.showwarning = _once()
            code = _exit_code(application, name)
    except KeyboardInterrupt:
        code = FAILED
    except Exception:
        if first_signal() is None:  # libraries turn KeyboardInterrupt into their own errors
            say_error(f"{traceback.format_exc()}error: this is a fault of {name}, not yours.")
        code = FAILED
    signal = first_signal()
    if signal is None or code == 0:  # a signal after the work was done does not count
        return code
    ignore()  # or a second one, or the alarm that repeats the first, would end this by an error
    say_error(f"error: interrupted by {signal.name}.")
    return 128 + signal


def _once() -> Callable[..., None]:
    """Return a function that prints a warning of the library, each text once."""
    told: set[str] = set()

    def warned(message: Warning | str, *_: object) -> None:
        if str(message) not in told:
            told.add(str(message))
            say_error(f"warning: {message}")

    return warned


def options_of(application: typer.Typer, words: Sequence[str]) -> dict[str, str]:
    """Return options by the names of their parameters: of all commands, and of the one that runs.

    A mechanism's setting, which the command takes by ``--set``, is none of another command.
    """
    root: Any = typer.main.get_command(application)
    every, commands = {"dataset": "--account"}, [root]
    while commands:
        commands += getattr(commands[0], "commands", {}).values()
        every |= _options(commands.pop(0))
    running = root
    for word in words:
        running = getattr(running, "commands", {}).get(word, running)
    own = _options(running)
    settings: set[str] = set()
    if "more" in own:  # all mechanisms are dataclasses
        settings = {f.name for m in MECHANISMS.values() for f in fields(m)}  # type: ignore[arg-type]
    return {name: option for name, option in every.items() if name not in settings} | own


def _options(command: Any) -> dict[str, str]:
    return {p.name: p.opts[0] for p in command.params if p.opts[0].startswith("--")}


def _exit_code(application: typer.Typer, name: str) -> int:
    try:
        application(prog_name=name)
    except DpbayesError as error:
        say_error(f"error: {error}")
        return FAILED
    except MemoryError:
        say_error("error: there is not enough memory for this.")
        return FAILED
    except SystemExit as end:  # always an int from typer
        return int(end.code or 0)
    return 0


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version as installed  # slow, and seldom asked for

        say(f"dpbayes {installed('dpbayes')}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    """Synthetic microdata from Bayesian models with a privacy guarantee.

    Exit codes: 0 done; 1 an audit found more than the claimed ε; 2 an error, told on standard
    error; 130 ended by Ctrl-C, 143 by SIGTERM. What was released or written stays done, with code
    0, if standard output closes or its disk fills up: standard error then says what it was.
    """


def list_() -> None:
    """List families, mechanisms with what each guarantees, and engines."""
    families = [(f.name, f"{f.column_type} outcome; {f.density}") for f in FAMILIES.values()]
    mechanisms = [(m.name, m.summary) for m in MECHANISMS.values()]
    engines = [(name, entry.summary) for name, entry in ENGINES.items()]
    groups = (("Families", families), ("Mechanisms", mechanisms), ("Engines", engines))
    width = max(len(name) for _, rows in groups for name, _ in rows)
    for title, rows in groups:
        say(title)
        for name, text in rows:
            say(f"  {name:<{width}}  {text}")


for _subcommand in (
    demo,
    plan,
    synthesize,
    tune,
    audit,
    check,
    combine,
    risk,
    utility,
    report,
):
    app.command()(flattened(sign_of_life()(_subcommand)))
app.command("app")(flattened(in_browser))  # its page shows what it does
app.command("list")(list_)
app.add_typer(ledger_app, name="ledger")
app.add_typer(schema_app, name="schema")
