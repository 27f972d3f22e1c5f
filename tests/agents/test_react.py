"""The ReAct format: how a turn is read, and which corrections the policy sees."""

import json
import re
import time

import pytest

from agent_rl.agents.episode.format import Step
from agent_rl.agents.react import DEFAULT_EXAMPLES, NO_ACTION, ReactFormat, invalid_json
from agent_rl.errors import MalformedActionError
from agent_rl.settings import ReactSettings
from agent_rl.tools import ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.trajectory import StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn

QUERY = {"query": {"type": "string"}, "top_k": {"type": "integer"}}


def tool(name, properties):
    return ToolSpec(name, f"The {name}.", {"type": "object", "properties": properties}, Calculator)


TOOLS = [
    ToolSpec.from_class(Calculator),
    tool("search", QUERY),
    tool("sum", {"numbers": {"type": "array"}}),
    tool("sleep", {"seconds": {"type": "number"}}),
    tool("note", {"text": {"type": ["string", "null"]}}),
    tool("page", {"title": {"anyOf": [{"type": "string"}, {"type": "null"}]}}),
    tool("any", {"value": {}}),
    tool("free", {"value": True}),
    tool("clock", {}),
]


def call(name, **arguments):
    return ("call", name, arguments)


def answer(text):
    return ("answer", text)


BAD_JSON = "bad json"
NOTHING = "nothing"
SIX = call("calculator", expression="6*7")
ACTION = "Action: calculator\nAction Input: "

READ = {
    # actions
    "action": ('Action: calculator\nAction Input: {"expression": "6*7"}', SIX),
    "thought before it": ('Thought: I multiply.\nAction: calculator\nAction Input: {"expression": "6*7"}', SIX),
    "lower case": ('thought: x\naction: calculator\naction input: {"expression": "6*7"}', SIX),
    "spaces everywhere": ('  Action:   calculator   \n\tAction  Input:   {"expression": "6*7"}   ', SIX),
    "input on the next line": ('Action: calculator\nAction Input:\n{"expression": "6*7"}', SIX),
    "CRLF": ('Thought: x\r\nAction: calculator\r\nAction Input: {"expression": "6*7"}\r\n', SIX),
    "JSON with CRLF": (ACTION + '{\r\n"expression": "6*7"\r\n}', SIX),
    "line break in a JSON string": (ACTION + '{"expression": "6*\n7"}', call("calculator", expression="6*\n7")),
    "unicode": (ACTION + '{"expression": "6÷7 … 日本 🧮"}', call("calculator", expression="6÷7 … 日本 🧮")),
    "label inside a JSON string": (
        ACTION + '{"expression": "Final Answer: 1 Action: x"}',
        call("calculator", expression="Final Answer: 1 Action: x"),
    ),
    "empty object": (ACTION + "{}", call("calculator")),
    "unknown tool": ('Action: calc\nAction Input: {"expression": "6*7"}', call("calc", expression="6*7")),
    "unknown tool with broken JSON": ("Action: calc\nAction Input: {broken", call("calc")),
    "other case of the tool": ("Action: Calculator\nAction Input: 6*7", call("Calculator")),
    # fences
    "fence": (ACTION + '```\n{"expression": "6*7"}\n```', SIX),
    "json fence": (ACTION + '```json\n{"expression": "6*7"}\n```', SIX),
    "fence in one line": (ACTION + '```{"expression": "6*7"}```', SIX),
    "json fence in one line": (ACTION + '```json {"expression": "6*7"}```', SIX),
    "fenced bare input": (ACTION + "```python\n6*7\n```", SIX),
    "fence around nothing": (ACTION + "``````", BAD_JSON),
    "fence that does not close": (
        ACTION + '```json\n{"expression": "6*7"}',
        call("calculator", expression='```json\n{"expression": "6*7"}'),
    ),
    "text after the fence": (ACTION + "```\n{}\n```\nDone", call("calculator", expression="```\n{}\n```\nDone")),
    # inputs that are not objects
    "bare input": (ACTION + "6*7", SIX),
    "bare input of two lines": (ACTION + "6*\n7", call("calculator", expression="6*\n7")),
    "JSON string": (ACTION + '"6*7"', SIX),
    "number for text": (ACTION + "42", call("calculator", expression="42")),
    "true for text": (ACTION + "true", call("calculator", expression="true")),
    "bare text, text or null": ("Action: note\nAction Input: 12", call("note", text="12")),
    "bare text, alternatives": ("Action: page\nAction Input: 2.50", call("page", title="2.50")),
    "number for a number": ("Action: sleep\nAction Input: 1.5", call("sleep", seconds=1.5)),
    "infinity for a number": ("Action: sleep\nAction Input: Infinity", call("sleep", seconds="Infinity")),
    "list for a list": ("Action: sum\nAction Input: [1, 2]", call("sum", numbers=[1, 2])),
    "list for text": (ACTION + '["6*7"]', BAD_JSON),
    "broken list for a list": ("Action: sum\nAction Input: [1, 2", BAD_JSON),
    "bare input, two parameters": ("Action: search\nAction Input: weather", BAD_JSON),
    "bare input, no parameters": ("Action: clock\nAction Input: now", BAD_JSON),
    # broken JSON
    "missing brace": (ACTION + '{"expression": "6*7"', BAD_JSON),
    "text after the object": (ACTION + '{"expression": "6*7"} and then I see', BAD_JSON),
    "number beyond a float": (ACTION + '{"expression": 1e999}', BAD_JSON),
    "lone surrogate": (ACTION + r'{"expression": "\ud800"}', BAD_JSON),
    "nested 64 levels deep": (ACTION + '{"a": ' + "[" * 63 + "]" * 63 + "}", None),
    "nested 10000 levels deep": (ACTION + "[" * 10_000, BAD_JSON),
    "objects 10000 levels deep": (ACTION + '{"a":' * 10_000, BAD_JSON),
    "empty input": (ACTION, BAD_JSON),
    # actions that cannot be read
    "nothing": ("", NOTHING),
    "thought alone": ("Thought: I do not know.", NOTHING),
    "no input": ("Action: calculator", NOTHING),
    "thought between action and input": (
        'Action: calculator\nThought: x\nAction Input: {"expression": "6*7"}',
        NOTHING,
    ),
    "input alone": ('Action Input: {"expression": "6*7"}', NOTHING),
    "no name": ('Action:\nAction Input: {"expression": "6*7"}', NOTHING),
    "action in the middle of a line": ('So Action: calculator\nAction Input: {"expression": "6*7"}', NOTHING),
    "action answered by the policy": ("Action: calculator\nFinal Answer: 42", NOTHING),
    "replacement characters": ("\ufffd\ufffd\x00\x07", NOTHING),
    # several of them: the first counts
    "two actions": (ACTION + '{"expression": "6*7"}\n' + ACTION + '{"expression": "1"}', SIX),
    "two inputs": (ACTION + '{"expression": "6*7"}\nAction Input: {"expression": "1"}', SIX),
    "answer after the action": (ACTION + '{"expression": "6*7"}\nFinal Answer: 42', SIX),
    "action after the answer": ("Final Answer: 42\n" + ACTION + "6*7", answer("42")),
    "two answers": ("Final Answer: 42\nFinal Answer: 43", answer("42")),
    # observations that the policy writes itself
    "observation after the input": (ACTION + '{"expression": "6*7"}\nObservation: 42\nFinal Answer: 42', SIX),
    "observation after the answer": ("Final Answer: 42\nObservation: right", answer("42")),
    "observation before the answer": ("Observation: 42\nFinal Answer: 42", NOTHING),
    "observation inside a line": ("Thought: my Observation: x\nFinal Answer: 42", answer("42")),
    # answers
    "answer": ("Final Answer: 42", answer("42")),
    "answer with spaces": ("  Final  Answer :  42  \n", answer("42")),
    "answer of many lines": ("Final Answer: one\n\ntwo", answer("one\n\ntwo")),
    "empty answer": ("Final Answer:", answer("")),
    "answer that looks like JSON": ('Final Answer: {"a": 1}', answer('{"a": 1}')),
    "answer in the middle of a line": ("I know. Final Answer: 42", NOTHING),
    # size
    "million characters of answer": ("Final Answer: " + "x" * 1_000_000, answer("x" * 1_000_000)),
    "million characters of input": (ACTION + "1" * 1_000_000, call("calculator", expression="1" * 1_000_000)),
    "million spaces in the name": (
        "Action: a" + " " * 1_000_000 + "b\nAction Input: {}",
        call("a" + " " * 1_000_000 + "b"),
    ),
    "million spaces before a label": (" " * 1_000_000 + "x", NOTHING),
    "million spaces before the colon": ("Action" + " " * 1_000_000 + "x", NOTHING),
    "million labels": ("Thought:\n" * 110_000, NOTHING),
    "fence of a million spaces": (ACTION + "```" + " " * 1_000_000 + "x", None),
}


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ)
def test_turn_is_read_as(text, expected):
    started = time.perf_counter()
    try:
        step = ReactFormat().parse(text, TOOLS)
        got = answer(step.answer) if not step.calls else call(step.calls[0].name, **step.calls[0].arguments)
        turns = [Turn(text="", calls=step.calls)]
        stored = Trajectory(prompt=[], stop_reason=StopReason.MAX_TURNS, turns=turns, answer=step.answer)
        assert Trajectory.from_json(stored.to_json()) == stored
    except MalformedActionError as error:
        got = {NO_ACTION: NOTHING, invalid_json("calculator"): BAD_JSON}.get(str(error), str(error))
        assert "Action Input is not valid JSON arguments for" in got or got in (NOTHING, BAD_JSON)
        got = NOTHING if got == NOTHING else BAD_JSON
    assert time.perf_counter() - started < 10, "reading a turn must take linear time"
    if expected is not None:
        assert got == expected


def test_prompt_gets_a_system_message_that_describes_the_tools():
    (system, user) = ReactFormat().prompt([{"role": "user", "content": "6*7?"}], TOOLS[:2])
    assert user == {"role": "user", "content": "6*7?"}
    assert system["role"] == "system"
    for spec in TOOLS[:2]:
        assert f"{spec.name}: {spec.description} Parameters: {json.dumps(spec.parameters)}" in system["content"]
    assert "one of calculator, search\n" in system["content"]
    assert "{tool" not in system["content"]


def test_instructions_may_hold_braces():
    (system,) = ReactFormat('Write {"expression": "..."} for {tool_names}').prompt([], TOOLS[:1])
    assert system["content"] == 'Write {"expression": "..."} for calculator'
    assert ReactFormat("[{tools}][{tool_names}]").prompt([], [])[0]["content"] == "[][]"


def test_observation_has_a_line_for_each_result():
    results = [
        ToolResult("", "calculator", "42"),
        ToolResult("", "search", "Error: no such page", ToolStatus.ERROR),
    ]
    assert ReactFormat().observation(results) == "Observation: 42\nObservation: Error: no such page"


@pytest.mark.parametrize("role", ["user", "tool"])
def test_observation_is_one_message_in_the_configured_role(role):
    reply = ReactFormat(observation_role=role).reply("Observation: 42", [ToolResult("", "calculator", "42")])
    assert reply == [{"role": role, "content": "Observation: 42"}]


# Strict reading


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (
            'Thought: x\nAction: calculator\nAction Input: {"expression": "6*7"}',
            Step([ToolCall("calculator", {"expression": "6*7"})]),
        ),
        (
            'Action: calculator\nAction Input: {"expression":\n"6*7"}\n',
            Step([ToolCall("calculator", {"expression": "6*7"})]),
        ),
        ("Action: clock\nAction Input: {}", Step([ToolCall("clock", {})])),
        ("Thought: a\nb\n\nFinal Answer: 42\nor so", Step(answer="42\nor so")),
        ("Final Answer: 42", Step(answer="42")),
    ],
)
def test_strict_reading_takes_the_two_forms(text, step):
    assert ReactFormat(strict=True).parse(text, TOOLS) == step


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sure!\nFinal Answer: 42",
        "final answer: 42",
        "Thought: x",
        "Final Answer: 42\nThought: x",
        'Action: calculator\nAction Input: {"expression": "1"}\nFinal Answer: 1',
        'action: calculator\naction input: {"expression": "1"}',
        'Action: calculator\nAction  Input: {"expression": "1"}',
        "Action: calculator\nAction Input: 6*7",
        'Action: calculator\nAction Input: ```json\n{"expression": "1"}\n```',
        'Action: calculator\nAction Input: {"expression": "1"} and so on',
        "Action: unknown\nAction Input: broken",
    ],
)
def test_strict_reading_takes_nothing_else(text):
    with pytest.raises(MalformedActionError):
        ReactFormat(strict=True).parse(text, TOOLS)


# Few-shot prompts


def test_examples_follow_the_instructions():
    (system,) = ReactFormat("Use {tool_names}.", examples=["Question: a {tools}", "Question: b"]).prompt([], TOOLS[:1])
    start, _, rest = system["content"].partition("\n\n")
    assert start == "Use calculator."
    assert rest.endswith("\n\nQuestion: a {tools}\n\nQuestion: b")


def test_our_examples_are_to_the_letter():
    for example in DEFAULT_EXAMPLES:
        question, *parts = re.split(r"\n(?=Thought:)|\nObservation: .*\n(?=Thought:)", example)
        assert question.startswith("Question: ")
        steps = [ReactFormat(strict=True).parse(part, []) for part in parts]
        assert [bool(step.calls) for step in steps] == [True] * (len(steps) - 1) + [False]


def test_settings_choose_examples_and_reading():
    react = ReactSettings(examples=("default", "mine"), parsing="strict")
    form = ReactFormat.configured(react)
    (system,) = form.prompt([], TOOLS)
    assert all(example in system["content"] for example in (*DEFAULT_EXAMPLES, "mine"))
    with pytest.raises(MalformedActionError):
        form.parse("final answer: 42", TOOLS)
    assert ReactFormat.configured(ReactSettings()).prompt([], TOOLS) == ReactFormat().prompt([], TOOLS)
    assert ReactFormat.configured(ReactSettings()).parse("final answer: 42", TOOLS) == Step(answer="42")
