"""Methods of an environment as the tools of a trajectory."""

import asyncio

from agent_rl.environments.kind import SESSION, MethodTool
from agent_rl.tools import ToolSession
from agent_rl.trajectory import ToolCall, ToolResult, ToolStatus
from tests.environments.sessions import lockers, session
from tests.environments.test_session import Slow

ROW = {"number": 182, "code": 5515}


def results(*calls: ToolCall) -> list[ToolResult]:
    """The results of the calls of one turn in a locker's trajectory."""
    world = session(lockers(), ROW)

    async def turn() -> list[ToolResult]:
        await world.reset()
        async with ToolSession(world.kind.specs, default_timeout_s=5, shared={SESSION: world}) as tools:
            answers = await tools.run(calls)
        await world.close()
        return answers

    return asyncio.run(turn())


def test_the_tools_are_the_methods() -> None:
    look_up, open_ = lockers().specs
    assert (look_up.name, look_up.description, look_up.cls) == ("look_up", "The code of a locker.", MethodTool)
    assert open_.parameters == {
        "type": "object",
        "properties": {"number": {"type": "integer"}, "code": {"type": "integer"}},
        "required": ["number", "code"],
    }


def test_calls_of_a_turn_see_what_the_earlier_ones_changed() -> None:
    calls = [ToolCall("look_up", {"number": 182}), ToolCall("open", ROW), ToolCall("open", {"number": 1, "code": 2})]
    assert [result.text for result in results(*calls)] == ["Its code is 5515.", "It is open.", "It stays shut."]


def test_a_wrong_call_is_answered() -> None:
    unknown, missing = results(ToolCall("close", {}), ToolCall("open", {"number": 182}))
    assert (unknown.status, missing.status) == (ToolStatus.UNKNOWN_TOOL, ToolStatus.INVALID_ARGUMENTS)
    assert "code" in missing.text


def test_a_specification_does_not_hold_the_instance() -> None:
    first, second = lockers().specs, lockers().specs
    assert first is second
    assert first[0].config == {"method": "look_up"}
    assert [spec.name for spec in session(Slow).kind.specs] == ["plain", "waiting"]
