"""What an account says is left of its budget."""

import pytest

from dpbayes.privacy.accounting import NOTHING, Budget, Loss
from dpbayes.publication.account import Account


@pytest.mark.parametrize(
    ("budget", "cost", "times"), [(3.0, 0.3, 10), (1.0, 0.1, 10), (0.9, 0.3, 3)]
)
def test_a_budget_that_is_spent_has_nothing_left(budget, cost, times):
    """The sum of floats is short of it by a last bit."""
    account = Account(1, "survey", "add-remove", Budget(budget, 0.0, NOTHING), {})
    for _ in range(times - 1):
        account = account.having_paid(Loss.pure(cost))
    assert account.left == pytest.approx(cost)
    account = account.having_paid(Loss.pure(cost))
    assert 0 < budget - account.spent[0] < 1e-15
    assert account.left == 0
    assert account.statement().endswith("; 0 is left.")
