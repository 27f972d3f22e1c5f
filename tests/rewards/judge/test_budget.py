"""What is spent is counted, and enough is enough."""

import logging

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.judge.budget import Budget, BudgetConfig, Usage


def test_without_limits() -> None:
    budget = Budget(BudgetConfig(), "judge")
    for _ in range(100):
        budget.require()
        budget.count(calls=1, attempts=2, tokens=1000)
    assert budget.usage == Usage(calls=100, attempts=200, tokens=100_000)


@pytest.mark.parametrize("limit", ["calls", "tokens"])
def test_a_limit_is_said_once(limit: str, caplog: pytest.LogCaptureFixture) -> None:
    budget = Budget(BudgetConfig.model_validate({limit: 3}), "judge")
    for _ in range(3):
        budget.require()
        budget.count(calls=1, tokens=1)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            with pytest.raises(UnscoredError, match=f"judge: the budget of 3 {limit} is spent"):
                budget.require()
    assert budget.usage.refused == 5
    assert len(caplog.records) == 1
