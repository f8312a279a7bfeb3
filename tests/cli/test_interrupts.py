"""Ctrl-C and SIGTERM: a command ends, says so once, and leaves nothing behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.command import COMMAND, ENVIRONMENT, dpbayes, options, records
from tests.programs import stopping, write

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
LOOP = "{ real z = 0; while (z < 1) z = z * 0.5; }"
BUSY = 2 * os.sysconf("SC_CLK_TCK")  # ticks of the processor: longer than anything else takes
DEADLINE = 60
STANC = """#!/usr/bin/env python3
import json
print(json.dumps({"inputs": {}, "parameters": {"intercept": {}}, "transformed parameters": {}}))
"""
MAKE = "#!/bin/sh\nfor last; do :; done\ncp MODEL $last\nchmod +x $last\n"


def children(process):
    found = []
    for task in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{task}/children") as stream:
            found += [int(child) for child in stream.read().split()]
    return found


def ticks(process):
    """Of the processor, that a process has used since it has loaded Stan; 0 before."""
    try:
        with open(f"/proc/{process}/maps") as stream:
            if "libstanli" not in stream.read():
                return 0
        with open(f"/proc/{process}/stat") as stream:
            return int(stream.read().rpartition(")")[2].split()[11])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def start(*arguments, **environment):
    # A shell's background jobs inherit SIGINT ignored, those of nohup SIGHUP.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hung_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            [COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**ENVIRONMENT, **environment}, start_new_session=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGHUP, hung_up)


def ended(process, number, ready):
    """Send a signal once it is ready; its children, which have ended with it."""
    others = []
    until = time.monotonic() + DEADLINE
    with process:
        try:
            while not ready():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.05)
            others = children(process.pid)
            process.send_signal(number)
            said = process.communicate(timeout=DEADLINE)
            left = [other for other in others if os.path.exists(f"/proc/{other}")]
        finally:
            process.kill()
            for other in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
    assert left == []
    assert process.returncode == 128 + number
    # How the records were read, and a warning of public facts: no more.
    assert all(line.startswith("warning: The model does not") for line in said[0].splitlines()[1:])
    assert said[1] == f"error: interrupted by {signal.Signals(number).name}.\n"
    return others


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("model", signal.SIGINT),
        ("transformed data", signal.SIGTERM),
        ("generated quantities", signal.SIGINT),
    ],
)
def test_a_loop_that_does_not_end_in_check(tmp_path, place, number):
    program = write(tmp_path, stopping(place, LOOP))
    (tmp_path / "data.json").write_text(json.dumps({"n": 3, "y": [1, 2, 3.5]}))
    process = start("check", program, "--data", tmp_path / "data.json")
    ended(process, number, lambda: ticks(process.pid) > BUSY)


def test_a_loop_that_does_not_end_with_these_records(folder):
    """And not with those that the check of the program makes up."""
    here = f"if (abs(y[1] - {records()['y'][0]}) < 1e-9) {LOOP}"
    program = write(folder, stopping("model", here))
    flags = options(folder, family=None, program=program, formula="y ~ 1")
    process = start("synthesize", folder / "data.csv", *flags, "--allow-unproved")
    ended(process, signal.SIGINT, lambda: ticks(process.pid) > BUSY)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_chains_end_with_a_fit_that_goes_on_later(folder, number):
    records(600).to_csv(folder / "data.csv", index=False)
    flags = options(folder, formula="y ~ 1")
    process = start("synthesize", folder / "data.csv", *flags)
    checkpoint = folder / "out" / "confidential" / "checkpoint"
    # Between two chains there may be no child for a moment.
    assert ended(process, number, lambda: list(checkpoint.glob("*.nc")) and children(process.pid))
    assert not list(checkpoint.glob("*.part"))
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["confidential"]
    again = dpbayes("synthesize", folder / "data.csv", *flags)
    assert again.returncode == 0, again.stderr
    assert "chains of an earlier run" in again.stdout


def test_a_loop_that_does_not_end_in_tune(folder):
    program = write(folder, stopping("model", LOOP))
    out = folder / "weights.json"
    process = start(
        "tune", "--reference", folder / "data.csv", "--target-epsilon", 3, "--out", out,
        "--schema", folder / "schema.toml", "--formula", "y ~ 1", "--program", program,
    )  # fmt: skip
    ended(process, signal.SIGTERM, lambda: ticks(process.pid) > BUSY)
    assert not out.exists()


@pytest.fixture
def cmdstan(tmp_path):
    """A folder that looks like CmdStan, whose programs say where they run and wait."""
    pytest.importorskip("cmdstanpy")
    home, model = tmp_path / "cmdstan", tmp_path / "model.sh"
    (home / "bin").mkdir(parents=True)
    (home / "makefile").write_text("CMDSTAN_VERSION := 2.36.0\n")
    model.write_text(f"#!/bin/sh\npwd >> {tmp_path}/running\nexec sleep 1000\n")
    for name, text in (("bin/stanc", STANC), ("make", MAKE.replace("MODEL", str(model)))):
        (home / name).write_text(text)
        (home / name).chmod(0o755)
    (tmp_path / "tmp").mkdir()
    return {
        "CMDSTAN": str(home), "MAKE": str(home / "make"), "TMPDIR": str(tmp_path / "tmp"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_records_that_cmdstan_reads_are_removed(folder, cmdstan, number):
    flags = options(folder, engine="cmdstan", formula="y ~ 1")
    process = start("synthesize", folder / "data.csv", *flags, **cmdstan)
    running = folder / "running"
    held = []

    def ready():
        if running.exists() and running.read_text():
            held.extend(sorted((folder / "tmp").glob("*/data.json")))
            return True
        return False

    assert ended(process, number, ready)
    assert held  # there were records
    assert list((folder / "tmp").iterdir()) == []
    assert not (folder / "out" / "release").exists()


LOST = """
import signal, sys
from dpbayes.core import interrupts


class Fleeting:
    def __del__(self):
        signal.raise_signal(signal.{name})
        for _ in range(100):  # handlers run between lines of Python
            pass


class Wrong:
    def __del__(self):
        raise ValueError("seen")


interrupts.listen()
Fleeting()
Wrong()
try:
    interrupts.stop_if_interrupted()
except KeyboardInterrupt:
    print("stopped", file=sys.stderr)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_is_lost_in_a_finaliser_prints_no_traceback(name):
    """Python would print "Exception ignored in". The signal is noted; other errors are shown."""
    words = [sys.executable, "-c", LOST.format(name=name)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "KeyboardInterrupt" not in done.stderr
    assert "ValueError: seen" in done.stderr
    assert done.stderr.endswith("stopped\n")
