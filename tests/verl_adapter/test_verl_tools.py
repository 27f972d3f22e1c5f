"""Tools across the border to verl: our loader behind its key, its tools in our sessions, ours under its own loop."""

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("verl")

import numpy as np
from verl.tools.base_tool import BaseTool
from verl.tools.function_tool import FunctionTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.tools.tool_registry import load_all_tools

from agent_rl.errors import ConfigError
from agent_rl.tools import Tool, ToolOutput, ToolSession, ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.trajectory import ToolCall, ToolStatus
from agent_rl.verl_adapter.verl_tools import VerlTool, to_specs
from tests.agents.server import Server, make_loop

CALCULATOR = str(Path(__file__).parents[2] / "tool_configs/calculator.yaml")

VERL_FORM = """
tools:
  - class_name: agent_rl.tools.builtin.calculator.Calculator
    config: {type: native}
    tool_schema:
      type: function
      function:
        name: compute
        description: Computes.
        parameters:
          type: object
          properties:
            expression: {type: string, description: What to compute.}
          required: [expression]
"""


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


def test_short_form_is_loaded_through_verls_own_function():
    (tool,) = load_all_tools(CALCULATOR, None)
    assert isinstance(tool, VerlTool)
    assert tool.name == "calculator"
    assert isinstance(tool.tool_schema, OpenAIFunctionToolSchema)
    assert tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True) == tool.spec.schema()


def test_verl_form_is_loaded_through_verls_own_function(tmp_path):
    path = tmp_path / "tools.yaml"
    path.write_text(VERL_FORM)
    (tool,) = load_all_tools(str(path), None)
    assert tool.name == "compute"
    assert tool.tool_schema.function.parameters.required == ["expression"]
    (spec,) = to_specs([tool])
    assert spec.cls is Calculator
    assert answers([spec], [ToolCall("compute", {"expression": "6*7"})])[0].text == "42"


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


def test_mistake_in_the_file_is_a_config_error_that_names_it(tmp_path):
    path = yaml_of(tmp_path, [{"name": "calculater"}])
    with pytest.raises(ConfigError, match=r"tools\.yaml:1: tools\[0\].*calculater.*Did you mean 'calculator'"):
        load_all_tools(path, None)


def test_specs_of_our_tools_are_the_ones_that_were_loaded():
    (tool,) = load_all_tools(CALCULATOR, None)
    assert to_specs([tool]) == [tool.spec]


# Tools that were written for verl


def test_verl_tool_is_verls_own_instance(counter):
    tool = counter()
    assert type(tool) is Counter
    assert tool.config == {"type": "native", "step": 1}
    assert tool.name == "counter"


def test_verl_tool_lives_for_a_trajectory_in_our_session(counter):
    (spec,) = to_specs([counter()])
    results = answers([spec], [ToolCall("counter", {"by": 2})], [ToolCall("counter", {"by": "3"})])
    assert [result.text for result in results] == ["2", "5"]
    assert [result.reward for result in results] == [0.5, 0.5]
    assert results[0].metrics == {"asked": 2}
    assert Counter.life == ["create", "release"]


def test_verl_tool_gets_the_rows_arguments(counter):
    (spec,) = to_specs([counter()])
    (result,) = answers(
        [spec], [ToolCall("counter", {"by": 1})], tools_kwargs={"counter": {"create_kwargs": {"start": 10}}}
    )
    assert result.text == "11"


def test_verl_tool_has_its_arguments_checked(counter):
    (spec,) = to_specs([counter()])
    (result,) = answers([spec], [ToolCall("counter", {"by": "many"})])
    assert result.status is ToolStatus.INVALID_ARGUMENTS
    assert Counter.life == []


def test_verl_tool_keeps_the_limit_of_its_entry(counter):
    (spec,) = to_specs([counter(timeout_s=0.05, max_concurrency=2)])
    assert (spec.timeout_s, spec.max_concurrency) == (0.05, 2)
    (result,) = answers([spec], [ToolCall("counter", {"by": 99})])
    assert result.status is ToolStatus.TIMEOUT
    assert Counter.life == ["create", "release"]


@pytest.mark.parametrize("is_async", [False, True])
def test_verl_function_tool_is_called_in_our_session(is_async):
    def double(number: int):
        return f"{2 * number}", 0.25, {"seen": number}

    async def double_async(number: int):
        return double(number)

    schema = ToolSpec(
        "double", "Doubles.", {"type": "object", "properties": {"number": {"type": "integer"}}}, Calculator
    ).schema()
    tool = FunctionTool(
        "double",
        double_async if is_async else double,
        OpenAIFunctionToolSchema.model_validate(schema),
        is_async=is_async,
    )
    (spec,) = to_specs([tool])
    (result,) = answers([spec], [ToolCall("double", {"number": 21})])
    assert (result.text, result.reward, result.metrics) == ("42", 0.25, {"seen": 21})


def test_function_tools_of_verls_key_are_loaded_beside_ours(tmp_path):
    path = tmp_path / "functions.py"
    path.write_text(
        "from verl.tools.function_tool import function_tool\n\n\n"
        "@function_tool('agent_rl_test_shout')\n"
        "def shout(text: str) -> str:\n"
        '    """Shouts.\n\n    Args:\n        text: What to shout.\n    """\n'
        "    return text.upper()\n"
    )
    specs = to_specs(load_all_tools(CALCULATOR, str(path)))
    assert [spec.name for spec in specs] == ["calculator", "agent_rl_test_shout"]
    (result,) = answers(specs, [ToolCall("agent_rl_test_shout", {"text": "hey"})])
    assert result.text == "HEY"


# Our tools under verl's own loop


class Memory(Tool):
    """Remembers what it was created with; notes its life."""

    name = "memory"
    description = "d"
    parameters = {"type": "object", "properties": {"key": {"type": "string"}}}  # noqa: RUF012
    life = []  # noqa: RUF012

    async def start(self):
        self.life.append("start")

    async def call(self, arguments):
        return ToolOutput(self.create_kwargs[arguments["key"]], reward=0.5, metrics={"key": arguments["key"]})

    async def close(self):
        self.life.append("close")


def tool_agent(compose, tokenizer, turns, tools, tools_kwargs=None):
    """One row through verl's `tool_agent`; the output and the server."""
    config = compose("actor_rollout_ref.rollout.multi_turn.format=hermes")
    server = Server(tokenizer, *turns)

    async def inside():
        loop = make_loop(config, server, tokenizer, "tool_agent", tools)
        assert type(loop).__module__.startswith("verl.")
        return await loop.run(
            {"logprobs": True},
            raw_prompt=np.array([{"role": "user", "content": "What is 6*7?"}], dtype=object),
            tools_kwargs=tools_kwargs or {},
            extra_info={},
        )

    return asyncio.run(inside()), server


def hermes(name, **arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def test_our_tool_runs_under_verls_tool_agent(compose, tokenizer):
    turns = [hermes("calculator", expression="6*7"), "The answer is 42."]
    output, server = tool_agent(compose, tokenizer, turns, load_all_tools(CALCULATOR, None))
    assert len(server.requests) == 2
    seen = tokenizer.decode(server.requests[1]["ids"])
    assert "<tool_response>\n42\n</tool_response>" in seen
    assert output.num_turns == 4
    assert 0 in output.response_mask


def test_mistake_in_a_call_is_an_answer_under_verls_tool_agent(compose, tokenizer):
    turns = [hermes("calculator", expression="1/0"), hermes("calculator", formula="1"), "I give up."]
    _, server = tool_agent(compose, tokenizer, turns, load_all_tools(CALCULATOR, None))
    seen = tokenizer.decode(server.requests[2]["ids"])
    assert seen.count("<tool_response>\nError: ") == 2
    assert "missing 'expression'" in seen


def test_our_tool_is_made_and_released_for_each_call_of_verls_tool_agent(compose, tokenizer, monkeypatch):
    monkeypatch.setattr(Memory, "life", [])
    turns = [hermes("memory", key="a"), hermes("memory", key="b"), "Done."]
    tool = VerlTool(ToolSpec.from_class(Memory))
    kwargs = {"memory": {"create_kwargs": {"a": "apple", "b": "pear"}}}
    output, server = tool_agent(compose, tokenizer, turns, [tool], kwargs)
    seen = tokenizer.decode(server.requests[2]["ids"])
    assert "apple" in seen
    assert "pear" in seen
    assert Memory.life == ["start", "close"] * 2
    assert output.extra_fields["tool_rewards"] == [0.5, 0.5]
    assert tool._sessions == {}


def test_instances_of_one_tool_are_apart():
    tool = VerlTool(ToolSpec.from_class(Memory))

    async def inside():
        first, _ = await tool.create(create_kwargs={"a": "1"})
        second, _ = await tool.create("named", create_kwargs={"a": "2"})
        assert second == "named"
        texts = [(await tool.execute(instance, {"key": "a"}))[0].text for instance in (first, second)]
        for instance in (first, second):
            await tool.release(instance)
        return texts

    assert asyncio.run(inside()) == ["1", "2"]


def test_result_tells_verl_reward_and_status():
    tool = VerlTool(ToolSpec.from_class(Memory))

    async def inside():
        instance, _ = await tool.create(create_kwargs={"a": "1"})
        try:
            return await tool.execute(instance, {"key": "a"})
        finally:
            await tool.release(instance)

    response, reward, metrics = asyncio.run(inside())
    assert (response.text, reward, metrics) == ("1", 0.5, {"status": "ok", "key": "a"})
