"""A signal ends a command with nothing released, or comes after the release.

Nothing is owed if it comes before any noise is drawn.
"""

import contextlib
import os
import random
import signal
import subprocess
import time
import weakref

import pytest

import dpbayes as dpb
from dpbayes.core.interrupts import listen, stop_if_interrupted, uninterrupted
from dpbayes.privacy.noise import SecureNoise
from dpbayes.publication.ledger import Ledger
from tests.cli.command import COMMAND, ENVIRONMENT, options, records
from tests.cli.in_process import dpbayes

TIMES = int(os.environ.get("DPBAYES_SIGNALS", "12"))  # 200 before a version
NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PLAIN = {"formula": None, "family": None, "warmup": None, "draws": None, "epsilon": 1}
JOBS = {
    "marginals": {**PLAIN, "mechanism": "marginals"},
    "laplace": {**PLAIN, "mechanism": "laplace", "datasets": 3},
    "censored": {"warmup": 200, "draws": 200, "allow-nonconvergence": True},
    "candidates": {"formula": "y ~ 1", "engine": "candidates", "points": 2000},
}


class Fleeting:
    """What a weak reference points to, for a moment."""


def swallowed(number):
    """Send a signal to this process within the callback of a weak reference."""

    def callback(_):
        os.kill(os.getpid(), number)
        for _ in range(100):  # handlers run between lines of Python
            pass

    reference = weakref.ref(Fleeting(), callback)
    assert reference() is None


@pytest.fixture
def account(folder):
    """Options of an account with a budget."""
    done = dpbayes("ledger", "create", folder / "l.db", "--account", "a", "--epsilon", 1000)
    assert done.returncode == 0, done.stderr
    return {"ledger": folder / "l.db", "account": "a"}


def state(folder):
    """What the ledger and the folder say: states of entries, and whether there is a release."""
    release = folder / "out" / "release"
    whole = release.is_dir() and (release / "guarantee.json").read_bytes().endswith(b"}\n")
    assert whole == release.is_dir()
    return states(folder), whole


def states(folder):
    """Of the ledger's entries."""
    history = Ledger(str(folder / "l.db")).history("a")
    return history["state"].tolist() if len(history) else []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    ("place", "entries"),
    [
        ("dpbayes.publication.job.identity_of", []),  # before anything is drawn
        ("dpbayes.publication.gate.identity_of", []),  # before it is paid for
        ("dpbayes.synthesis.fit.versions", ["void"]),  # before anything is drawn
        ("dpbayes.publication.gate._space", ["void"]),
        ("dpbayes.synthesis.fit.assemble", ["lost"]),  # a data set is drawn
    ],
)
@pytest.mark.parametrize("job", ["laplace", "censored"])
def test_a_signal_whose_error_is_swallowed(
    folder, account, monkeypatch, number, place, entries, job
):
    module, _, name = place.rpartition(".")
    plain = getattr(__import__(module, fromlist=[name]), name)

    def patched(*args, **kwargs):
        swallowed(number)
        return plain(*args, **kwargs)

    monkeypatch.setattr(place, patched)
    done = dpbayes("synthesize", folder / "data.csv", *options(folder, **JOBS[job], **account))
    assert done.returncode == 128 + number, done
    assert done.stderr == f"error: interrupted by {number.name}.\n"
    assert ("its cost counts" in done.stdout) == (entries == ["lost"])
    assert state(folder) == (entries, False)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("place", ["Work.write", "Work.appear", "Payment.released"])
def test_a_signal_that_comes_too_late(folder, account, monkeypatch, number, place):
    """What was begun ends with a release; the report of it is given up."""
    kind, _, name = place.rpartition(".")
    module = {"Payment": "dpbayes.publication.payment", "Work": "dpbayes.publication.output"}[kind]
    owner = getattr(__import__(module, fromlist=[kind]), kind)
    plain = getattr(owner, name)

    def patched(*args):
        os.kill(os.getpid(), number)
        return plain(*args)

    monkeypatch.setattr(owner, name, patched)
    flags = options(folder, **JOBS["laplace"], **account)
    with pytest.raises(EndedError) as ended:  # a process that got a signal leaves at once
        dpbayes("synthesize", folder / "data.csv", *flags)
    assert ended.value.args == (0,)
    assert state(folder) == (["released"], True)


class EndedError(Exception):
    """In place of the end of this process."""


@pytest.fixture(autouse=True)
def leaves(monkeypatch):
    """A process that a signal has ended does not end the tests."""

    def leave(code):
        if code == 0:
            raise EndedError(code)
        raise SystemExit(code)

    monkeypatch.setattr("dpbayes.cli.app.leave", leave)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "draw",
    [
        lambda noise: noise.counts([1], 1.0),
        lambda noise: noise.gaussian([1], 1.0),
        lambda noise: noise.radial([1, 2], 1.0),
        lambda noise: noise.reals([1.0], 1.0),
        lambda noise: noise.select([1.0, 2.0], 1.0),
        lambda noise: noise.below([3]),
        lambda noise: noise.poisson(3),
    ],
)
def test_nothing_is_drawn_after_a_signal(draw):
    listen()
    draw(SecureNoise())
    swallowed(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        draw(SecureNoise())


def test_an_import_is_not_cut_short(tmp_path, monkeypatch):
    """It would leave half a module, or the lock of all imports, for which threads wait for ever."""
    (tmp_path / "half_a_module.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
        "for _ in range(100): pass\nwhole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    listen()
    import half_a_module

    with pytest.raises(KeyboardInterrupt):
        time.sleep(10)
    assert half_a_module.whole


def test_a_block_that_is_not_interrupted():
    listen()
    done = []

    def interrupted():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            stop_if_interrupted()
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        done.append(2)
    with pytest.raises(KeyboardInterrupt):
        stop_if_interrupted()
    with uninterrupted(look=False):
        done.append(3)
    assert done == [1, 3]


def test_a_program_of_others_hears_ctrl_c_after_the_release(folder, monkeypatch):
    """It does not listen, and its own handler gets the signal."""
    schema = dpb.Schema.from_toml(folder / "schema.toml")
    fit = dpb.Synthesizer(schema, dpb.Laplace(1)).fit(records())
    lines = []

    def say(line):
        lines.append(line)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):  # before anything
        dpb.publish(fit, folder / "no", say=say)
    assert not (folder / "no").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    plain = os.fsync

    def fsync(handle):
        os.kill(os.getpid(), signal.SIGINT)
        return plain(handle)

    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(KeyboardInterrupt):
        dpb.publish(fit, folder / "out", say=lines.append)
    assert sorted(path.name for path in (folder / "out" / "release").iterdir()) == [
        "guarantee.json", "synthetic_1.csv",
    ]  # fmt: skip
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def run(folder, flags, number=None, moment=0.0):
    """Exit code, and seconds, of a command that gets a signal after ``moment`` seconds."""
    start = time.monotonic()
    with subprocess.Popen(
        [COMMAND, "synthesize", folder / "data.csv", *map(str, flags)], env=ENVIRONMENT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in NUMBERS],  # noqa: PLW1509
    ) as process:  # fmt: skip
        if number is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moment)
            process.send_signal(number)
        try:
            said = process.communicate(timeout=120)
        finally:
            process.kill()
    return process.returncode, time.monotonic() - start, said


@pytest.mark.parametrize("job", JOBS)
def test_signals_at_random_moments(folder, account, job):
    """With a ledger: ended with nothing released and its entry closed, or released with code 0."""
    long = 0.0
    rng = random.Random()
    before = 0
    for time_of in range(TIMES // len(JOBS) + 1):
        out = folder / f"out{time_of}"
        flags = options(folder, **{**JOBS[job], **account, "out": out})
        if not time_of:  # how long it takes
            code, long, said = run(folder, flags)
            assert code == 0, said
            entries = ["released"]
        else:
            number, moment = rng.choice(NUMBERS), rng.uniform(0, 1.1 * long)
            code, _, said = run(folder, flags, number, moment)
            entries = states(folder)[before:]
            if code == 0:
                assert entries == ["released"], (code, number, moment, said)
            else:  # until the package is imported, the signal does what it does
                early = code == 1 and number == signal.SIGINT and " <module>\n" in said[1]
                assert early or code in (128 + number, -number), (code, number, moment, said)
                assert entries in ([], ["void"], ["lost"]), (code, number, moment, said)
            print(job, number.name, f"{moment:.2f} of {long:.2f} s: {code} {entries}")
        assert (out / "release" / "guarantee.json").exists() == (code == 0)
        assert (out / "release").exists() == (code == 0)
        assert not list(out.glob(".dpbayes-*"))
        before += len(entries)
