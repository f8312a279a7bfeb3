"""The release gate: what is where, in which order, and after crashes, races and full disks."""

import contextlib
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import BudgetError, DpbayesError, EngineError, LedgerError
from dpbayes.engines.draws import one_draw
from dpbayes.engines.recorded import RecordedEngine
from dpbayes.plots import charts
from dpbayes.publication import gate
from dpbayes.publication.gate import REPORT_FOLLOWS, publish
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import Output, Work, check_output
from dpbayes.publication.payment import Payment
from dpbayes.publication.resolve import resolve
from dpbayes.publication.terms import NO_LEDGER, OTHER_NEIGHBOURS
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.release import Release
from tests import releases
from tests.conftest import make_records
from tests.ledgers import both, only_sqlite


def files_of(folder):
    return sorted(p.name for p in folder.iterdir())


def check_invariants(ledger, folder, cost=releases.EPSILON):
    """What has to hold at every moment, and may be checked after any crash."""
    states = ledger.history().set_index("id")["state"].to_dict()
    visible = {}
    for out in folder.iterdir():
        if (out / "release").exists():
            entry = Release.entry_of(out / "release")
            assert entry is not None, f"{out} holds half a release"
            assert states[entry] in ("writing", "released"), "a release without an entry"
            visible[entry] = out
    spent = sum(state != "void" for state in states.values())
    assert ledger.account("cps").spent[0] == pytest.approx(cost * spent)
    assert len(visible) <= spent
    assert {e for e, state in states.items() if state == "released"} <= set(visible)
    return states, visible


def check_resolved(ledger, folder):
    """After ``resolve``: every entry is decided, and nothing half-written is left."""
    states, visible = check_invariants(ledger, folder)
    assert set(states.values()) <= {"released", "void", "lost"}
    assert {e for e, state in states.items() if state == "released"} == set(visible)
    assert not list(folder.glob("*/.dpbayes-*"))


def test_two_sides(fit, ledger, tmp_path):
    out = tmp_path / "new" / "out"
    published = publish(fit, out, 2, ledger=ledger, dataset="cps")
    assert files_of(out) == ["confidential", "release"]
    assert files_of(out / "release") == ["guarantee.json", "synthetic_1.csv", "synthetic_2.csv"]
    assert files_of(out / "confidential") == [
        "check.csv", "check.png", "density.png", "draws.nc", "fit.json", "lipschitz.png",
        "utility.json", "weights.csv",
    ]  # fmt: skip
    assert (out / "confidential").stat().st_mode & 0o777 == 0o700
    weights = pd.read_csv(out / "confidential" / "weights.csv")
    np.testing.assert_allclose(weights["weight"], fit.fitted.weights)
    statement = json.loads((out / "release" / "guarantee.json").read_text())
    assert statement["epsilon"] == pytest.approx(0.015 + 2 * 0.085)
    assert statement["ledger"]["budget_epsilon"] == 1.0
    assert Release.entry_of(out / "release") == statement["ledger"]["entry"]
    for i, data in enumerate(published.datasets, start=1):
        read = pd.read_csv(out / "release" / f"synthetic_{i}.csv")
        pd.testing.assert_frame_equal(read, data, check_dtype=False, check_categorical=False)
    with pytest.raises(dpb.OutputError, match="already holds a release"):
        publish(fit, out)
    (out / "release" / "synthetic_1.csv").write_text("changed")
    assert Release.entry_of(out / "release") is None


@pytest.mark.parametrize("mechanism", [dpb.Anchored(0.1), dpb.CensoredWeighted(3.0)])
@pytest.mark.usefixtures("no_report")
def test_nothing_of_single_records_is_in_a_release(mechanism, tmp_path):
    """Every file of release/ against every number that belongs to one record, and more."""
    fit = releases.make_fit(mechanism)
    out = tmp_path / "out"
    publish(fit, out, 3, accept="asymptotic")
    text = "".join(p.read_text() for p in (out / "release").iterdir())
    found = fit.fitted
    (log_lik,) = found.posterior.bound_stage.bound.log_lik(one_draw(found.draws, 0))
    secret = np.concatenate(
        [found.lipschitz, found.lipschitz_unweighted, found.risk.sensitivity, log_lik,
         fit.records["y"], found.weights if mechanism.name == "censored-weighted" else []]
    )  # fmt: skip
    public = (0, 1, found.window[1])
    told = [v for v in secret if v not in public and f"{abs(v):.8f}"[:8] in text]
    assert len(secret) >= 300
    assert not told
    for word in (
        str(fit.fitted.seed),
        "epsilon_local",
        "lipschitz",
        str(tmp_path),
        os.uname().nodename,
    ):
        assert word not in text
    # Rows are shuffled: the public column does not come in the confidential order.
    for i in (1, 2, 3):
        data = pd.read_csv(out / "release" / f"synthetic_{i}.csv")
        assert sorted(data["sex"]) == sorted(fit.records["sex"])
        assert list(data["sex"]) != list(fit.records["sex"])


def test_grep_would_find_them(fit):
    """The search above finds a number of one record when it is there."""
    value = float(fit.records["y"].iloc[0])
    assert f"{abs(value):.8f}"[:8] in pd.DataFrame({"y": [value]}).to_csv()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.usefixtures("no_report")
def test_a_release_that_fails_before_writing_costs_nothing(
    fit, ledger, tmp_path, monkeypatch, error
):
    def fail(*_args):
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(gate, "_space", fail)
        with pytest.raises((dpb.OutputError, KeyboardInterrupt)) as raised:
            publish(fit, tmp_path / "out", ledger=ledger, dataset="cps")
    if isinstance(error, OSError):
        assert "No space left on device. Nothing was released" in str(raised.value)
    assert not (tmp_path / "out").exists()
    assert ledger.account("cps").spent[0] == 0
    assert list(ledger.history()["state"]) == ["void"]
    publish(fit, tmp_path / "out", ledger=ledger, dataset="cps")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), EngineError("diverged"), OSError(28, "No space left"), KeyboardInterrupt()],
)
@pytest.mark.parametrize("mechanism", [None, dpb.Laplace(releases.EPSILON, "add-remove", bins=4)])
@pytest.mark.usefixtures("no_report")
def test_a_release_that_ends_after_noise_was_drawn_is_paid(
    fit, ledger, tmp_path, monkeypatch, error, mechanism
):
    """The noise may be why it ended: its time and memory follow what was drawn."""
    if mechanism is not None:
        fit = dpb.Synthesizer(releases.SCHEMA, mechanism).fit(releases.records())
    states, said = [], []
    draw_outputs = type(fit.fitted).draw_outputs

    def spy(self, count, noise):
        states.extend(ledger.history()["state"])
        return draw_outputs(self, count, noise)

    def fail(*_args):
        raise error

    monkeypatch.setattr(type(fit.fitted), "draw_outputs", spy)
    with monkeypatch.context() as broken:
        broken.setattr(type(fit.fitted), "synthetic", fail)
        with pytest.raises((DpbayesError, MemoryError, KeyboardInterrupt)) as raised:
            publish(fit, tmp_path / "out", ledger=ledger, dataset="cps", say=said.append)
    assert states == ["writing"]
    assert list(ledger.history()["state"]) == ["lost"]
    (entry,) = ledger.history()["id"]
    assert said == [
        OTHER_NEIGHBOURS,
        "The run ended after private noise had been drawn for it: its cost counts (ledger entry "
        f"{entry}).",
    ]
    if isinstance(error, OSError):
        assert "Nothing was released. The cost counts" in str(raised.value)
    assert not (tmp_path / "out").exists()
    assert ledger.account("cps").spent[0] == pytest.approx(releases.EPSILON)
    publish(fit, tmp_path / "out", ledger=ledger, dataset="cps")


@pytest.mark.parametrize("broken", ["findings", "fit_report", "release_report"])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (EngineError("the chains of the unweighted fit\nfailed."), "unweighted fit failed."),
        (MemoryError(), "MemoryError"),
        (ValueError("record 17 is 4.2"), "ValueError"),
        (KeyboardInterrupt(), "interrupted."),
    ],
)
def test_the_confidential_report_decides_nothing(
    fit, ledger, tmp_path, monkeypatch, broken, error, told
):
    """It is made when the release is there and its entry closed, and its errors are a line."""

    def fail(*_args):
        assert (tmp_path / "out" / "release" / "guarantee.json").exists()
        assert list(ledger.history()["state"]) == ["released"]
        raise error

    monkeypatch.setattr(charts, "png", lambda *_: b"")  # no picture is looked at
    owner = Fit if broken == "findings" else gate
    monkeypatch.setattr(owner, broken, fail)
    said = []
    publish(fit, tmp_path / "out", ledger=ledger, dataset="cps", say=said.append)
    first, second, line = said
    assert first == OTHER_NEIGHBOURS
    assert second == REPORT_FOLLOWS
    assert line.startswith("Confidential: the report is incomplete: ")
    assert line.endswith(told)
    assert "4.2" not in line
    assert "\n" not in line
    folder = tmp_path / "out" / "confidential"
    written = files_of(folder) if folder.is_dir() else []
    ended = isinstance(error, KeyboardInterrupt)
    assert ("utility.json" in written) is (broken != "release_report" and not ended)
    assert ("fit.json" in written) is (broken == "release_report")


def test_a_full_disk_for_the_report_is_a_line(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "unlink", Path.unlink)  # restored, whatever happens below
    keep = Output.keep

    def full(self, files):
        with releases.small_files():
            keep(self, files)

    monkeypatch.setattr(Output, "keep", full)
    monkeypatch.setattr(signal, "signal", signal.signal)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    said = []
    publish(fit, tmp_path / "out", say=said.append)
    assert [line for line in said if "File too large" in line]
    assert not [p for p in (tmp_path / "out" / "confidential").iterdir() if p.stat().st_size]
    assert Release.entry_of(tmp_path / "out" / "release") is None  # no ledger
    assert (tmp_path / "out" / "release" / "synthetic_1.csv").stat().st_size > 100


@pytest.mark.usefixtures("no_report")
def test_no_ledger_is_told(fit, ledger, tmp_path):
    """In a line on the screen, and in the release."""
    said = []
    publish(fit, tmp_path / "out", say=said.append)
    assert said.pop() == REPORT_FOLLOWS
    assert said == [NO_LEDGER]
    statement = json.loads((tmp_path / "out" / "release" / "guarantee.json").read_text())
    assert statement["ledger"] is None
    assert statement["accounted"] is False
    assert "no ledger accounts for this release" in statement["statement"]
    publish(fit, tmp_path / "more", ledger=ledger, dataset="cps", say=said.append)
    assert said.pop() == REPORT_FOLLOWS
    assert said == [NO_LEDGER, OTHER_NEIGHBOURS]
    statement = json.loads((tmp_path / "more" / "release" / "guarantee.json").read_text())
    assert statement["accounted"] is True
    assert "no ledger" not in statement["statement"]


def test_a_seeded_fit_is_not_published(ledger, tmp_path):
    """Refused before anything is paid, with what to do."""
    settings = dpb.SamplerSettings(warmup=200, draws=100, seed=5)
    seeded = releases.synthesizer().with_settings(settings)
    fit = seeded.fit(releases.records(), allow_nonconvergence=True)
    with pytest.raises(dpb.GuaranteeError, match=r"a seed is for studies.* leave it out"):
        publish(fit, tmp_path / "out", ledger=ledger, dataset="cps")
    with pytest.raises(dpb.GuaranteeError, match="a seed is for studies"):
        dpb.Job((seeded,), tmp_path / "out")
    assert ledger.history().empty
    assert not (tmp_path / "out").exists()
    assert not fit.sample().releasable


@pytest.mark.parametrize("rows", [None, 75])
@pytest.mark.usefixtures("no_report")
def test_sizes_on_disk_before_a_release_is_paid_are_public(tmp_path, monkeypatch, rows):
    """Short and long values take the same space, which holds what is written then."""
    where = dpb.Schema.from_dict(
        {
            "rows": 50,
            "columns": {
                "k": {"type": "count", "upper": 99},
                "g": {"type": "categorical", "levels": ['"', "a long level, quoted"]},
                "y": {"type": "continuous", "lower": -1e100, "upper": 1e100},
            },
        }
    )
    taken, needed = [], []
    allocate, write = Work.allocate, Work.write

    def sizes(work):
        return {p.name: p.stat().st_size for p in work.release.iterdir()}

    def spy(self, files):
        allocate(self, files)
        taken.append(sizes(self))

    def after(self, files):
        write(self, files)
        needed.append(sizes(self))

    monkeypatch.setattr(Work, "allocate", spy)
    monkeypatch.setattr(Work, "write", after)
    for name, k, g, y in (("low", 0, '"', 0.0), ("high", 99, "a long level, quoted", -1e100)):
        records = pd.DataFrame({"k": [k] * 40, "g": [g] * 40, "y": [y] * 40})
        fit = dpb.Synthesizer(where, dpb.Laplace(50.0, bins=2)).fit(records)
        publish(fit, tmp_path / name, 2, rows=rows)
    assert taken[0] == taken[1]
    assert set(taken[0]) == {"guarantee.json", "synthetic_1.csv", "synthetic_2.csv"}
    for written in needed:
        assert all(0 < written[name] <= taken[0][name] for name in written)


@pytest.mark.usefixtures("no_report")
def test_a_statement_has_room_for_all_pairs_that_are_counted(tmp_path, monkeypatch):
    """Which they are follows from noise: their names are not written before the payment."""
    names = [f"{k}".rjust(240, "ä") for k in range(16)]
    columns = {name: {"type": "binary", "levels": ["a", "b"]} for name in names}
    schema = dpb.Schema.from_dict({"rows": 2000, "columns": columns})
    taken, allocate = {}, Work.allocate
    monkeypatch.setattr(
        Work, "allocate", lambda self, sizes: (taken.update(sizes), allocate(self, sizes))
    )
    records = pd.DataFrame({name: ["a", "b"] * 1000 for name in names})
    fit = dpb.Synthesizer(schema, dpb.Marginals(1.0)).fit(records)
    publish(fit, tmp_path / "out", 1)
    statement = (tmp_path / "out/release/guarantee.json").read_bytes()
    assert len(json.loads(statement)["settings"]["pairs"]) > 12
    assert len(statement) <= taken["guarantee.json"]


@pytest.mark.usefixtures("no_report")
def test_a_statement_has_room_for_levels_that_are_told_apart(tmp_path, monkeypatch):
    levels = [f"{k}".rjust(4000, "a") for k in range(24)]
    columns = {
        "site": {"type": "categorical", "levels": levels},
        "x": {"type": "binary", "levels": ["a", "b"]},
    }
    schema = dpb.Schema.from_dict({"rows": 1200, "columns": columns})
    taken, allocate = {}, Work.allocate
    monkeypatch.setattr(
        Work, "allocate", lambda self, sizes: (taken.update(sizes), allocate(self, sizes))
    )
    records = pd.DataFrame({"site": levels * 50, "x": ["a", "b"] * 600})
    fit = dpb.Synthesizer(schema, dpb.Marginals(1.0)).fit(records)
    publish(fit, tmp_path / "out", 1)
    statement = (tmp_path / "out/release/guarantee.json").read_bytes()
    assert len(json.loads(statement)["settings"]["told_apart"]["site"]) > 3
    assert len(statement) <= taken["guarantee.json"]


@pytest.mark.usefixtures("no_report")
def test_a_noisy_number_of_rows_shows_in_no_size(tmp_path, monkeypatch):
    """Nothing has paid for it until the entry is ``writing``."""
    where = dpb.Schema.from_dict(
        {"rows": "noisy", "columns": {"g": {"type": "binary", "levels": ["a", "b"]}}}
    )
    taken = []
    allocate = Work.allocate
    monkeypatch.setattr(
        Work, "allocate", lambda self, sizes: (taken.append(sizes), allocate(self, sizes))
    )
    for n in (50, 5000):
        fit = dpb.Synthesizer(where, dpb.Laplace(1.0)).fit(pd.DataFrame({"g": ["a"] * n}))
        publish(fit, tmp_path / str(n))
        publish(fit, tmp_path / f"{n}-10", rows=10)
    assert taken[0] == taken[2]
    assert set(taken[0].values()) == {0}
    assert taken[1] == taken[3]
    assert min(taken[1].values()) > 0


def test_a_voided_writer_does_not_write(fit, ledger, tmp_path, monkeypatch):
    """Whoever voids a reserved entry stops its writer, even one that was only slow."""
    allocate = Work.allocate

    def slow(*args):
        allocate(*args)
        (entry,) = ledger.unresolved()
        assert resolve(ledger, entry.id)[0].state == "void"

    monkeypatch.setattr(Work, "allocate", slow)
    with pytest.raises((LedgerError, dpb.OutputError)):
        publish(fit, tmp_path / "out", ledger=ledger, dataset="cps")
    assert not (tmp_path / "out").exists()
    check_resolved(ledger, tmp_path)


@pytest.mark.usefixtures("no_report")
def test_unfinished_work_blocks_its_folder(fit, ledger, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(Ledger, "released", lambda *_args: (_ for _ in ()).throw(LedgerError("x")))
    with pytest.raises(LedgerError, match="not be closed; run `dpbayes ledger resolve` later: "):
        publish(fit, out, ledger=ledger, dataset="cps")
    monkeypatch.undo()
    assert [r.state for r in resolve(ledger)] == ["released"]
    (tmp_path / "next" / ".dpbayes-abc").mkdir(parents=True)
    with pytest.raises(dpb.OutputError, match="`dpbayes ledger resolve`"):
        check_output(tmp_path / "next")


@pytest.mark.usefixtures("no_report")
def test_weak_guarantees_and_other_hosts(fit, ledger, tmp_path, monkeypatch):
    loose = releases.make_fit(dpb.CensoredWeighted(1.0))
    with pytest.raises(BudgetError, match="strict guarantees only"):
        publish(loose, tmp_path / "out", accept="asymptotic", ledger=ledger, dataset="cps")
    assert not (tmp_path / "out").exists()
    publish(loose, tmp_path / "out", accept="asymptotic")  # without a ledger it can be had
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    claim = fit.guarantee.for_datasets(1)
    ledger.reserve("cps", claim, releases.identity(), "e" * 32, tmp_path / "other")
    monkeypatch.undo()
    (left,) = resolve(ledger)
    assert left.state is None
    assert "made on elsewhere" in left.reason
    # Where its folder was is nothing: it may have been moved with a release in it.
    (done,) = resolve(ledger, "e" * 32)
    assert done.state == "lost"
    with pytest.raises(LedgerError, match="not among the unfinished"):
        resolve(ledger, "e" * 32)


class Server:
    """``tests.releases serve``: releases in processes that can be killed one by one."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.releases", "serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        self.where = ()
        assert self.process.stdout.readline() == "ready\n"

    def to(self, url, folder):
        """The same server, for a ledger and a folder of releases."""
        self.where = url, str(folder)
        return self

    def ask(self, what, *more):
        self.process.stdin.write("\t".join((what, *self.where, *map(str, more))) + "\n")
        self.process.stdin.flush()

    def race(self, count):
        """Exit codes of so many releases at once, and what was printed."""
        self.ask("race", count)
        lines = []
        while sum("error" not in line for line in lines) < count:
            lines.append(self.process.stdout.readline())
            assert lines[-1], lines
        codes = [int(line.split()[1]) for line in lines if "error" not in line]
        return codes, "".join(lines)

    def release(self, number, point="-", kill_after=None):
        """Exit code (negative: a signal) and what was printed."""
        self.ask("release", number, point)
        line = self.process.stdout.readline()
        said = []
        while not line.startswith("process "):
            said.append(line)
            line = self.process.stdout.readline()
        if kill_after is not None:
            time.sleep(kill_after)
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[1]), signal.SIGKILL)
        while True:
            line = self.process.stdout.readline()
            if line.startswith(f"{number} error "):
                said.append(line)
                continue
            assert line.split()[0] == str(number), line
            return int(line.split()[1]), "".join(said)


@pytest.fixture(scope="module")
def started():
    server = Server()
    yield server
    server.process.stdin.close()
    server.process.wait(timeout=30)
    server.process.stdout.close()


@only_sqlite
def test_kill_at_thirty_random_moments(opened, url, started):
    """SIGKILL anywhere in a release: no half release, none without an entry, nothing unpaid."""
    ledger, folder = opened
    rng = random.Random(5)
    server = started.to(url, folder)
    fastest, codes = math.inf, []
    for number in range(32):
        # The first two finish, and say how long a release takes on this machine.
        moment = None if number < 2 else rng.uniform(0, fastest)
        start = time.monotonic()
        codes.append(server.release(number, kill_after=moment)[0])
        if codes[-1] == releases.RELEASED:
            fastest = min(fastest, time.monotonic() - start)
        check_invariants(ledger, folder)
        if number % 3 == 0:  # now and then somebody cleans up
            resolve(ledger)
            check_resolved(ledger, folder)
    assert codes[:2] == [releases.RELEASED] * 2
    assert codes.count(-signal.SIGKILL) > 15
    resolve(ledger)
    check_resolved(ledger, folder)
    assert server.release(99)[0] == releases.RELEASED


@both
def test_kill_at_each_step(opened, url, started):
    """The state that each step leaves, and what ``resolve`` makes of it."""
    ledger, folder = opened
    steps = [
        ("kill:reserve", None, None),
        ("kill-after:reserve", "reserved", "void"),
        ("kill:allocate", "reserved", "void"),
        ("kill-after:allocate", "reserved", "void"),
        ("kill:writing", "reserved", "void"),
        ("kill-after:writing", "writing", "lost"),
        ("kill:filled", "writing", "lost"),
        ("kill-after:filled", "writing", "lost"),
        ("kill:write", "writing", "lost"),
        ("kill-after:write", "writing", "released"),
        ("kill:appear", "writing", "released"),
        ("kill:rename", "writing", "released"),
        ("kill-after:rename", "writing", "released"),
        ("kill-after:appear", "writing", "released"),
        ("kill:released", "writing", "released"),
        ("kill-after:released", "released", "released"),
        ("kill:report_into", "released", "released"),
        ("kill:release_report", "released", "released"),
    ]
    server = started.to(url, folder)
    for number, (point, left, end) in enumerate(steps):
        assert server.release(number, point)[0] == -signal.SIGKILL
        check_invariants(ledger, folder)
        states = list(ledger.history()["state"])
        assert states[-1:] == ([left] if left else []), point
        resolve(ledger)
        check_resolved(ledger, folder)
        states = list(ledger.history()["state"])
        assert states[-1:] == ([end] if end else []), point


@only_sqlite
@pytest.mark.parametrize("moved", ["away", "nowhere"])
def test_an_older_ledger_gives_nothing_back(url, tmp_path, moved, started):
    """A backup in which the entry is reserved, of a release that was drawn before a crash."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 100.0)
    place = Path(url.removeprefix("sqlite:///"))
    points = {
        "kill:writing": "void", "kill:filled": "lost", "kill-after:filled": "lost",
        "kill:write": "lost", "kill:appear": "released", "kill:released": "released",
    }  # fmt: skip
    out = tmp_path / "releases" / "out"
    server = started.to(url, tmp_path / "releases")
    for point, end in points.items():
        server.release("out", point)
        states = ledger.history()["state"].tolist()
        with contextlib.closing(sqlite3.connect(place)) as db, db:
            db.execute("UPDATE entry SET state = 'reserved' WHERE number = ?", [len(states)])
        if moved == "away":
            out.rename(tmp_path / "web")
            assert [done.state for done in resolve(ledger)] == [None]
            (tmp_path / "web").rename(out)
        assert [done.state for done in resolve(ledger)] == [end], point
        assert not list(out.glob(".*-*"))
        shutil.rmtree(out)


@only_sqlite
@pytest.mark.parametrize("end", ["error", "emptied", "replaced", "kept"])
@pytest.mark.usefixtures("no_report")
def test_a_backup_of_the_moment_before_noise_gives_nothing_back(
    url, fit, tmp_path, monkeypatch, end
):
    """Nothing is left in the folder that could say that noise was drawn."""
    ledger, out, backup = Ledger.create(url), tmp_path / "out", tmp_path / "backup.db"
    ledger.add_dataset("cps", 100.0)
    writing = Payment.writing

    def copied(payment):
        shutil.copy(url.removeprefix("sqlite:///"), backup)
        writing(payment)

    def fail(*_args):
        raise MemoryError

    monkeypatch.setattr(Payment, "writing", copied)
    if end == "error":
        monkeypatch.setattr(type(fit.fitted), "synthetic", fail)
    with pytest.raises(MemoryError) if end == "error" else contextlib.nullcontext():
        publish(fit, out, ledger=ledger, dataset="cps", say=lambda _: None)
    if end in ("emptied", "replaced"):
        shutil.rmtree(out)
    if end == "replaced":
        out.mkdir()
    restored = Ledger(f"sqlite:///{backup}")
    (entry,) = restored.unresolved()
    assert entry.state == "reserved"
    (resolved,) = resolve(restored, entry.id)
    assert resolved.state == ("released" if end == "kept" else "lost")
    assert restored.account("cps").spent[0] == pytest.approx(releases.EPSILON)


@only_sqlite
def test_a_moved_release_is_never_refunded(url, tmp_path, started):
    """Absence proves nothing: the release may have been taken away between crash and resolve."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 100.0)
    server = started.to(url, tmp_path)
    server.release("out", "kill:released")
    shutil.move(tmp_path / "out" / "release", tmp_path / "taken")
    assert [r.state for r in resolve(ledger)] == ["lost"]
    assert ledger.account("cps").spent[0] == pytest.approx(releases.EPSILON)


@only_sqlite
def test_full_disk(opened, url, started):
    """Files that cannot grow: noticed where it costs nothing, and nothing half-written is left."""
    ledger, folder = opened
    server = started.to(url, folder)
    for number, (point, state, says) in enumerate(
        [
            ("full:reserve", None, "this step was not recorded"),
            ("full:allocate", "void", "Nothing was released"),
            ("full:write", "writing", "The cost counts"),
        ]
    ):
        code, said = server.release(number, point)
        assert code == releases.FAILED
        assert says in said
        assert len(said.splitlines()) == 1
        assert list(ledger.history()["state"])[-1:] == ([state] if state else [])
        assert not (folder / str(number) / "release").exists()
        check_invariants(ledger, folder)
    resolve(ledger)
    check_resolved(ledger, folder)


@both
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("step", ["reserved", "writing"])
@pytest.mark.usefixtures("no_report")
def test_a_step_whose_answer_is_lost_costs_nothing(url, fit, tmp_path, monkeypatch, step, gone):
    """The ledger recorded it; then it answers again, or is gone until the run has ended."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 1.0)
    serially, reading, lost = ledger._database.serially, ledger._database.reading, []

    def while_there():
        if lost and gone:
            raise LedgerError("the server is gone.")
        return reading()

    def without_answer(work, **options):
        if lost and gone:
            raise LedgerError("the server is gone.")
        done = serially(work, **options)
        if not lost and [*ledger.history()["state"]] == [step]:
            lost.append(step)
            raise LedgerError("the connection was closed.")
        return done

    said, out = [], tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(ledger._database, "serially", without_answer)
        patch.setattr(ledger._database, "reading", while_there)
        with pytest.raises(LedgerError, match=r"the connection was closed\."):
            publish(fit, out, ledger=ledger, dataset="cps", say=said.append)
    assert lost == [step]
    assert [*ledger.history()["state"]] == [step if gone else "void"]
    monkeypatch.setattr("dpbayes.publication.resolve._runs", lambda process: False)
    resolve(ledger)
    # A step to ``writing`` may have led to a draw, for all that another process knows.
    states = [*ledger.history()["state"]]
    assert states == (["lost"] if gone and step == "writing" else ["void"])
    assert not (out / "release").exists()
    if states == ["lost"]:
        assert any("The cost counts: entry" in line for line in said)


@both
def test_fifty_processes_race_for_ten_releases(url, tmp_path, started):
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 10 * releases.EPSILON)
    folder = tmp_path / "releases"
    folder.mkdir()
    codes, said = started.to(url, folder).race(50)
    assert codes.count(releases.RELEASED) == 10, said
    assert codes.count(releases.REFUSED) == 40
    assert len(list(folder.glob("*/release/guarantee.json"))) == 10
    check_resolved(ledger, folder)
    assert ledger.account("cps").spent[0] == pytest.approx(1.0)


@pytest.fixture
def unprivileged_folder():
    """A folder that a user without rights can reach, and not write in."""
    folder = Path(tempfile.mkdtemp(prefix="dpbayes-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without rights")
def test_read_only_folders(unprivileged_folder, fit):
    """A fork as user nobody: no permission for the output, or for the ledger."""
    folder = unprivileged_folder
    ledger = Ledger.create(str(folder / "ledger.db"))
    ledger.add_dataset("cps", 1.0)
    (folder / "open").mkdir(mode=0o777)
    (folder / "open").chmod(0o777)
    (folder / "ledger.db").chmod(0o644)
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests import releases\n"
        "fit, folder = releases.make_fit(), Path(sys.argv[1])\n"
        "ledger = releases.Ledger(str(folder / 'ledger.db'))\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "for name in ('closed/out', 'open/out'):\n"
        "    try:\n"
        "        releases.gate.publish(\n"
        "            fit, folder / name, ledger=ledger, dataset='cps', say=releases.quiet)\n"
        "    except releases.DpbayesError as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    (folder / "closed").mkdir(mode=0o755)
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first.startswith("OutputError")
    assert "no permission to write" in first
    assert second.startswith("LedgerError no permission to write the ledger")
    assert not list((folder / "open").iterdir())
    assert ledger.history().empty


def test_engine_without_chains_of_its_own_is_published_too(tmp_path, schema, recorded_engine):
    rng = np.random.default_rng(1)
    engine = recorded_engine(rng.normal(-1, 0.3, (40, 60)), rng.normal(-1, 0.3, (40, 60)))
    assert isinstance(engine, RecordedEngine)
    synthesizer = dpb.Synthesizer(
        schema, dpb.Censored(2.0), dpb.Regression("y ~ 1", "beta"), engine=engine
    )
    fit = synthesizer.fit(
        make_records(60), checkpoint=tmp_path / "checkpoint", allow_nonconvergence=True
    )
    publish(fit, tmp_path / "elsewhere")
    assert files_of(tmp_path / "elsewhere") == ["confidential", "release"]
