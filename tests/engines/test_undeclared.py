"""A program's variable does not hold data of its name that the data block does not declare.

stanli 0.24.0 fills variables of transformed data with them. Covariates are given to every program:
by such a variable they would reach a prior past the proof, which takes it for the same whatever the
records are.
"""

import numpy as np
import pytest

from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.program import StanProgram
from tests.attacks import PRIOR, attack, beforehand
from tests.programs import GOOD, write

SHAPES = {
    "a variable": "matrix[3, 2] X; real m = X[1, 1];",
    "in a block": "real m; { matrix[3, 2] X; m = X[1, 1]; }",
    "an entry that is assigned": "matrix[3, 2] X; X[2, 1] = 1; real m = X[1, 1];",
}


@pytest.mark.parametrize("name", SHAPES)
def test_data_that_are_not_declared_are_not_given(name, tmp_path):
    text = attack(GOOD, [beforehand(SHAPES[name]), (PRIOR, "mu ~ normal(m, 2);")])
    model = EmbeddedEngine().compile(StanProgram.from_file(write(tmp_path, text)))
    data = {"n": 3, "y": np.arange(3.0), **contract_defaults(3)}
    point = make_draws({"mu": np.array([[0.4]])})
    there = [model.bind({**data, "X": np.full((3, 2), x)}).log_prob(point) for x in (1.0, 5.0)]
    np.testing.assert_array_equal(*there)
