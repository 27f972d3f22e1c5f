"""What is counted."""

from __future__ import annotations

import pytest

from agent_rl.rewards.service.metrics import Metrics
from agent_rl.rewards.service.wire import Scored, Unscored


def lines(metrics: Metrics) -> dict[str, float]:
    found = (line.rsplit(" ", 1) for line in metrics.text().splitlines() if not line.startswith("#"))
    return {name.removeprefix("agent_rl_reward_"): float(value) for name, value in found}


def test_a_request_is_counted_by_its_status_while_it_is_open_and_after() -> None:
    metrics = Metrics()
    with metrics.request("/get_reward") as seen:
        assert lines(metrics)['requests_in_flight{endpoint="/get_reward"}'] == 1
        seen.status = 200
    with pytest.raises(KeyError), metrics.request("/get_reward"):
        raise KeyError
    counts = lines(metrics)
    assert counts['requests_in_flight{endpoint="/get_reward"}'] == 0
    assert counts['requests_total{endpoint="/get_reward",status="200"}'] == 1
    assert counts['requests_total{endpoint="/get_reward",status="499"}'] == 1
    assert counts['request_seconds_count{endpoint="/get_reward"}'] == 2


def test_items_are_counted_as_scored_or_unscored() -> None:
    metrics = Metrics()
    metrics.answered("/get_reward2", [Scored(score=1, components={}), Unscored(error="why"), Unscored(error="why")])
    counts = lines(metrics)
    assert counts['trajectories_total{endpoint="/get_reward2",outcome="scored"}'] == 1
    assert counts['trajectories_total{endpoint="/get_reward2",outcome="unscored"}'] == 2
