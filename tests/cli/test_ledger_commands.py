"""Budgets from the shell."""

import subprocess

import pandas as pd
import pytest

from tests.cli.command import COMMAND, options
from tests.cli.in_process import dpbayes


def test_a_budget_from_the_first_to_the_last_release(folder):
    url = folder / "ledger.db"
    made = dpbayes("ledger", "create", url, "--account", "cps", "--epsilon", 2)
    assert made.returncode == 0, made.stderr
    assert "spent ε = 0 of 2 (add-remove); 2 is left" in made.stdout
    account = {"ledger": url, "account": "cps", "mechanism": "anchored", "formula": "y ~ sex"}
    short = {"warmup": 300, "draws": 250, "allow-nonconvergence": True}
    first = dpbayes(
        "synthesize", folder / "data.csv",
        *options(folder, epsilon=0.5, datasets=3, note="for the web", **account, **short),
    )  # fmt: skip
    assert first.returncode == 0, first.stderr
    assert "has spent ε = 1.35 of 2" in first.stdout
    assert not (folder / "out" / "confidential" / "checkpoint").exists()
    # The same records under another file name, in another order, for another data set.
    shuffled = pd.read_csv(folder / "data.csv").sample(frac=1, random_state=1)
    shuffled[shuffled.columns[::-1]].to_csv(folder / "renamed.csv", index=False)
    dpbayes("ledger", "create", url, "--account", "fresh", "--epsilon", 5)
    for data, name, message in (
        ("data.csv", "cps", r"What still fits: 1 data set(s) at this ε, or --epsilon 0.2407"),
        ("renamed.csv", "fresh", "are those of data set 'cps'"),
        ("renamed.csv", "CPS", "'CPS' is not in the ledger; it has 'cps', 'fresh'"),
    ):
        given = {**account, "account": name, "out": folder / "more"}
        refused = dpbayes("synthesize", folder / data, *options(folder, epsilon=0.5, datasets=3,
                                                                **given))  # fmt: skip
        assert refused.returncode == 2
        assert message in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert not (folder / "more").exists()
    shown = dpbayes("ledger", "show", url)
    assert [line.split()[:6] for line in shown.stdout.splitlines()[1:]] == [
        ["cps", "add-remove", "2", "0", "1.35", "0.65"],
        ["fresh", "add-remove", "5", "0", "0", "5"],
    ]
    history = dpbayes("ledger", "history", url, "--account", "cps").stdout
    assert "released  anchored" in history
    assert "for the web" in history
    assert dpbayes("ledger", "resolve", url).stdout == "No entry is unfinished.\n"
    shuffled["y"] = shuffled["y"].round(3)
    shuffled.to_csv(folder / "corrected.csv", index=False)
    taken = dpbayes("ledger", "accept", url, "--account", "cps", folder / "corrected.csv",
                    "--schema", folder / "schema.toml")  # fmt: skip
    assert taken.returncode == 0, taken.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "l.db", "--account", "a", "--epsilon", "-1"), "epsilon = -1.0 must be"),
        (("create", "l.db", "--account", "a", "--epsilon", "nan"), "epsilon = nan must be"),
        (("create", "l.db", "--account", "a", "--epsilon", "1", "--delta", "2"), "delta = 2.0"),
        (("create", "l.db", "--account", "a", "--epsilon", "1", "--adjacency", "x"), "'x' must be"),
        (("create", "nowhere/l.db", "--account", "a", "--epsilon", "1"), "No such file"),
        (("create", "oracle://x/y", "--account", "a", "--epsilon", "1"), "sqlite or postgresql"),
        (("show", "none.db"), "there is no ledger 'none.db'"),
        (("show", "empty.db"), "holds no ledger"),
        (("show", "data.csv"), "is no ledger: the file is no SQLite database"),
        (("history", "good.db", "--account", "b"), "'b' is not in the ledger; it has 'a'"),
        (("create", "good.db", "--account", "a", "--epsilon", "9"), "a budget is never raised"),
        (("resolve", "good.db", "--entry", "f00"), "not among the unfinished ones"),
        (("show", "postgresql://nobody@127.0.0.1:1/x"), "cannot be used: connection failed"),
    ],
)
def test_bad_input_is_one_line(folder, arguments, message):
    (folder / "empty.db").touch()
    if "good.db" in arguments:
        dpbayes("ledger", "create", "good.db", "--account", "a", "--epsilon", 1, cwd=folder)
    done = dpbayes("ledger", *arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ledger": "l.db"}, "--ledger and --account go together"),
        ({"note": "x"}, "kept in a ledger"),
    ],
)
def test_ledger_and_account_go_together(folder, given, message):
    done = dpbayes("synthesize", folder / "data.csv", *options(folder, **given))
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(("blocks", "released"), [(40, False), (200, True)])
def test_a_full_disk_is_one_line(folder, blocks, released):
    """Files of at most 20 kB: the chains do not fit. Of 100 kB: only the report does not."""
    dpbayes("ledger", "create", folder / "l.db", "--account", "a", "--epsilon", 9)
    flags = options(
        folder, formula="y ~ 1", ledger=folder / "l.db", account="a", draws=900, warmup=500
    )
    command = [COMMAND, "synthesize", str(folder / "data.csv"), *map(str, flags)]
    done = subprocess.run(
        ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    shown = dpbayes("ledger", "show", folder / "l.db").stdout.splitlines()[1].split()
    if released:
        assert done.returncode == 0
        assert "Confidential: the report is incomplete: " in done.stdout
        assert "File too large" in done.stdout
        assert shown[4:6] == ["6", "3"]
        assert (folder / "out" / "release" / "guarantee.json").exists()
        return
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "File too large" in done.stderr
    assert not (folder / "out" / "release").exists()
    assert shown[4:6] == ["0", "9"]
    assert dpbayes("synthesize", folder / "data.csv", *flags).returncode == 0
