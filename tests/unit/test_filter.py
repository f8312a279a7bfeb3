"""Budgets against somebody who chooses each output, and its loss, in view of those before it."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpbayes.privacy.accounting import NOTHING, Budget, Loss, compose, rho_for

STEP = 0.004  # of the grid of privacy losses
PIECES = 40  # normal outputs that share the rho of the budget


def most_delta(epsilon, delta, left):
    """δ at ``epsilon`` of the best strategy: normal outputs, stopped at will, then a coin.

    Backward induction over the privacy loss so far, exact up to the grid.

    Args:
        left: largest ε of the coin that a budget admits after normal outputs of a total rho.
    """
    losses = np.arange(-epsilon - 2, 2 * epsilon + 3, STEP)
    reach = len(losses) - 1
    moves = np.arange(-reach, reach + 1) * STEP

    def stop(coin):
        """The coin tells the truth with probability e^ε/(1 + e^ε); its loss is ε, or -ε."""
        truth = 1 / (1 + math.exp(-coin))
        exceeds = [np.maximum(0, -np.expm1(epsilon - losses - s)) for s in (coin, -coin)]
        return truth * exceeds[0] + (1 - truth) * exceeds[1]

    piece = rho_for(epsilon, delta) / PIECES
    chances = norm.pdf(moves, piece, math.sqrt(2 * piece)) * STEP
    near = np.flatnonzero(chances > 1e-18)
    value = stop(0.0)
    for made in range(PIECES - 1, -1, -1):
        padded = np.pad(value, reach, mode="edge")
        onward = sum(chances[i] * padded[i : i + len(losses)] for i in near)
        value = np.maximum(stop(left(made * piece)), onward)
    return np.interp(0.0, losses, value)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (3.0, 1e-3), (3.0, 1e-7), (8.0, 1e-4)])
def test_no_order_of_normal_noise_and_a_coin_exceeds_a_budget(epsilon, delta):
    budget = Budget(epsilon, delta, NOTHING)

    def left(rho):
        return largest(
            lambda coin: budget.share(Loss.concentrated(rho).plus(Loss.pure(coin)))[0], epsilon
        )

    assert 0.1 * delta < most_delta(epsilon, delta, left) <= delta


def test_the_best_rule_at_the_end_would_exceed_it():
    """The check above sees what it is for: ``compose`` is not for losses that are chosen late."""

    def left(rho):
        losses = Loss.concentrated(rho)
        return largest(lambda coin: compose([(losses, 1), (Loss.pure(coin), 1)], 1e-3)[0], 3.0)

    assert most_delta(3.0, 1e-3, left) > 1.5e-3


def largest(cost, bound):
    low, high = 0.0, bound
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= bound else (low, middle)
    return low


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 50.0, 1e6])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_a_budget_admits_one_release_of_all_of_it(epsilon, delta):
    """Planned as ``compose`` states it, pure or not, and no second one."""
    budget = Budget(epsilon, delta, NOTHING)
    for loss in (Loss.pure(epsilon), Loss.concentrated(rho_for(epsilon, delta))):
        assert budget.admits(loss)
        assert not Budget(epsilon, delta, loss).admits(loss.scaled(0.1))
