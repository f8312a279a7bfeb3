"""Whatever a file of a program's data is: a checked program or a DpbayesError."""

import contextlib
import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.core.errors import DpbayesError
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.json_data import read_json_data
from dpbayes.stan.program import _expand, stan_directory
from tests.fuzzing import many, scrambled, seeds
from tests.programs import GOOD
from tests.unit.test_any_file import JSON, NAMES, ODD

pytestmark = pytest.mark.fuzz


@functools.cache
def compiled():
    text = _expand(GOOD, (stan_directory() / "include",))
    program = dpb.StanProgram("good", GOOD, text)
    return program, EmbeddedEngine().compile(program)


@given(seed=seeds, private=st.lists(st.sampled_from(NAMES), max_size=2))
@many
def test_data_of_a_check(seed, private, tmp_path):
    """`dpbayes check --data FILE --private NAME`."""
    (tmp_path / "d.json").write_text(scrambled(JSON, ODD, seed), encoding="utf-8", errors="replace")
    with contextlib.suppress(DpbayesError):
        data = read_json_data(tmp_path / "d.json")
        dpb.check_contract(*compiled(), data, private or None)
