"""Runs of a compiled Stan program: CmdStan's command line, its tables and its messages."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.engines.base import unfit_data
from dpbayes.engines.processes import Processes, run_each
from dpbayes.stan.program import StanProgram

SOURCE = "model.stan"
DIGITS = 17  # enough to give back every double exactly
_FAILED = {
    "sample": "sampling failed",
    "log_prob": "the log density cannot be evaluated",
    "generate_quantities": "the generated quantities cannot be evaluated",
}


class RejectionError(EngineError):
    """The Stan program itself raised an error at a point of the parameter space."""


@dataclass(frozen=True)
class Run:
    """Settings to run a compiled program in a folder that holds ``data.json``.

    Attributes:
        executable: the compiled program, built with threads if ``threads`` is above 1.
        program: the Stan program, for messages.
        seed, threads, refresh: CmdStan's arguments.
        parallel: number of chains run at once.
        watch: is called with the chain and each line that it prints.
        finished: is called with chain and table of each chain that succeeds, from any thread.
    """

    executable: Path
    program: StanProgram
    folder: Path
    seed: int
    parallel: int = 1
    threads: int = 1
    refresh: int = 0
    watch: Callable[[int, str], Any] | None = None
    finished: Callable[[int, Path], Any] | None = None

    def tables(self, calls: Mapping[int, list[str]]) -> tuple[list[Path], list[str]]:
        """Run the program once per chain (from 0) with its arguments.

        Returns:
            The tables written and what was printed, in the order of ``calls``.

        Raises:
            ProgramError: the data are not accepted. RejectionError: the program raised an error at
            a point. EngineError: any other failure.
        """
        tables = {chain: self.folder / f"output-{chain + 1}.csv" for chain in calls}
        commands = {
            chain: self._command(chain, arguments, tables[chain])
            for chain, arguments in calls.items()
        }

        def finished(chain: int) -> None:
            if self.finished is not None:
                self.finished(chain, tables[chain])

        for table in tables.values():
            table.unlink(missing_ok=True)
        failed = task_failed(next(iter(calls.values())))
        try:
            printed = run_commands(commands, self.folder, self.parallel, self.watch, finished)
        except OSError as error:
            raise EngineError(f"{failed}: {error}") from None
        except subprocess.CalledProcessError as error:
            # CmdStan opens its output only once the model has accepted the data.
            started = any(table.exists() for table in tables.values())
            raise self._explained(error, failed, started=started) from None
        return list(tables.values()), list(printed.values())

    def _command(self, chain: int, arguments: list[str], table: Path) -> list[str]:
        return [
            *(str(self.executable), f"id={chain + 1}", *arguments),
            *("data", "file=data.json", "random", f"seed={self.seed}"),
            *("output", f"file={table.name}", f"sig_figs={DIGITS}"),
            *(f"refresh={self.refresh}", f"num_threads={self.threads}"),
        ]

    def _explained(
        self, error: subprocess.CalledProcessError, failed: str, *, started: bool
    ) -> EngineError | ProgramError:
        message = self.named(error.stderr.strip())
        if message.startswith("Exception: ") and not started:
            return unfit_data(self.program, message.removeprefix("Exception: "))
        kind = RejectionError if "Exception: " in message else EngineError
        reasons = re.findall(r"^Exception: .*", error.stdout, re.MULTILINE)
        message = "\n".join([message, *map(self.named, reasons[-1:])])
        return kind(f"{failed}: CmdStan ended with code {error.returncode}.").saying(message)

    def named(self, message: str) -> str:
        """Rewrite a message about the cached source with the name of the user's program."""
        message = re.sub(r"\w+_namespace::\w+: ", "", message)
        return message.replace(f"'{SOURCE}'", f"'{self.program.name}.stan'")


def task_failed(arguments: list[str]) -> str:
    """Describe which task has failed, from the arguments of the call."""
    return _FAILED[arguments[0]]


def read_table(path: Path) -> tuple[list[str], Floats]:
    """Read column names and rows of a Stan CSV file; comments may stand anywhere."""
    with path.open(encoding="utf-8") as lines:
        header = next(line for line in lines if not line.startswith("#"))
        # Unlike older pandas, loadtxt reads back exactly the double that was written.
        values = np.loadtxt(lines, delimiter=",", comments="#", ndmin=2)
    return header.strip().split(","), values


def run_commands(
    commands: Mapping[int, list[str]],
    folder: Path,
    parallel: int = 1,
    watch: Callable[[int, str], Any] | None = None,
    finished: Callable[[int], Any] | None = None,
) -> dict[int, str]:
    """Run commands in ``folder``, at most ``parallel`` at a time; return their output by number.

    ``watch`` takes a command's number and each line; ``finished`` takes the number on success.
    If one command fails, or on Ctrl-C, the rest are killed.

    Raises:
        subprocess.CalledProcessError: of the first that failed, with its standard error.
    """

    def run(number: int, processes: Processes) -> str:
        def line_of(line: str) -> None:
            if watch is not None:
                watch(number, line)

        errors = folder / f"errors-{number}.txt"
        printed = _run_command(commands[number], folder, errors, processes, line_of)
        if finished is not None:
            finished(number)
        return printed

    return run_each(run, list(commands), parallel)


def _run_command(
    command: list[str],
    folder: Path,
    errors: Path,
    processes: Processes,
    watch: Callable[[str], Any],
) -> str:
    # A number of threads left by another tool would contradict the argument num_threads.
    environment = {k: v for k, v in os.environ.items() if k != "STAN_NUM_THREADS"}
    with errors.open("w", encoding="utf-8") as stream:
        process = processes.start(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches this process, which ends them all
        )
    printed = []
    with process:
        assert process.stdout is not None  # a pipe
        for line in process.stdout:
            printed.append(line)
            watch(line)
    text = "".join(printed)
    if process.returncode:
        message = errors.read_text(encoding="utf-8", errors="replace")
        raise subprocess.CalledProcessError(process.returncode, process.args, text, message)
    return text
