"""Checkpoints: what is continued, and what is set aside. Chains themselves: test_contract.py."""

from __future__ import annotations

import json

import pytest

from dpbayes.core.errors import OutputError
from dpbayes.engines.checkpoint import Checkpoint

INPUTS = {"records": "1", "sampler settings": "2"}


def left_unfinished(folder, inputs=INPUTS, seed=5, *, chosen=True):
    """What a fit that was stopped leaves behind."""
    folder.mkdir(mode=0o700, parents=True)
    (folder / "inputs.json").write_text(json.dumps({**inputs, "seed": seed, "chosen": chosen}))
    (folder / "some-1.nc").write_text("draws")
    return folder


@pytest.mark.parametrize("seed", [None, 5])
def test_the_same_inputs_go_on_with_the_same_seed(tmp_path, seed):
    checkpoint = Checkpoint(left_unfinished(tmp_path / "c", chosen=seed is not None))
    assert checkpoint.begin(INPUTS, seed) == 5
    assert checkpoint.set_aside is None


def test_a_new_seed_comes_from_the_operating_system(tmp_path):
    first, second = (Checkpoint(tmp_path / "c").begin(INPUTS, None) for _ in range(2))
    assert first != second
    assert not (tmp_path / "c").exists()  # until a chain is finished


@pytest.mark.parametrize(
    ("inputs", "seed", "named"),
    [
        ({**INPUTS, "records": "3"}, None, "records"),
        ({"records": "3", "sampler settings": "4"}, 5, "records, sampler settings"),
        (INPUTS, 6, "seed"),
        (INPUTS, None, "seed"),  # a seed that was chosen is no secret
    ],
)
def test_chains_of_another_fit_are_set_aside(tmp_path, inputs, seed, named):
    folder = left_unfinished(tmp_path / "c")
    checkpoint = Checkpoint(folder)
    assert checkpoint.begin(inputs, seed) != 5 or seed == 5
    place = tmp_path / "c.old-1"
    assert checkpoint.set_aside == (
        f"Unfinished chains of a fit with other {named} were set aside in {place}."
    )
    assert not folder.exists()
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / "some-1.nc").read_text() == "draws"


@pytest.mark.parametrize("content", [b"{", b"[1]", b"{}", b'{"seed": null}', b"\xff"])
def test_a_damaged_list_of_inputs_counts_as_other_inputs(tmp_path, content):
    folder = left_unfinished(tmp_path / "c")
    (folder / "inputs.json").write_bytes(content)
    checkpoint = Checkpoint(folder)
    checkpoint.begin(INPUTS, None)
    assert "other records, sampler settings were set aside" in checkpoint.set_aside


def test_clear_removes_what_was_set_aside_and_nothing_else(tmp_path):
    folder = tmp_path / "out" / "confidential" / "c"
    for records in ("1", "2", "3"):
        left_unfinished(folder, {**INPUTS, "records": records})
        checkpoint = Checkpoint(folder)
        checkpoint.begin({**INPUTS, "records": "4"}, None)
    left_unfinished(folder)
    beside = folder.parent / "c.old-mine"
    beside.write_text("")
    assert {p.name for p in folder.parent.iterdir()} == {
        "c", "c.old-1", "c.old-2", "c.old-3", "c.old-mine",
    }  # fmt: skip
    checkpoint.clear()
    assert list(folder.parent.iterdir()) == [beside]
    beside.unlink()
    checkpoint.clear()
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_used_is_an_output_error(tmp_path):
    (tmp_path / "c").write_text("a file")
    with pytest.raises(OutputError, match="Name another directory"):
        Checkpoint(tmp_path / "c").begin(INPUTS, None)
