"""Files that compiled programs share: built once, and never there in part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from dpbayes.core.errors import EngineError
from dpbayes.engines.cmdstan_build import build_shared_files, compiler_settings

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell script stands for make")
MAIN, HEADER = "src/main_threads.o", "headers/h_threads.gch"
# As CmdStan's makefile: tells names, and writes a target where its variable says.
MAKE = f"""#!/bin/sh
for argument in "$@"; do
  case $argument in
    print-CMDSTAN_MAIN_O) echo "CMDSTAN_MAIN_O = {MAIN}" ;;
    print-PRECOMPILED_MODEL_HEADER) echo "PRECOMPILED_MODEL_HEADER = {HEADER}" ;;
    *=*) ;;
    *) echo "$argument" >> built; printf begun > "$argument"; sleep $SLEEP
       printf " and ended" >> "$argument" ;;
  esac
done
"""
BUILD = """
import sys
from pathlib import Path
from dpbayes.engines.cmdstan_build import build_shared_files
build_shared_files(Path(sys.argv[1]), {"STAN_THREADS": "TRUE"})
"""
THREADS = {"STAN_THREADS": "TRUE"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """CmdStan's folder with a space in its name, and a compiler that takes its time."""
    folder = tmp_path / "my home"
    folder.mkdir()
    (tmp_path / "make").write_text(MAKE)
    (tmp_path / "make").chmod(0o755)
    monkeypatch.setenv("MAKE", str(tmp_path / "make"))
    monkeypatch.setenv("SLEEP", "0.3")
    return folder


def building(home, sleep):
    command = [sys.executable, "-c", BUILD, str(home)]
    return subprocess.Popen(
        command, env={**os.environ, "SLEEP": str(sleep)}, start_new_session=True
    )


def whole(home):
    return [(home / name).read_text() for name in (MAIN, HEADER)] == 2 * ["begun and ended"]


def test_processes_at_once_build_them_once(home):
    processes = [building(home, 0.5) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert whole(home)
    assert len((home / "built").read_text().splitlines()) == 2
    build_shared_files(home, THREADS)
    assert len((home / "built").read_text().splitlines()) == 2


def test_a_builder_that_is_killed_leaves_no_part(home):
    process = building(home, 60)
    until = time.monotonic() + 60
    while not list(home.glob(".dpbayes/*/main_threads.o")) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (home / MAIN).exists()
    assert list(home.glob(".dpbayes/compiling-*"))
    build_shared_files(home, THREADS)
    assert whole(home)
    assert [path.name for path in (home / ".dpbayes").iterdir()] == [".lock"]


def test_a_folder_that_cannot_be_written_is_explained(home):
    (home / ".dpbayes").write_text("")
    with pytest.raises(EngineError, match=r"run `make STAN_THREADS=TRUE build` there"):
        build_shared_files(home, THREADS)


@pytest.mark.parametrize("script", ["exit 2", "echo nothing of this kind"])
def test_a_makefile_that_tells_no_names_is_left_alone(home, monkeypatch, tmp_path, script):
    (tmp_path / "make").write_text(f"#!/bin/sh\n{script}\n")
    build_shared_files(home, THREADS)
    monkeypatch.setenv("MAKE", str(tmp_path / "no such make"))
    build_shared_files(home, THREADS)
    assert list(home.iterdir()) == []


def test_a_compiler_that_fails_is_no_missing_permission(home, tmp_path):
    (tmp_path / "make").write_text(MAKE.replace("sleep $SLEEP", "echo no memory; exit 2"))
    with pytest.raises(ValueError, match="no memory"):
        build_shared_files(home, THREADS)
    assert not (home / MAIN).exists()


def test_programs_of_other_compiler_settings_are_others(home, monkeypatch):
    monkeypatch.setenv("O", "1")
    plain = compiler_settings(home)
    monkeypatch.setenv("O", "3")
    fast = compiler_settings(home)
    (home / "make").mkdir()
    (home / "make" / "local").write_text("STAN_NO_RANGE_CHECKS=true\n")
    assert len({plain, fast, compiler_settings(home)}) == 3
