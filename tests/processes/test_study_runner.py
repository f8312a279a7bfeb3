"""The runner of studies: resumable, independent of its workers, honest about failures."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

from dpbayes.core import cluster
from dpbayes.core.errors import EngineError, OutputError, StudyError
from studies.runner import failures, local_cluster, run_study
from tests.study import study

ROOT = Path(__file__).parents[2]
# One worker, which makes the fixture once.
pytestmark = pytest.mark.xdist_group("study runner")


def contents(out):
    return {path.name: path.read_bytes() for path in sorted((out / "pieces").glob("*.parquet"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Twelve pieces by one worker, without interruption."""
    out = tmp_path_factory.mktemp("whole") / "out"
    return run_study(study(), 12, out, workers=1).text, contents(out)


def test_results_do_not_depend_on_the_workers_and_a_stopped_study_goes_on(tmp_path, whole):
    calls = tmp_path / "calls"
    calls.mkdir()
    out = tmp_path / "out"
    found = run_study(study(folder=str(calls)), 12, out, workers=2)
    assert (found.text, contents(out)) == whole
    assert len(list(calls.iterdir())) == 12
    assert json.loads((out / "study.json").read_text())["pieces"] == 12
    assert (out / "tables" / "total.csv").read_text().startswith("pieces,total\n12,")
    assert (out / "figures" / "values.png").read_bytes().startswith(b"\x89PNG")
    shown = pd.read_csv(out / "figures" / "values.csv")  # what the figure shows
    assert list(shown["number"]) == list(range(12))
    assert f"total {shown['value'].sum():.17g}" == found.text
    for number in (0, 3, 7):
        (out / "pieces" / f"{number:06}.parquet").unlink()
    again = run_study(study(folder=str(calls)), 12, out, workers=2, resume=True)
    assert (again.text, contents(out)) == whole
    assert len(list(calls.iterdir())) == 15  # only what was missing
    assert run_study(study(folder=str(calls)), 12, out, resume=True).text == whole[0]
    assert len(list(calls.iterdir())) == 15  # nothing


def test_another_seed_gives_other_results(tmp_path, whole):
    assert run_study(study(), 12, tmp_path / "out", seed=2, workers=1).text != whole[0]


def test_a_killed_study_goes_on(tmp_path, whole):
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.study", str(out)], cwd=ROOT, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 60
        while len(list(out.glob("pieces/*.parquet"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = contents(out)
    assert 2 <= len(before) < 12
    assert (run_study(study(), 12, out, workers=2, resume=True).text, contents(out)) == whole
    assert before.items() <= contents(out).items()


def test_a_piece_that_fails_is_tried_again_and_recorded(tmp_path):
    calls = tmp_path / "calls"
    calls.mkdir()
    out = tmp_path / "out"
    found = run_study(study(folder=str(calls), fails=[2]), 4, out, workers=2)
    assert failures(out) == [2]
    assert "piece 2 cannot be done" in (out / "failures" / "000002.txt").read_text()
    assert list(found.tables["total"]["pieces"]) == [3]
    assert len([p for p in calls.iterdir() if p.name.startswith("2-")]) == 2
    mended = run_study(study(folder=str(calls)), 4, out, workers=1, resume=True)
    assert list(mended.tables["total"]["pieces"]) == [4]
    assert failures(out) == []
    with pytest.raises(StudyError, match="every piece failed, the first with: ValueError: piece 0"):
        run_study(study(fails=[0, 1]), 2, tmp_path / "none", workers=1)


@pytest.fixture
def dask(tmp_path):
    """A scheduler and two workers, each with a directory of its own."""
    where = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1"]
    processes = [
        subprocess.Popen(
            [*command, "--port", "0", "--scheduler-file", str(where), "--no-dashboard"], cwd=ROOT,
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )
    ]  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not where.exists() or not where.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file",
                     str(where), "--nthreads", "1", "--no-nanny", "--no-dashboard",
                     "--local-directory", str(tmp_path / name), "--name", name],
                    cwd=tmp_path / name, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                )
            )  # fmt: skip
        yield json.loads(where.read_text())["address"], processes[1:]
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def test_workers_elsewhere_one_of_which_dies(tmp_path, dask, whole):
    """Nothing is lost and the results are the same."""
    address, workers = dask
    calls = tmp_path / "calls"
    calls.mkdir()
    out = tmp_path / "out"
    killer = subprocess.Popen(
        [sys.executable, "-c",
         "import os, sys, time\n"
         "while len(os.listdir(sys.argv[1])) < 5: time.sleep(0.02)\n"
         "os.kill(int(sys.argv[2]), 9)", str(calls), str(workers[0].pid)],
    )  # fmt: skip
    found = run_study(study(folder=str(calls), slow=0.4), 12, out, scheduler=address)
    killer.wait()
    assert workers[0].wait(timeout=10) == -signal.SIGKILL
    assert (found.text, contents(out)) == whole
    assert failures(out) == []
    processes = {path.name.split("-")[1] for path in calls.iterdir()}
    assert processes == {str(worker.pid) for worker in workers}  # both took part


@pytest.mark.parametrize(
    "address",
    ["tcp://10.0.0.1:9", "tcp://[2001:db8::1]:9", "tcp://127.0.0.1.example.org:9",
     "tcp://0.0.0.0:9"],
)  # fmt: skip
def test_a_scheduler_elsewhere_without_tls_is_not_called(tmp_path, monkeypatch, address):
    monkeypatch.setattr("distributed.Client", lambda *_, **__: pytest.fail("it was called"))
    with pytest.raises(EngineError, match=r"does not use TLS.*tls://HOST:PORT"):
        run_study(study(), 2, tmp_path / "out", scheduler=address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1:9", "ws://example.org:9", "localhost:9", "tcp://localhost@example.org:9", "://",
     "inproc://a/1/1"],
)  # fmt: skip
def test_what_is_no_address_is_not_called(tmp_path, monkeypatch, address):
    monkeypatch.setattr("distributed.Client", lambda *_, **__: pytest.fail("it was called"))
    with pytest.raises(EngineError, match=r"expected tcp://HOST:PORT or tls://HOST:PORT"):
        run_study(study(), 2, tmp_path / "out", scheduler=address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address", ["tls://10.0.0.1:9", "tcp://127.0.0.1:9", "tcp://localhost:9", "tcp://[::1]:9"]
)
def test_schedulers_that_are_called(tmp_path, monkeypatch, address):
    def client(found, **_):
        assert found == address
        raise TimeoutError

    monkeypatch.setattr("distributed.Client", client)
    with pytest.raises(EngineError, match="no Dask scheduler answers"):
        run_study(study(), 2, tmp_path / "out", scheduler=address)


def test_tls_without_certificates_is_explained(tmp_path):
    with pytest.raises(EngineError, match=r"needs certificates: set distributed\.comm\.tls"):
        run_study(study(), 2, tmp_path / "out", scheduler="tls://127.0.0.1:9")


def test_bad_input(tmp_path, monkeypatch):
    out = tmp_path / "out"
    run_study(study(), 2, out, workers=1)
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "data.csv").write_text("")
    for made, replicates, where, options, error, message in (
        (study(), 0, None, {}, StudyError, "replicates = 0 must be at least 1"),
        (study(), 2, None, {"workers": 0}, StudyError, "workers = 0 must be at least 1"),
        (study(), 2, out, {}, OutputError, "already holds this study; --resume"),
        (study(), 3, out, {"resume": True}, OutputError, "of another study: there replicates 2"),
        (study(), 2, out, {"resume": True, "seed": 5}, OutputError, "there seed 1"),
        (study("other"), 2, out, {"resume": True}, OutputError, "there study 'test'"),
        (study(), 2, tmp_path / "file", {}, OutputError, "exists and is no study"),
        (study(), 2, tmp_path / "full", {}, OutputError, "exists and is no study"),
    ):
        with pytest.raises(error, match=message):
            run_study(made, replicates, where, **options)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full", "out"]
    (out / "study.json").write_text("{")
    with pytest.raises(OutputError, match=r"study\.json cannot be read"):
        run_study(study(), 2, out, resume=True)
    monkeypatch.setattr(cluster, "TIMEOUT", 1.0)
    with pytest.raises(
        EngineError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9' within 1 s"
    ):
        run_study(study(), 2, tmp_path / "new", scheduler="tcp://127.0.0.1:9")


def test_nobody_else_reaches_the_cluster_of_a_study():
    """Neither without certificates nor with one's own: Dask runs what it is sent."""
    from distributed import Client, Security

    with local_cluster(1) as client:
        port = client.scheduler_info()["services"].get("dashboard")
        if port is not None:
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/info/main/workers.html")
        assert client.submit(sum, [1, 2]).result() == 3
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises(OSError, match=r"Timed out|closed"):
            Client(address.replace("tls", "tcp"), timeout=3)
        with pytest.raises(OSError, match=r"TLS certificate does not match"):
            Client(address, timeout=3, security=Security.temporary())
