"""The list of metrics has what is logged; docs/reference/metrics.md is made from it."""

from agent_rl.rewards.metrics import OF_THE_DATA
from tests.data.scripted import order, settings


def test_an_order_logs_what_is_listed():
    given = settings(replay={"below": 0.5, "share": 0.5}, band={"low": 0.1, "high": 0.9}, drop={})
    listed = {f"data/{name}" for name in OF_THE_DATA if "<" not in name}
    assert order(settings=given).metrics().keys() == listed
