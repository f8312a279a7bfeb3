"""The folder OUT: one process at a time, and nobody else near what is confidential."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import dpbayes as dpb
from dpbayes.core.errors import OutputError
from dpbayes.publication import output as module
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import LOCK, check_output, check_writable, held
from dpbayes.publication.resolve import resolve
from dpbayes.synthesis.release import Release
from tests import releases

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from dpbayes.publication.output import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
CONTEND = """
import os, sys
from pathlib import Path
from dpbayes.core.errors import OutputError
from dpbayes.publication import output
output.PATIENCE = 5.0
out, inside, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for _ in range(rounds):
    with output.held(out):
        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails if another one is inside
        os.unlink(inside)
print("done")
"""


def modes(folder):
    return {
        str(p.relative_to(folder.parent)): p.stat().st_mode & 0o777
        for p in (folder, *folder.rglob("*"))
    }


@pytest.fixture
def holder(tmp_path):
    """Another process that holds tmp_path/out until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "out")], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.mark.usefixtures("no_report")
def test_a_folder_is_held_by_one_process(holder, tmp_path, fit):
    out = tmp_path / "out"
    with pytest.raises(OutputError, match="is in use by another run"), held(out):
        pytest.fail("held twice")
    with pytest.raises(OutputError, match="is in use by another run"):
        dpb.publish(fit, out)
    assert [p.name for p in out.iterdir()] == [LOCK]  # the holder's, still there
    (out / ".dpbayes-abc").mkdir()  # its release, on the way: nobody is told to remove it
    with pytest.raises(OutputError, match="is in use by another run"):
        check_output(out)
    (out / ".dpbayes-abc").rmdir()
    holder.stdin.close()
    holder.wait()
    assert not out.exists()  # made for the lock, and nothing was written
    dpb.publish(fit, out)
    assert [p.name for p in out.iterdir()] == ["release"]


@pytest.mark.usefixtures("no_report")
def test_a_killed_holder_stands_in_nobodys_way(holder, tmp_path, fit):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    out = tmp_path / "out"
    assert (out / LOCK).exists()
    check_output(out)
    dpb.publish(fit, out)
    assert [p.name for p in out.iterdir()] == ["release"]


def test_a_folder_is_held_by_one_thread(tmp_path):
    refused = []

    def second():
        try:
            with held(tmp_path / "out"):
                pass
        except OutputError as error:
            refused.append(str(error))

    with held(tmp_path / "out"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert "in use by another run" in refused[0]


def test_what_was_made_for_the_lock_goes_with_it(tmp_path):
    deep = tmp_path / "a" / "b" / "out"
    with held(deep):
        assert (deep / LOCK).stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.iterdir())
    there = tmp_path / "there"
    there.mkdir()
    with held(there):
        pass
    assert not list(there.iterdir())
    with held(deep) as output:
        output.checkpoint.mkdir(parents=True)
    assert [p.name for p in deep.iterdir()] == ["confidential"]  # something to go on with


def test_a_folder_that_goes_while_it_is_looked_at(tmp_path, monkeypatch):
    """It was there, is removed by the run that made it, and so has no permissions."""
    out, access = tmp_path / "out", os.access
    out.mkdir()

    def goes(path, mode):
        if out.exists():
            out.rmdir()
        return access(path, mode)

    monkeypatch.setattr(os, "access", goes)
    check_writable(out)
    assert not out.exists()


def test_a_lock_that_is_removed_and_made_again_is_held_by_one(tmp_path):
    """Four processes take it in turns, and each removes the file when it is done."""
    commands = [sys.executable, "-c", CONTEND, tmp_path / "out", tmp_path / "inside", "60"]
    running = [
        subprocess.Popen(
            list(map(str, commands)), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    ended = [process.communicate(timeout=120) for process in running]
    assert ended == [("done\n", "")] * 4
    # An empty folder may be left: each process removes what it knows that it has made.
    assert not [p for p in tmp_path.rglob("*") if p != tmp_path / "out"]


@pytest.mark.parametrize("name", ["confidential", "confidential/checkpoint"])
@pytest.mark.parametrize("kind", ["link", "dangling", "file", "nobody's"])
def test_confidential_folders_have_to_be_ones_own(name, kind, fit, tmp_path):
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    said = "a symbolic link"
    if kind == "link":
        path.symlink_to(elsewhere, target_is_directory=True)
    elif kind == "dangling":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "file":
        path.touch()
        said = "not a directory"
    else:
        if os.geteuid() != 0:
            pytest.skip("needs root, to give a folder away")
        path.mkdir()
        os.chown(path, 65534, 65534)
        said = "another user's"
    for attempt in (
        lambda: check_output(tmp_path / "out"),
        lambda: dpb.publish(fit, tmp_path / "out"),
    ):
        with pytest.raises(OutputError, match=f"{name}' is {said}.*Remove it, or choose another"):
            attempt()
    assert not list(elsewhere.iterdir())
    assert not (tmp_path / "out" / "release").exists()


def test_a_link_among_confidential_files(fit, tmp_path):
    checkpoint = tmp_path / "out" / "confidential" / "checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "inputs.json").symlink_to(tmp_path / "read by others")
    with pytest.raises(OutputError, match=r"inputs\.json' is a symbolic link"):
        dpb.publish(fit, tmp_path / "out")


def test_what_is_confidential_is_closed_before_anything_is_written(tmp_path):
    out = tmp_path / "out"
    checkpoint = out / "confidential" / "checkpoint"
    old = out / "confidential" / "checkpoint.old-1"
    for folder in (checkpoint, old):
        folder.mkdir(parents=True)
        (folder / "inputs.json").write_text("{}")
        (folder / "inputs.json").chmod(0o644)
        folder.chmod(0o755)
    checkpoint.parent.chmod(0o755)
    with held(out):
        found = modes(out / "confidential")
    assert len(found) == 5
    for name, mode in found.items():
        assert mode == (0o600 if name.endswith("json") else 0o700), name


def test_confidential_files_are_the_owners_whatever_the_umask(fit, ledger, tmp_path):
    before = os.umask(0)
    try:
        dpb.publish(fit, tmp_path / "out", ledger=ledger, dataset="cps")
    finally:
        os.umask(before)
    confidential = tmp_path / "out" / "confidential"
    found = modes(confidential)
    assert found.pop("confidential") == 0o700
    assert len(found) >= 6
    assert set(found.values()) == {0o600}


def test_a_release_is_not_finished_beside_a_writer(ledger, holder, fit, tmp_path):
    """Not even if its entry is named: the lock says that somebody is at work there."""
    claim = fit.guarantee.for_datasets(1)
    ledger.reserve("cps", claim, releases.identity(), "e" * 32, tmp_path / "out")
    ledger.writing("e" * 32)
    (left,) = resolve(ledger, "e" * 32)
    assert left.state is None
    assert "in use by another run" in left.reason
    holder.kill()
    holder.wait()
    (done,) = resolve(ledger, "e" * 32)
    assert done.state == "lost"
    assert not (tmp_path / "out" / LOCK).exists()


@pytest.mark.usefixtures("no_report")
def test_a_ledger_that_is_older_than_a_release_gives_nothing_back(
    ledger, fit, tmp_path, monkeypatch
):
    """A backup from between the reservation and the draw was restored after the release."""
    out, backup = tmp_path / "out", tmp_path / "backup.db"
    file, reserve = Path(ledger.url), Ledger.reserve

    def reserve_and_copy(self, *arguments, **options):
        reserve(self, *arguments, **options)
        shutil.copy(file, backup)

    monkeypatch.setattr(Ledger, "reserve", reserve_and_copy)
    child = os.fork()
    if not child:
        dpb.publish(fit, out, ledger=ledger, dataset="cps")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    shutil.copy(backup, file)
    restored = Ledger(file)
    assert [entry.state for entry in restored.unresolved()] == ["reserved"]
    (done,) = resolve(restored)
    assert done.state == "released"
    assert restored.account("cps").spent[0] == pytest.approx(releases.EPSILON)


@pytest.mark.usefixtures("no_report")
def test_a_resolved_release_leaves_no_lock(ledger, fit, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as broken:
        broken.setattr(module.Work, "appear", lambda self: os._exit(9))
        child = os.fork()
        if not child:
            dpb.publish(fit, out, ledger=ledger, dataset="cps")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert (out / LOCK).exists()
    (done,) = resolve(ledger)
    assert done.state == "released"
    assert [p.name for p in out.iterdir()] == ["release"]
    assert Release.entry_of(out / "release") == done.entry.id
    assert ledger.account("cps").spent[0] == pytest.approx(releases.EPSILON)
