"""The contract where records are summed by blocks, which a few draws with threads show."""

import numpy as np
import pytest

import dpbayes as dpb
from dpbayes.engines.embedded import EmbeddedEngine
from tests.programs import BLOCKS, OUTCOME, one_of_each_program, write


def check(program, data, **options):
    return dpb.check_contract(program, EmbeddedEngine().compile(program), data, **options)


def test_a_program_that_sums_over_blocks(tmp_path):
    n = 10_000  # three blocks
    data = {"n": n, "y": np.random.default_rng(3).normal(size=n)}
    program = dpb.StanProgram.from_file(write(tmp_path, BLOCKS))
    for threads in (1, 2):
        assert check(program, data, threads=threads).private == ("y",)
    # Each block takes the first records instead of its own: seen only where there are blocks.
    wrong = dpb.StanProgram.from_file(
        write(tmp_path, BLOCKS.replace("y[first:last]", "y[1:(last - first + 1)]"))
    )
    assert check(wrong, data).private == ("y",)
    with pytest.raises(dpb.ProgramError, match="with 2 threads target is another"):
        check(wrong, data, threads=2)
    deaf = dpb.StanProgram.from_file(
        write(tmp_path, BLOCKS.replace("weights[first:last]", "ones_vector(last - first + 1)"))
    )
    with pytest.raises(dpb.ProgramError, match=r"Line 6 should read:\n  return pseudo_log_lik"):
        check(deaf, data)


@pytest.mark.parametrize("family", one_of_each_program())
def test_bundled_programs_sum_over_blocks(family, schema, records):
    """More than 4,000 records are two blocks; more than one thread adds them up."""
    n = 4_100
    model = dpb.Regression(f"{OUTCOME[family]} ~ age + sex + (1 | region)", family).on(schema)
    many = records.sample(n, replace=True, random_state=1, ignore_index=True)
    data = model.data(schema.validate(many), len(many))
    assert check(model.program, data, threads=2).points == 5
