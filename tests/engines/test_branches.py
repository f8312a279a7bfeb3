"""What a record adds to target does not hang on the branches that other records take."""

import numpy as np
import pytest

from dpbayes.engines.contract import contract_defaults
from dpbayes.stan.program import StanProgram
from tests.honest_programs import LOOPS
from tests.programs import write

COUNTS = (
    (2, 3, 0, 0, 0, 90), (2, 3, 0, 0, 0, 0), (2, 0, 0, 0, 0), (0, 0, 0, 0), (2, 2, 2, 0), (0, 7),
)  # fmt: skip


@pytest.fixture
def hurdle(engine, tmp_path):
    """A function of it returns early for zeros: stanli's partitions got that wrong."""
    return engine.compile(StanProgram.from_file(write(tmp_path, LOOPS["hurdle by record"])))


@pytest.mark.parametrize("y", COUNTS)
def test_terms_by_branches(hurdle, y):
    n = len(y)
    X = np.linspace(-1, 1, 2 * n).reshape(n, 2)
    bound = hurdle.bind({"n": n, "K": 2, "X": X, "y": y, **contract_defaults(n)})
    draws = bound.random_points(3, seed=1)
    base = bound.rebind(weights=np.zeros(n)).log_prob(draws)
    terms = [bound.rebind(weights=one).log_prob(draws) - base for one in np.eye(n)]
    emitted = np.stack(list(bound.log_lik(draws)))
    np.testing.assert_allclose(np.stack(terms, axis=1), emitted, rtol=1e-6, atol=1e-9)
