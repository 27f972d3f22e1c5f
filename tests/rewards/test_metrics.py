"""The list of metrics has what is logged; docs/reference/metrics.md is made from it."""

from agent_rl.rewards.metrics import OF_THE_DATA, OF_THE_GATEWAY, counted
from agent_rl.trajectory import StopReason, Trajectory, Turn
from tests.data.scripted import order, settings


def test_an_order_logs_what_is_listed():
    given = settings(replay={"below": 0.5, "share": 0.5}, band={"low": 0.1, "high": 0.9}, drop={})
    listed = {f"data/{name}" for name in OF_THE_DATA if "<" not in name}
    assert order(settings=given).metrics().keys() == listed


def test_sessions_of_programs_are_counted_under_the_same_keys_and_other_trajectories_are_not():
    session = {"requests": 7, "conversations": 2, "unfetched": 1, "too_long": 3, "unenforced_tool_choices": 1}
    turns = [Turn("a"), Turn("b"), Turn("c"), Turn("d")]
    info = {"gateway": session, "program": "the program failed"}
    full = counted(Trajectory([], StopReason.STOPPED, turns, info=info))
    plain = counted(Trajectory([], StopReason.ANSWERED, turns, info={"gateway": {"requests": 1, "conversations": 1}}))
    assert {name: full[name] for name in OF_THE_GATEWAY} == {
        "gateway_sequences": 2, "gateway_unfetched": 1, "gateway_too_long": 3, "gateway_unforced": 0.25,
        "gateway_failed": 1,
    }  # fmt: skip
    assert [plain[name] for name in OF_THE_GATEWAY] == [1, 0, 0, 0, 0]
    assert not OF_THE_GATEWAY.keys() & counted(Trajectory([], StopReason.ANSWERED, turns)).keys()
