"""What takes long to import is imported by what needs it: asserted on modules, not on time."""

import json
import subprocess
import sys

import pytest

from tests.cli.command import ENVIRONMENT, options

HEAVY = (
    "pandas", "scipy", "xarray", "matplotlib", "sqlalchemy", "formulaic", "arviz_base",
    "arviz_stats", "opendp", "dp_accounting", "h5py", "distributed",
)  # fmt: skip
PROGRAM = """
import json, sys
from dpbayes.cli import main
try:
    main()
finally:
    with open({place!r}, "w") as stream:
        json.dump(sorted(sys.modules), stream)
"""


def run(tmp_path, *arguments):
    """The exit code, what was said, and which of the heavy libraries were imported."""
    place = tmp_path / "modules.json"
    program = PROGRAM.format(place=str(place))
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True,
        check=False, env=ENVIRONMENT,
    )  # fmt: skip
    modules = set(json.loads(place.read_text()))
    assert "numpy" in modules
    return done, [name for name in HEAVY if name in modules]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--help",), 0, "Usage: dpbayes"),
        (("--version",), 0, "dpbayes "),
        (("list",), 0, "censored-weighted"),
        (("synthesize", "--help"), 0, "--formula"),
        (("ledger", "--help"), 0, "resolve"),
        (("synthesise",), 2, "No such command"),
        (("synthesize", "--frmula", "y ~ 1"), 2, "No such option"),
        (("list", "--all"), 2, "No such option"),
    ],
)
def test_help_and_wrong_options_import_nothing_heavy(tmp_path, arguments, code, said):
    done, heavy = run(tmp_path, *arguments)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert not heavy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"formula": "why ~ age"}, "column 'why' is not declared"),
        ({"formula": "y ~ agee"}, "column 'agee' is not declared"),
        ({"mechanism": "censord"}, "unknown mechanism 'censord'"),
        ({"epsilon": -1}, "epsilon = -1.0 must be"),
        ({"window": "-1,x"}, "must be symmetric, negative, or two numbers"),
        ({"family": None}, "needs either family or program (--family, --program). Families for "),
        ({"schema": "none.toml"}, "schema file 'none.toml' does not exist"),
    ],
)
def test_wrong_names_and_numbers_import_nothing_heavy(folder, changes, message):
    given = ("synthesize", folder / "data.csv", *options(folder, **changes))
    done, heavy = run(folder, *given)
    assert done.returncode == 2
    assert message in done.stderr
    assert not heavy


def test_it_would_notice(folder):
    """The list above finds what a command does import."""
    _, heavy = run(folder, "ledger", "create", folder / "l.db", "--account", "a", "--epsilon", 1)
    assert "sqlalchemy" in heavy
