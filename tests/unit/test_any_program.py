"""Whatever a Stan program says: it is proved, not proved or refused, and nothing else."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.core.errors import DpbayesError
from dpbayes.stan.proof.check import prove
from tests.fuzzing import many, scrambled, seeds
from tests.mutants import INSERTED, TEMPTING, texts
from tests.programs import BLOCKS, GOOD

pytestmark = pytest.mark.fuzz
ODD = (*TEMPTING, *INSERTED, '"', "/*", "*/", "//", "{", "}", "(", ")", ";", "1e999", "9" * 5000)
INCLUDES = (
    "#include m.stan",
    f"#include {'x' * 300}",
    "#include b.stan",
    "#include ../",
    "#include",
)
DATA = dpb.Schema({"y": dpb.Column("y", "continuous", lower=0, upper=1)})


@given(seed=seeds)
@many
def test_scrambled_programs(seed):
    """Pieces of programs in any order: of every kind of statement and expression."""
    text = scrambled(texts(), ODD, seed)
    program = dpb.StanProgram("mine", text, text)
    proof = prove(program)
    assert proof.proved == (not proof.findings)
    with contextlib.suppress(DpbayesError):
        program.check_names()
        program.private_line(("y",))


@given(text=st.one_of(st.text(max_size=40), st.none()), seed=seeds)
@many
def test_program_files(text, seed, tmp_path):
    """From the file to the model: what is wrong is told in one message."""
    whole = scrambled((GOOD, BLOCKS), ODD, seed)
    if text is not None:
        whole = whole[: seed % len(whole)] + text if seed % 3 else text
    if seed % 7 == 0:
        whole += f"\n{INCLUDES[seed // 7 % len(INCLUDES)]}\n"
        (tmp_path / "b.stan").write_bytes(b"\xff")
    (tmp_path / "m.stan").write_text(whole, encoding="utf-8", newline="", errors="replace")
    with contextlib.suppress(DpbayesError):
        dpb.Program(tmp_path / "m.stan", "y ~ 1").on(DATA)
