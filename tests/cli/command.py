"""The ``dpbayes`` command as a subprocess, and what most tests give it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dpbayes.mechanisms import MECHANISMS
from tests.conftest import make_records

COMMAND = str(Path(sys.executable).with_name("dpbayes"))
COLUMNS = ["y", "age", "sex", "ill"]
SCHEMA = """
[columns.y]
type = "continuous"
lower = 0
upper = 10
[columns.age]
type = "count"
lower = 20
upper = 60
public = true
[columns.sex]
type = "categorical"
levels = ["f", "m"]
public = true
[columns.ill]
type = "binary"
levels = ["no", "yes"]
"""
ENVIRONMENT = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}


def dpbayes(*arguments, cwd=None, typed=""):
    """Run it to its end, with what a user types."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, check=False,
        env=ENVIRONMENT, timeout=300, input=typed,
    )  # fmt: skip


def study(*arguments):
    """Run a study to its end."""
    return subprocess.run(
        [sys.executable, "-m", "studies", *map(str, arguments)], capture_output=True, text=True,
        cwd=Path(__file__).parents[2], check=False, env=ENVIRONMENT, timeout=300,
    )  # fmt: skip


def in_shell(line, *arguments, cwd=None):
    """Run a line of bash in which ``"$@"`` stands for the command: for pipes and redirections."""
    return subprocess.run(
        ["bash", "-c", line, "bash", COMMAND, *map(str, arguments)], capture_output=True,
        text=True, cwd=cwd, check=False, env=ENVIRONMENT, timeout=300,
    )  # fmt: skip


def records(n=150):
    return make_records(n)[COLUMNS]


def options(folder, **changes):
    """Options of ``synthesize``; None leaves one out, True makes it a flag."""
    kind = MECHANISMS.get(changes.get("mechanism", "censored"))
    given = {
        "schema": folder / "schema.toml", "formula": "y ~ age + sex", "family": "beta",
        "mechanism": "censored", "epsilon": 6, "out": folder / "out", "warmup": 500, "draws": 500,
        "adjacency": None if kind and not kind.takes("adjacency") else "add-remove", **changes,
    }  # fmt: skip
    flags = []
    for key, value in given.items():
        if value is not None:
            flags += [f"--{key.replace('_', '-')}", *([] if value is True else [value])]
    return flags
