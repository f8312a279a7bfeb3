"""Compiling with CmdStan: one process at a time, and files that are there whole or not at all.

Every compiled program shares two files in CmdStan's own folder, its main object and a precompiled
header, of which there is another pair for programs with threads. CmdStan's makefile writes them
where it reads them. A process that is killed meanwhile (the header takes half a minute) leaves a
part of one, with which no program compiles from then on; nor does one that another process
compiles at that time. So they are built here first, in a scratch folder, and moved.
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
    """Compile a Stan program; its executable is beside it.

    Args:
        cmdstanpy: the package.
        home: CmdStan's folder.
        source: file with the program.
        threads: for more threads than one.
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
    """Shared files that are not there, by their variables; none if the makefile tells no names."""
    try:
        printed = _make(home, options, *(f"print-{variable}" for variable in _SHARED))
    except ValueError:  # what is wrong is said when a program is compiled
        return {}
    names = dict(re.findall(rf"^({'|'.join(_SHARED)}) = (\S+)[ \t]*$", printed, re.MULTILINE))
    paths = {variable: home / name for variable, name in names.items()}
    return {variable: path for variable, path in paths.items() if not path.exists()}


def compiler_settings(home: Path) -> str:
    """Settings of the C++ compiler: the user's files for CmdStan's makefile, and optimisation."""
    texts = [os.environ.get("O", "")]
    for path in (Path.home() / ".config" / "stan" / "make.local", home / "make" / "local"):
        with contextlib.suppress(OSError):
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


def _make(home: Path, options: dict[str, str], *targets: str) -> str:
    """What make prints in CmdStan's folder."""
    make = os.environ.get("MAKE", "mingw32-make" if os.name == "nt" else "make")  # as cmdstanpy
    command = [make, *(f"{key}={value}" for key, value in options.items()), *targets]
    try:
        done = subprocess.run(
            command, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
    except OSError as error:
        raise ValueError(f"{make}: {error.strerror}") from None
    if done.returncode:
        raise ValueError(done.stdout)
    return done.stdout


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[Path]:
    """A scratch folder inside a folder that no other process uses meanwhile.

    The lock ends with the process that holds it. What a process that was killed has left goes.

    Raises:
        OSError: the folder cannot be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = filelock.FileLock(directory / _LOCK, mode=0o600, fallback_to_soft=False)
    with lock:
        for left in directory.glob(f"{_SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=directory) as scratch:
            yield Path(scratch)
