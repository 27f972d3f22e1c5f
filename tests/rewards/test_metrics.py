"""The list of metrics has what is logged; docs/reference/metrics.md is made from it."""

from agent_rl.rewards.metrics import COUNTED, OF_THE_DATA, counted
from agent_rl.trajectory import StopReason, Trajectory
from tests.data.scripted import order, settings


def test_a_trajectory_without_turns_has_every_number():
    found = counted(Trajectory([], StopReason.MAX_TURNS))
    assert found.keys() >= COUNTED.keys()
    assert {name: value for name, value in found.items() if value} == {"stop_max_turns": 1.0}


def test_an_order_logs_what_is_listed():
    given = settings(replay={"below": 0.5, "share": 0.5}, band={"low": 0.1, "high": 0.9}, drop={})
    listed = {f"data/{name}" for name in OF_THE_DATA if "<" not in name}
    assert order(settings=given).metrics().keys() == listed
