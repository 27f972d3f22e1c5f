"""The contract: what a tool class must and may have, and that it needs nothing heavy."""

import asyncio
import contextlib
import pickle
from typing import ClassVar

import pytest

from agent_rl.errors import ConfigError, FatalError
from agent_rl.tools import Tool, ToolOutput, ToolSpec
from agent_rl.tools.base import TrajectoryScope
from agent_rl.tools.builtin.calculator import Calculator


class Echo(Tool):
    name = "echo"
    description = "Say it again."
    parameters: ClassVar = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    def call(self, arguments):
        return ToolOutput(arguments["text"], reward=0.5, metrics={"length": len(arguments["text"])})


def test_spec_from_class():
    spec = ToolSpec.from_class(Echo, config={"a": 1})
    assert spec.schema() == {
        "type": "function",
        "function": {"name": "echo", "description": "Say it again.", "parameters": Echo.parameters},
    }
    tool = spec.create({"b": 2})
    assert isinstance(tool, Echo)
    assert tool.config["a"] == 1
    assert tool.create_kwargs == {"b": 2}
    assert not spec.is_verl
    asyncio.run(tool.start())
    asyncio.run(tool.close())
    assert tool.call({"text": "hey"}).metrics == {"length": 3}
    wrong = type("Wrong", (Echo,), {"parameters": {"type": "string"}})
    with pytest.raises(ConfigError, match="type must be 'object', got 'string'"):
        ToolSpec.from_class(wrong)


def test_no_state_leaks_through_what_trajectories_share():
    kwargs = {"seen": []}
    spec = ToolSpec.from_class(Echo)
    spec.create(kwargs).create_kwargs["seen"].append(1)
    spec.schema()["function"]["parameters"]["properties"].clear()
    assert kwargs == {"seen": []}
    assert "text" in spec.schema()["function"]["parameters"]["properties"]
    with pytest.raises(TypeError):
        spec.create({}).config["new"] = 1


def test_a_spec_crosses_process_boundaries():
    spec = ToolSpec.from_class(Calculator)
    assert spec.validator.is_valid({"expression": "1"})
    copied = pickle.loads(pickle.dumps(spec))
    assert copied == spec
    assert copied.validator.is_valid({"expression": "1"})


def test_a_verl_class_needs_its_adapter():
    class Foreign:
        pass

    with pytest.raises(FatalError, match="adapter"):
        ToolSpec("foreign", "d", {"type": "object"}, Foreign).create({})


def recorder(events, name, *, fails=False):
    @contextlib.asynccontextmanager
    async def resource():
        events.append(f"open {name}")
        await asyncio.sleep(0.01)
        if fails:
            raise OSError("down")
        yield name
        events.append(f"close {name}")

    return resource


def test_opened_once_and_closed_in_reverse_order():
    events = []

    async def main():
        scope = TrajectoryScope()
        got = await asyncio.gather(*(scope.get("a", recorder(events, "a")) for _ in range(3)))
        assert await scope.get("b", recorder(events, "b")) == "b"
        await scope.close()
        await scope.close()
        return got

    assert asyncio.run(main()) == ["a", "a", "a"]
    assert events == ["open a", "open b", "close b", "close a"]


def test_what_could_not_be_opened_is_tried_again():
    events = []

    async def main():
        scope = TrajectoryScope()
        with pytest.raises(OSError, match="down"):
            await scope.get("a", recorder(events, "a", fails=True))
        assert await scope.get("a", recorder(events, "a")) == "a"
        await scope.close()

    asyncio.run(main())
    assert events == ["open a", "open a", "close a"]


def test_a_failing_close_does_not_keep_the_others_open(caplog):
    events = []

    @contextlib.asynccontextmanager
    async def stubborn():
        yield 1
        raise RuntimeError("will not close")

    async def main():
        scope = TrajectoryScope()
        await scope.get("a", recorder(events, "a"))
        await scope.get("stubborn", stubborn)
        await scope.close()

    asyncio.run(main())
    assert events == ["open a", "close a"]
    assert "will not close" in caplog.text
