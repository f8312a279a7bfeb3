"""Files are there whole or not at all."""

import os
import re
from pathlib import Path

import pytest

import dpbayes as dpb
from dpbayes.core import files
from dpbayes.core.errors import DpbayesError, InferenceError
from dpbayes.core.files import STATEMENT, read_text, read_whole, write_whole
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.inference.analysis import read_release
from dpbayes.pages.confidential import confidential_page
from dpbayes.pages.readers import statement_of
from dpbayes.report.whole import stated
from dpbayes.schema import Schema
from dpbayes.stan.json_data import read_json_data
from dpbayes.stan.program import StanProgram
from dpbayes.synthesis.release import Release


@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_a_file_that_is_not_finished_leaves_nothing(tmp_path, monkeypatch, reason, step):
    path = tmp_path / "weights.json"
    write_whole(path, b"before")

    def interrupted(*_):
        raise reason

    monkeypatch.setattr(step, interrupted)
    with pytest.raises(reason):
        write_whole(path, b"after")
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["weights.json"]
    assert path.read_bytes() == b"before"


def test_a_file_has_the_mode_that_it_is_given(tmp_path):
    mask = os.umask(0o022)
    try:
        for mode, found in ((0o666, 0o644), (0o600, 0o600)):
            write_whole(tmp_path / "f", b"x" * 10, mode)
            assert (tmp_path / "f").stat().st_mode & 0o777 == found
            assert (tmp_path / "f").read_bytes() == b"x" * 10
    finally:
        os.umask(mask)


@pytest.fixture(params=["pipe", "device", "large"])
def no_file(request, tmp_path, monkeypatch):
    """A function that puts a pipe, a device without end or a file that is too large at a path."""
    monkeypatch.setattr(files, "MOST_MEGABYTES", 0)

    def put(path):
        if request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "device":
            path.symlink_to("/dev/zero")
        else:
            path.write_bytes(b"{}")
        return path

    return put


@pytest.mark.parametrize(
    "read",
    [
        Schema.from_toml, StanProgram.from_file, read_json_data, dpb.Reference.load,
        lambda path: stated(path.parent / "synthetic_1.csv", None, None),
    ],
)  # fmt: skip
def test_only_a_small_regular_file_is_read(read, no_file, tmp_path):
    path = no_file(tmp_path / "guarantee.json")
    with pytest.raises(DpbayesError, match=r"is a pipe or a device; write|more than 0 MB; name"):
        read(path)
    with pytest.raises(OSError, match=r"pipe or a device|more than 0 MB"):
        read_whole(path)


@pytest.mark.parametrize("of", [read_release, statement_of, confidential_page, dpb.load])
def test_only_small_regular_files_are_read_of_a_release(of, no_file, tmp_path):
    (tmp_path / "release").mkdir()
    for name in ("guarantee.json", "fit.json", "release/guarantee.json"):
        no_file(tmp_path / name)
    assert Release.entry_of(tmp_path) is None
    with pytest.raises(DpbayesError, match=r"is a pipe or a device; write|more than 0 MB; name"):
        of(tmp_path)


def test_a_name_that_no_file_has():
    with pytest.raises(OSError, match="no file has such a name"):
        read_whole("a\0b")


def test_a_pipe_is_no_synthetic_data_set(tmp_path):
    statement = '{"datasets": 1, "mechanism": "laplace", "basis": "strict"}'
    (tmp_path / "guarantee.json").write_text(statement)
    os.mkfifo(tmp_path / "synthetic_1.csv")
    with pytest.raises(InferenceError, match=r"pipe or a device.*synthetic_1\.csv"):
        read_release(tmp_path)


def test_line_ends_of_any_kind_are_read(tmp_path):
    (tmp_path / "f").write_bytes(b"a\r\nb\rc\n")
    assert read_text(tmp_path / "f") == "a\nb\nc\n"


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: write_whole(folder / "notes.txt", b""),
        lambda folder: write_whole(folder / "figures" / "notes.txt", b""),
        lambda folder: Checkpoint(folder / "chains").begin({}, 1),
        lambda folder: dpb.Ledger.create(folder / "ledger.db"),
        lambda folder: dpb.Schema({"y": dpb.Column("y", "binary", levels=("no", "yes"))}).to_toml(
            folder / "schema.toml"
        ),
    ],
)
def test_nothing_is_written_into_a_release(write, tmp_path):
    release = tmp_path / "web" / "release"
    release.mkdir(parents=True)
    (release / STATEMENT).write_text("{}")
    with pytest.raises(dpb.OutputError, match="is inside the release"):
        write(release)
    assert [path.name for path in release.iterdir()] == [STATEMENT]
    write_whole(release / "report.html", b"", in_release=True)
    (tmp_path / "free" / "figures").mkdir(parents=True)
    write(tmp_path / "free")


def test_other_ways_to_create_files_are_few():
    """Whoever adds one asks whether what it writes may be confidential (``refuse_in_release``)."""
    root = Path(dpb.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(r"O_CREAT|write_(text|bytes)\(|open\([^)]*\"[wxa]b?\"", path.read_text())
    }
    look_first = {"publication/database.py", "cli/schema.py"}
    of_outputs = {"publication/output.py", "publication/choosing.py"}  # a place that was looked at
    beside_programs = {
        "engines/cmdstan.py", "engines/cmdstan_run.py", "engines/one_record.py",
        "engines/worker.py", "cli/streams.py",
    }  # fmt: skip
    assert found == {"core/files.py"} | look_first | of_outputs | beside_programs
