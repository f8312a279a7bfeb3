"""Compilation with CmdStan: one process at a time, and atomic writes of the shared files.

Every compiled program shares two files in CmdStan's own folder, its main object and a precompiled
header; programs with threads share another such pair. CmdStan's makefile writes them directly to
their final place. A process killed meanwhile (the header takes half a minute) leaves a truncated
file, with which no program compiles any more; nor does a program that another process compiles at
that time. So this module builds the files in a scratch folder first and then moves them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import filelock

_LOCK = ".lock"  # held by the process that compiles
_SCRATCH = "compiling-"
_FOLDER = ".dpbayes"  # in CmdStan's folder, for the lock and scratch folders
_SHARED = ("CMDSTAN_MAIN_O", "PRECOMPILED_MODEL_HEADER")  # variables of CmdStan's makefile
_THREADS = {"STAN_THREADS": "TRUE"}


def compile_program(cmdstanpy: Any, home: Path, source: Path, *, threads: bool) -> str:
    """Compile a Stan program and return its executable, which lies beside the source.

    Args:
        cmdstanpy: the imported package.
        home: CmdStan's folder.
        source: file with the program.
        threads: whether the program shall run with several threads.
    Raises:
        EngineError: common files are missing and CmdStan's folder cannot be written.
        ValueError: the C++ compiler failed, with what it printed.
    """
    options = _THREADS if threads else {}
    build_shared_files(home, options)
    # Without targets the makefile computes no dependencies of C++ files on each other: a program
    # is compiled once, and they would take a third of the time of a small one.
    with cmdstanpy.disable_logging():
        return str(cmdstanpy.compile_stan_file(source, cpp_options={**options, "STAN_TARGETS": ""}))


def build_shared_files(home: Path, options: dict[str, str]) -> None:
    """Build the files that all programs with these options of CmdStan's makefile share.

    Raises:
        EngineError: CmdStan's folder cannot be written.
        ValueError: the C++ compiler failed, with what it printed.
    """
    if not _missing(home, options):
        return
    try:
        with alone_in(home / _FOLDER) as scratch:
            for variable, target in _missing(home, options).items():
                built = scratch / target.name
                name = built.relative_to(home).as_posix()
                _make(home, {**options, variable: name}, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(built, target)
    except OSError as error:
        assignments = "".join(f"{key}={value} " for key, value in options.items())
        raise EngineError(
            f"CmdStan in {home} is not built for this and cannot be written: {error.strerror}. "
            f"Let its owner run `make {assignments}build` there."
        ) from None


def _missing(home: Path, options: dict[str, str]) -> dict[str, Path]:
    """Missing shared files, by makefile variable; empty if the makefile does not name them."""
    try:
        printed = _make(home, options, *(f"print-{variable}" for variable in _SHARED))
    except ValueError:  # compiling the program will fail, too, and report the reason
        return {}
    names = dict(re.findall(rf"^({'|'.join(_SHARED)}) = (\S+)[ \t]*$", printed, re.MULTILINE))
    paths = {variable: home / name for variable, name in names.items()}
    return {variable: path for variable, path in paths.items() if not path.exists()}


def compiler_settings(home: Path) -> str:
    """Settings of the C++ compiler: the user's makefile settings and the optimisation level."""
    texts = [os.environ.get("O", "")]
    for path in (Path.home() / ".config" / "stan" / "make.local", home / "make" / "local"):
        with contextlib.suppress(OSError):
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


def _make(home: Path, options: dict[str, str], *targets: str) -> str:
    """Run make in CmdStan's folder and return what it prints."""
    make = os.environ.get("MAKE", "mingw32-make" if os.name == "nt" else "make")  # as cmdstanpy
    command = [make, *(f"{key}={value}" for key, value in options.items()), *targets]
    try:
        completed = subprocess.run(
            command, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
    except OSError as error:
        raise ValueError(f"{make}: {error.strerror}") from None
    if completed.returncode:
        raise ValueError(completed.stdout)
    return completed.stdout


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[Path]:
    """Lock a folder against other processes and give a scratch folder inside it.

    The lock ends with the process that holds it. Scratch folders of killed processes are removed.

    Raises:
        OSError: the folder cannot be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = filelock.FileLock(directory / _LOCK, mode=0o600, fallback_to_soft=False)
    with lock:
        for leftover in directory.glob(f"{_SCRATCH}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=directory) as scratch:
            yield Path(scratch)
