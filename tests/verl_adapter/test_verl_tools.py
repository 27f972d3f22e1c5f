"""Tools across the border to verl: our loader behind its key, its tools in our sessions, ours under its own loop."""

import asyncio
import json
from pathlib import Path

import pytest
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse
from verl.tools.tool_registry import load_all_tools

from agent_rl.tools import Tool, ToolOutput, ToolSession, ToolSpec
from agent_rl.trajectory import ToolCall, ToolStatus
from agent_rl.verl_adapter.verl_tools import VerlTool, to_specs

CALCULATOR = str(Path(__file__).parents[2] / "tool_configs/calculator.yaml")


class Counter(BaseTool):
    """A tool that was written for verl: counts the calls of one instance."""

    life: list

    def __init__(self, config, tool_schema):
        super().__init__(config, tool_schema)
        self.counts = {}

    async def create(self, instance_id=None, create_kwargs=None, **_):
        instance_id = instance_id or f"instance-{len(self.life)}"
        self.counts[instance_id] = (create_kwargs or {}).get("start", 0)
        self.life.append("create")
        return instance_id, ToolResponse()

    async def execute(self, instance_id, parameters, **_):
        if parameters["by"] == 99:
            await asyncio.sleep(60)
        self.counts[instance_id] += parameters["by"]
        return ToolResponse(text=str(self.counts[instance_id])), 0.5, {"asked": parameters["by"]}

    async def release(self, instance_id, **_):
        del self.counts[instance_id]
        self.life.append("release")


def yaml_of(tmp_path, entries):
    path = tmp_path / "tools.yaml"
    path.write_text(json.dumps({"tools": entries}))  # JSON is YAML
    return str(path)


def answers(specs, *turns, **options):
    async def inside():
        async with ToolSession(specs, **{"default_timeout_s": 5.0, **options}) as session:
            return [result for calls in turns for result in await session.run(calls)]

    return asyncio.run(inside())


@pytest.fixture
def counter(tmp_path, monkeypatch):
    """The verl tool as verl loads it from a file."""
    monkeypatch.setattr(Counter, "life", [], raising=False)
    schema = {
        "type": "function",
        "function": {
            "name": "counter",
            "description": "Counts.",
            "parameters": {
                "type": "object",
                "properties": {"by": {"type": "integer", "description": "How many."}},
                "required": ["by"],
            },
        },
    }
    entry = {"class_name": f"{__name__}.Counter", "config": {"type": "native", "step": 1}, "tool_schema": schema}

    def load(**more):
        (tool,) = load_all_tools(yaml_of(tmp_path, [{**entry, **more}]), None)
        return tool

    return load


# Our loader behind verl's key


def test_schema_keeps_what_verls_own_classes_would_drop(tmp_path):
    parameters = {
        "type": "object",
        "properties": {
            "numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["numbers"],
        "additionalProperties": False,
    }
    entry = {"class_name": "agent_rl.tools.builtin.calculator.Calculator", "name": "sum", "parameters": parameters}
    (tool,) = load_all_tools(yaml_of(tmp_path, [entry]), None)
    dumped = tool.tool_schema.model_dump(exclude_unset=True)
    assert dumped["function"]["parameters"] == parameters
    assert {name: model.model_dump()["type"] for name, model in tool.tool_schema.function.parameters.properties.items()}


# Tools that were written for verl


def test_verl_tool_lives_for_a_trajectory_in_our_session(counter):
    tool = counter()
    assert (type(tool), tool.name, tool.config) == (Counter, "counter", {"type": "native", "step": 1})
    (spec,) = to_specs([tool])
    assert to_specs([tool])[0] is spec
    calls = [[ToolCall("counter", {"by": by})] for by in (2, "3", "many")]
    *counted, refused = answers([spec], *calls, tools_kwargs={"counter": {"create_kwargs": {"start": 10}}})
    assert [(result.text, result.reward) for result in counted] == [("12", 0.5), ("15", 0.5)]
    assert counted[0].metrics == {"asked": 2}
    assert refused.status is ToolStatus.INVALID_ARGUMENTS
    assert Counter.life == ["create", "release"]


def test_verl_tool_keeps_the_limit_of_its_entry(counter):
    (spec,) = to_specs([counter(timeout_s=0.05, max_concurrency=2)])
    assert (spec.timeout_s, spec.max_concurrency) == (0.05, 2)
    (result,) = answers([spec], [ToolCall("counter", {"by": 99})])
    assert result.status is ToolStatus.TIMEOUT
    assert Counter.life == ["create", "release"]


def test_a_verl_tools_calls_are_repeated_only_if_its_entry_allows_it(counter):
    assert [to_specs([counter(**entry)])[0].may_be_repeated for entry in ({}, {"reusable": True})] == [False, True]


def test_function_tools_of_verls_key_are_loaded_beside_ours(tmp_path):
    path = tmp_path / "functions.py"
    names = ("double", "double_async")
    functions = [
        f"@function_tool('agent_rl_test_{name}')\n{'async ' * (name == 'double_async')}def {name}(number: int):\n"
        '    """Doubles.\n\n    Args:\n        number: What to double.\n    """\n'
        '    return f"{2 * number}", 0.25, {"seen": number}\n'
        for name in names
    ]
    path.write_text("\n\n".join(["from verl.tools.function_tool import function_tool", *functions]))
    specs = to_specs(load_all_tools(CALCULATOR, str(path)))
    assert [spec.name for spec in specs] == ["calculator", *(f"agent_rl_test_{name}" for name in names)]
    for result in answers(specs, [ToolCall(f"agent_rl_test_{name}", {"number": 21}) for name in names]):
        assert (result.text, result.reward, result.metrics) == ("42", 0.25, {"seen": 21})


# Our tools under verl's own loop, with which tests/verl_adapter/loops/test_tool_call_agent.py runs them


class Memory(Tool):
    """Remembers what it was created with."""

    name = "memory"
    description = "d"
    parameters = {"type": "object", "properties": {"key": {"type": "string"}}}  # noqa: RUF012

    async def call(self, arguments):
        return ToolOutput(self.create_kwargs[arguments["key"]], reward=0.5, metrics={"key": arguments["key"]})


async def test_instances_of_one_tool_are_apart_and_tell_verl_reward_and_status():
    tool = VerlTool(ToolSpec.from_class(Memory))

    first, _ = await tool.create(create_kwargs={"a": "1"})
    second, _ = await tool.create("named", create_kwargs={"a": "2"})
    assert second == "named"
    told = [await tool.execute(instance, {"key": "a"}) for instance in (first, second)]
    for instance in (first, second):
        await tool.release(instance)
    assert [response.text for response, *_ in told] == ["1", "2"]
    assert told[0][1:] == (0.5, {"status": "ok", "key": "a"})
    assert tool._sessions == {}
