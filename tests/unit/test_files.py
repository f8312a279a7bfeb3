"""Files are there whole or not at all."""

import os

import pytest

from dpbayes.core.files import write_whole


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
