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


async def test_a_scope_opens_once_tries_again_and_closes_all_in_reverse_order(caplog):
    events = []

    def resource(name, *, opens=True, closes=True):
        @contextlib.asynccontextmanager
        async def opened():
            events.append(f"open {name}")
            await asyncio.sleep(0.01)
            if not opens:
                raise OSError("down")
            yield name
            events.append(f"close {name}")
            if not closes:
                raise RuntimeError("will not close")

        return opened

    scope = TrajectoryScope()
    with pytest.raises(OSError, match="down"):
        await scope.get("a", resource("a", opens=False))
    assert await asyncio.gather(*(scope.get("a", resource("a")) for _ in range(3))) == ["a", "a", "a"]
    assert await scope.get("b", resource("b", closes=False)) == "b"
    await scope.close()
    await scope.close()
    assert events == ["open a", "open a", "open b", "close b", "close a"]
    assert "will not close" in caplog.text


async def test_a_shared_resource_stays_open_for_its_owner():
    scope, owned = TrajectoryScope(), []
    scope.share("world", owned)
    assert scope.shared("world") is owned
    await scope.close()
    with pytest.raises(KeyError):
        scope.shared("world")
    assert owned == []
