"""Runs that are killed, and runs that meet in one folder, as real processes."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from dpbayes.publication.ledger import Ledger
from tests.cli.command import COMMAND, dpbayes, options, records

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
GIVEN = {"formula": "y ~ 1", "warmup": 500, "draws": 500}
DEADLINE = 60


@pytest.fixture
def many(folder):
    """The folder, with records enough for chains that take a while."""
    records(600).to_csv(folder / "data.csv", index=False)
    return folder


def children_of(process):
    found = []
    for task in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{task}/children") as stream:
            found += [int(child) for child in stream.read().split()]
    return found


@contextlib.contextmanager
def fitting(folder, **changes):
    """A ``synthesize`` of which at least one chain is on disk, and not all of them."""
    flags = options(folder, **{**GIVEN, **changes})
    command = [COMMAND, "synthesize", str(folder / "data.csv"), *map(str, flags)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + DEADLINE
    while not list(checkpoint_of(folder).glob("*.nc")) and time.monotonic() < until:
        time.sleep(0.01)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def kill(process):
    """SIGKILL, and wait until the chains have ended with the process that wanted them."""
    workers = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + DEADLINE
    while any(os.path.exists(f"/proc/{w}") for w in workers):
        assert time.monotonic() < until
        time.sleep(0.01)


def checkpoint_of(folder):
    return folder / "out" / "confidential" / "checkpoint"


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.glob("*.nc")}


def test_a_killed_fit_goes_on_where_it_was(many):
    """SIGKILL after the first chain: the rerun keeps it, and makes the others."""
    with fitting(many) as process:
        kill(process)
    checkpoint = checkpoint_of(many)
    kept = {
        int(path.stem.rsplit("-", 1)[1]) - 1: xr.load_datatree(path, engine="h5netcdf")
        for path in checkpoint.glob("*.nc")
    }
    assert 1 <= len(kept) < 4
    seed = json.loads((checkpoint / "inputs.json").read_text())["seed"]
    assert not (many / "out" / "release").exists()
    assert checkpoint.parent.stat().st_mode & 0o777 == 0o700
    assert checkpoint.stat().st_mode & 0o777 == 0o700
    assert (many / "out" / ".dpbayes.lock").exists()  # nobody holds it any more

    done = dpbayes("synthesize", many / "data.csv", *options(many, **GIVEN))
    assert done.returncode == 0, done.stderr
    assert f"Went on with {len(kept)} chains of an earlier run" in done.stdout
    confidential = many / "out" / "confidential"
    with xr.open_datatree(confidential / "draws.nc", engine="h5netcdf") as tree:
        for chain, draws in kept.items():
            for name, values in draws["posterior"].data_vars.items():
                found = tree["posterior"][name].to_numpy()[chain]
                np.testing.assert_array_equal(found, values.to_numpy()[0])
    assert json.loads((confidential / "fit.json").read_text())["settings"]["seed"] == seed
    assert not checkpoint.exists()
    assert sorted(p.name for p in (many / "out").iterdir()) == ["confidential", "release"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"epsilon": 5}, "mechanism"), ({"draws": 600}, "sampler settings")],
)
def test_chains_of_other_settings_are_set_aside(many, changes, named):
    with fitting(many) as process:
        kill(process)
    done = dpbayes("synthesize", many / "data.csv", *options(many, **{**GIVEN, **changes}))
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert f"a fit with other {named} were set aside in" in said
    assert "checkpoint.old-1" in said
    assert "Went on with" not in said
    assert (many / "out" / "release" / "guarantee.json").exists()
    assert not list((many / "out" / "confidential").glob("checkpoint*"))


def test_a_second_run_into_one_folder_is_refused_before_it_fits(many):
    """It touches nothing of the first one, which ends as if it had been alone."""
    with fitting(many) as first:
        stopped(first.pid)  # it holds its lock, and writes nothing and starts nobody meanwhile
        workers = [pid for pid in children_of(first.pid) if stopped(pid)]
        before = contents(checkpoint_of(many))
        second = dpbayes("synthesize", many / "data.csv", *options(many, **GIVEN))
        assert second.returncode == 2
        assert "is in use by another run" in second.stderr
        assert len(second.stderr.splitlines()) == 1
        assert second.stdout == ""
        assert contents(checkpoint_of(many)) == before
        assert not list((many / "out" / "confidential").glob("*.old-*"))
        for pid in (first.pid, *workers):
            os.kill(pid, signal.SIGCONT)
        assert first.wait(timeout=120) == 0
    assert sorted(p.name for p in (many / "out").iterdir()) == ["confidential", "release"]


def stopped(pid):
    """Send SIGSTOP, and wait until every thread stands still; False if it has ended."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, signal.SIGSTOP)
        until = time.monotonic() + DEADLINE
        while states := {task.read_text().rsplit(")", 1)[1].split()[0] for task in tasks_of(pid)}:
            if states <= {"T", "Z", "X"}:
                return "T" in states
            assert time.monotonic() < until
            time.sleep(0.001)
    return False


def tasks_of(pid):
    return Path("/proc", str(pid), "task").glob("*/stat")


@pytest.mark.parametrize("round_", range(4))
def test_two_processes_make_one_ledger(tmp_path, round_):
    """Of one account there is one budget, and the other is told; two accounts are both made."""
    names = ("cps", "cps" if round_ % 2 else "acs")
    url = tmp_path / "ledger.db"
    commands = [
        [COMMAND, "ledger", "create", str(url), "--account", name, "--epsilon", "1"]
        for name in names
    ]
    both = [
        subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for c in commands
    ]
    said = [process.communicate(timeout=DEADLINE)[1] for process in both]
    codes = [process.returncode for process in both]
    if round_ % 2:
        assert sorted(codes) == [0, 2]
        assert "data set 'cps' is in the ledger already" in said[codes.index(2)]
        assert "".join(said).count("\n") == 1
    else:
        assert (codes, said) == ([0, 0], ["", ""])
    accounts = Ledger(str(url)).accounts()
    assert sorted(account.name for account in accounts) == sorted(set(names))
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]
