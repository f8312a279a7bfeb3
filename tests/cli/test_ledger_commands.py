"""Ledger and resumed fits from the shell."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from tests.cli.test_commands import COMMAND, dpbayes, folder, options  # noqa: F401  # fixture
from tests.conftest import make_records
from tests.ledgers import url  # noqa: F401  # fixture


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_budget_from_the_first_to_the_last_release(folder, url):  # noqa: F811
    made = dpbayes("ledger", "create", url, "--dataset", "cps", "--epsilon", 2)
    assert made.returncode == 0, made.stderr
    assert "spent ε = 0 of 2 (add-remove); 2 is left" in made.stdout
    account = {"ledger": url, "dataset": "cps", "mechanism": "anchored", "formula": "y ~ sex"}
    short = {"warmup": 300, "draws": 250, "allow-nonconvergence": None}
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
    dpbayes("ledger", "create", url, "--dataset", "fresh", "--epsilon", 5)
    for data, name, message in (
        ("data.csv", "cps", r"What still fits: 1 data set(s) at this ε, or --epsilon 0.2407"),
        ("renamed.csv", "fresh", "are those of data set 'cps'"),
        ("renamed.csv", "CPS", "'CPS' is not in the ledger; it has 'cps', 'fresh'"),
    ):
        given = {**account, "dataset": name, "out": folder / "more"}
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
    history = dpbayes("ledger", "history", url, "--dataset", "cps").stdout
    assert "released  anchored" in history
    assert "for the web" in history
    assert dpbayes("ledger", "resolve", url).stdout == "No entry is unfinished.\n"
    assert "has version" in dpbayes("ledger", "upgrade", url).stdout
    shuffled["y"] = shuffled["y"].round(3)
    shuffled.to_csv(folder / "corrected.csv", index=False)
    taken = dpbayes("ledger", "accept", url, "--dataset", "cps", folder / "corrected.csv")
    assert taken.returncode == 0, taken.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "l.db", "--dataset", "a", "--epsilon", "-1"), "epsilon = -1.0 must be"),
        (("create", "l.db", "--dataset", "a", "--epsilon", "nan"), "epsilon = nan must be"),
        (("create", "l.db", "--dataset", "a", "--epsilon", "1", "--delta", "2"), "delta = 2.0"),
        (("create", "l.db", "--dataset", "a", "--epsilon", "1", "--adjacency", "x"), "'x' must be"),
        (("create", "nowhere/l.db", "--dataset", "a", "--epsilon", "1"), "No such file"),
        (("create", "oracle://x/y", "--dataset", "a", "--epsilon", "1"), "sqlite or postgresql"),
        (("show", "none.db"), "there is no ledger 'none.db'"),
        (("show", "empty.db"), "holds no ledger"),
        (("show", "data.csv"), "is damaged (file is not a database)"),
        (("history", "good.db", "--dataset", "b"), "'b' is not in the ledger; it has 'a'"),
        (("create", "good.db", "--dataset", "a", "--epsilon", "9"), "a budget is never raised"),
        (("resolve", "good.db", "--entry", "f00"), "not among the unfinished ones"),
        (("show", "postgresql://nobody@127.0.0.1:1/x"), "cannot be used: connection failed"),
    ],
)
def test_bad_input_is_one_line(folder, arguments, message):  # noqa: F811
    (folder / "empty.db").touch()
    if "good.db" in arguments:
        dpbayes("ledger", "create", "good.db", "--dataset", "a", "--epsilon", 1, cwd=folder)
    done = dpbayes("ledger", *arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_ledger_and_dataset_go_together(folder):  # noqa: F811
    done = dpbayes("synthesize", folder / "data.csv", *options(folder, ledger="l.db"))
    assert done.returncode == 2
    assert "--ledger and --dataset go together" in done.stderr


@pytest.mark.parametrize("blocks", [40, 200])
def test_a_full_disk_is_one_line(folder, blocks):  # noqa: F811
    """Files of at most 20 or 100 kB: the chains do not fit, or the draws of all."""
    dpbayes("ledger", "create", folder / "l.db", "--dataset", "a", "--epsilon", 9)
    flags = options(
        folder, formula="y ~ 1", ledger=folder / "l.db", dataset="a", draws=900, warmup=500
    )
    command = [COMMAND, "synthesize", str(folder / "data.csv"), *map(str, flags)]
    done = subprocess.run(
        ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "File too large" in done.stderr
    assert not (folder / "out" / "release").exists()
    assert "spent ε" in dpbayes("ledger", "show", folder / "l.db").stdout
    assert " 9  0        0     9 " in dpbayes("ledger", "show", folder / "l.db").stdout
    assert dpbayes("synthesize", folder / "data.csv", *flags).returncode == 0


def children_of(process):
    found = []
    for task in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{task}/children") as stream:
            found += [int(child) for child in stream.read().split()]
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_a_killed_fit_goes_on_where_it_was(folder):  # noqa: F811
    """SIGKILL after the first chain: the rerun keeps it, and gives what was to come."""
    make_records(600)[["y", "age", "sex", "ill"]].to_csv(folder / "data.csv", index=False)
    given = {"formula": "y ~ 1", "warmup": 500, "draws": 500, "seed": 77}
    whole = options(folder, out=folder / "whole", **given)
    assert dpbayes("synthesize", folder / "data.csv", *whole).returncode == 0
    flags = options(folder, **given)
    command = [COMMAND, "synthesize", str(folder / "data.csv"), *map(str, flags)]
    checkpoint = folder / "out" / "confidential" / "checkpoint"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(checkpoint.glob("*.nc")) and time.monotonic() < deadline:
        time.sleep(0.01)
    workers = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {p.name for p in checkpoint.glob("*.nc")}
    assert 1 <= len(kept) < 4
    assert not (folder / "out" / "release").exists()
    assert checkpoint.parent.stat().st_mode & 0o777 == 0o700
    assert checkpoint.stat().st_mode & 0o777 == 0o700
    while any(os.path.exists(f"/proc/{w}") for w in workers) and time.monotonic() < deadline:
        time.sleep(0.01)  # chains end with the process that wanted them
    assert time.monotonic() < deadline

    changed = make_records(600)[["y", "age", "sex", "ill"]]
    changed.loc[3, "y"] = 1.0
    changed.to_csv(folder / "changed.csv", index=False)
    for data, more, named in (
        ("changed.csv", {}, "records or public constants"),
        ("data.csv", {"epsilon": 5}, "mechanism"),
        ("data.csv", {"draws": 700, "seed": 78}, "sampler settings"),
    ):
        refused = dpbayes("synthesize", folder / data, *options(folder, **{**given, **more}))
        assert refused.returncode == 2
        assert f"of a fit with other inputs ({named})" in refused.stderr
    assert {p.name for p in checkpoint.glob("*.nc")} == kept

    done = dpbayes("synthesize", folder / "data.csv", *flags)
    assert done.returncode == 0, done.stderr
    assert f"Went on with {len(kept)} chains of an earlier run" in done.stdout
    trees = [
        xr.open_datatree(folder / name / "confidential" / "draws.nc", engine="h5netcdf")
        for name in ("whole", "out")
    ]
    for name, values in trees[0]["posterior"].data_vars.items():
        np.testing.assert_array_equal(trees[1]["posterior"][name], values)
    for tree in trees:
        tree.close()
    first, second = (
        json.loads((folder / name / "release" / "guarantee.json").read_text())
        for name in ("whole", "out")
    )
    assert first["files"] == second["files"]  # the release too, as the seed is given
    assert not checkpoint.exists()
