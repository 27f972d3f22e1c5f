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
    "thought of many lines": (
        'Thought: one\ntwo\n\nthree\nAction: calculator\nAction Input: {"expression": "6*7"}',
        SIX,
    ),
    "text without a label before it": ('Sure!\n\nAction: calculator\nAction Input: {"expression": "6*7"}', SIX),
    "end of line": (ACTION + '{"expression": "6*7"}\n\n', SIX),
    "lower case": ('thought: x\naction: calculator\naction input: {"expression": "6*7"}', SIX),
    "upper case": ('ACTION: calculator\nACTION INPUT: {"expression": "6*7"}', SIX),
    "no space after the colon": ('Action:calculator\nAction Input:{"expression":"6*7"}', SIX),
    "spaces before the colon": ('Action : calculator\nAction Input : {"expression": "6*7"}', SIX),
    "spaces everywhere": ('  Action:   calculator   \n\tAction  Input:   {"expression": "6*7"}   ', SIX),
    "blank line between": ('Action: calculator\n\nAction Input: {"expression": "6*7"}', SIX),
    "name on the next line": ('Action:\ncalculator\nAction Input: {"expression": "6*7"}', SIX),
    "input on the next line": ('Action: calculator\nAction Input:\n{"expression": "6*7"}', SIX),
    "CRLF": ('Thought: x\r\nAction: calculator\r\nAction Input: {"expression": "6*7"}\r\n', SIX),
    "CR": ('Thought: x\rAction: calculator\rAction Input: {"expression": "6*7"}', SIX),
    "multi-line JSON": (ACTION + '{\n  "expression":\n    "6*7"\n}', SIX),
    "JSON with CRLF": (ACTION + '{\r\n"expression": "6*7"\r\n}', SIX),
    "nested JSON": (ACTION + '{"a": {"b": [1, {"c": null}]}}', call("calculator", a={"b": [1, {"c": None}]})),
    "escapes": (ACTION + r'{"expression": "6\u002a7"}', SIX),
    "escaped line break": (ACTION + r'{"expression": "6*\n7"}', call("calculator", expression="6*\n7")),
    "line break in a JSON string": (ACTION + '{"expression": "6*\n7"}', call("calculator", expression="6*\n7")),
    "tab in a JSON string": (ACTION + '{"expression": "6\t*7"}', call("calculator", expression="6\t*7")),
    "unicode": (ACTION + '{"expression": "6÷7 … 日本 🧮"}', call("calculator", expression="6÷7 … 日本 🧮")),
    "escaped surrogate pair": (ACTION + r'{"expression": "\ud83e\uddee"}', call("calculator", expression="🧮")),
    "label inside a JSON string": (
        ACTION + '{"expression": "Final Answer: 1 Action: x"}',
        call("calculator", expression="Final Answer: 1 Action: x"),
    ),
    "empty object": (ACTION + "{}", call("calculator")),
    "repeated key": (ACTION + '{"expression": "1", "expression": "6*7"}', SIX),
    "unknown tool": ('Action: calc\nAction Input: {"expression": "6*7"}', call("calc", expression="6*7")),
    "unknown tool with broken JSON": ("Action: calc\nAction Input: {broken", call("calc")),
    "other case of the tool": ("Action: Calculator\nAction Input: 6*7", call("Calculator")),
    "quoted tool": (
        'Action: `calculator`\nAction Input: {"expression": "6*7"}',
        call("`calculator`", expression="6*7"),
    ),
    "two arguments": ('Action: search\nAction Input: {"query": "x", "top_k": 2}', call("search", query="x", top_k=2)),
    "no arguments": ("Action: clock\nAction Input: {}", call("clock")),
    # fences
    "fence": (ACTION + '```\n{"expression": "6*7"}\n```', SIX),
    "json fence": (ACTION + '```json\n{"expression": "6*7"}\n```', SIX),
    "fence on the next line": (ACTION + '\n```json\n{"expression": "6*7"}\n```\n', SIX),
    "fence in one line": (ACTION + '```{"expression": "6*7"}```', SIX),
    "json fence in one line": (ACTION + '```json {"expression": "6*7"}```', SIX),
    "fence with CRLF": (ACTION + '```json\r\n{"expression": "6*7"}\r\n```', SIX),
    "fenced bare input": (ACTION + "```python\n6*7\n```", SIX),
    "fence around nothing": (ACTION + "``````", BAD_JSON),
    "fence that does not close": (
        ACTION + '```json\n{"expression": "6*7"}',
        call("calculator", expression='```json\n{"expression": "6*7"}'),
    ),
    "text after the fence": (ACTION + "```\n{}\n```\nDone", call("calculator", expression="```\n{}\n```\nDone")),
    # inputs that are not objects
    "bare input": (ACTION + "6*7", SIX),
    "bare input with spaces": (ACTION + "  6 * 7  ", call("calculator", expression="6 * 7")),
    "bare input of two lines": (ACTION + "6*\n7", call("calculator", expression="6*\n7")),
    "JSON string": (ACTION + '"6*7"', SIX),
    "number for text": (ACTION + "42", call("calculator", expression="42")),
    "exact number for text": (ACTION + "0.10", call("calculator", expression="0.10")),
    "true for text": (ACTION + "true", call("calculator", expression="true")),
    "NaN for text": (ACTION + "NaN", call("calculator", expression="NaN")),
    "bare text, text or null": ("Action: note\nAction Input: 12", call("note", text="12")),
    "number for a number": ("Action: sleep\nAction Input: 1.5", call("sleep", seconds=1.5)),
    "text for a number": ("Action: sleep\nAction Input: long", call("sleep", seconds="long")),
    "infinity for a number": ("Action: sleep\nAction Input: Infinity", call("sleep", seconds="Infinity")),
    "list for a list": ("Action: sum\nAction Input: [1, 2]", call("sum", numbers=[1, 2])),
    "number for anything": ("Action: any\nAction Input: 3", call("any", value=3)),
    "text for anything": ("Action: free\nAction Input: three", call("free", value="three")),
    "list for text": (ACTION + '["6*7"]', BAD_JSON),
    "list for anything": ("Action: any\nAction Input: [3]", BAD_JSON),
    "broken list for a list": ("Action: sum\nAction Input: [1, 2", BAD_JSON),
    "bare input, two parameters": ("Action: search\nAction Input: weather", BAD_JSON),
    "bare input, no parameters": ("Action: clock\nAction Input: now", BAD_JSON),
    # broken JSON
    "missing brace": (ACTION + '{"expression": "6*7"', BAD_JSON),
    "single quotes": (ACTION + "{'expression': '6*7'}", BAD_JSON),
    "trailing comma": (ACTION + '{"expression": "6*7",}', BAD_JSON),
    "text after the object": (ACTION + '{"expression": "6*7"} and then I see', BAD_JSON),
    "two objects": (ACTION + '{"expression": "6*7"}\n{"expression": "1"}', BAD_JSON),
    "NaN inside": (ACTION + '{"expression": NaN}', BAD_JSON),
    "number beyond a float": (ACTION + '{"expression": 1e999}', BAD_JSON),
    "number of 5000 digits": (ACTION + '{"expression": ' + "9" * 5000 + "}", BAD_JSON),
    "lone surrogate": (ACTION + r'{"expression": "\ud800"}', BAD_JSON),
    "lone surrogate in a key": (ACTION + r'{"\udfff": 1}', BAD_JSON),
    "nested 64 levels deep": (ACTION + '{"a": ' + "[" * 63 + "]" * 63 + "}", None),
    "nested 300 levels deep": (ACTION + '{"a": ' + "[" * 300 + "]" * 300 + "}", BAD_JSON),
    "nested 10000 levels deep": (ACTION + "[" * 10_000, BAD_JSON),
    "closed nesting 10000 levels deep": (ACTION + "[" * 10_000 + "]" * 10_000, BAD_JSON),
    "objects 10000 levels deep": (ACTION + '{"a":' * 10_000, BAD_JSON),
    "empty input": (ACTION, BAD_JSON),
    # actions that cannot be read
    "nothing": ("", NOTHING),
    "spaces": (" \n\t\r\n ", NOTHING),
    "thought alone": ("Thought: I do not know.", NOTHING),
    "free text": ("The answer is 42.", NOTHING),
    "no input": ("Action: calculator", NOTHING),
    "no input, more text": ("Action: calculator\n6*7", NOTHING),
    "thought between action and input": (
        'Action: calculator\nThought: x\nAction Input: {"expression": "6*7"}',
        NOTHING,
    ),
    "text between action and input": ('Action: calculator\nI use it.\nAction Input: {"expression": "6*7"}', NOTHING),
    "input alone": ('Action Input: {"expression": "6*7"}', NOTHING),
    "input before the action": ('Action Input: {"expression": "6*7"}\nAction: calculator', NOTHING),
    "no name": ('Action:\nAction Input: {"expression": "6*7"}', NOTHING),
    "action in the middle of a line": ('So Action: calculator\nAction Input: {"expression": "6*7"}', NOTHING),
    "action without a colon": ('Action calculator\nAction Input: {"expression": "6*7"}', NOTHING),
    "bold labels": ('**Action:** calculator\n**Action Input:** {"expression": "6*7"}', NOTHING),
    "action answered by the policy": ("Action: calculator\nFinal Answer: 42", NOTHING),
    "replacement characters": ("\ufffd\ufffd\x00\x07", NOTHING),
    # several of them: the first counts
    "two actions": (ACTION + '{"expression": "6*7"}\n' + ACTION + '{"expression": "1"}', SIX),
    "two inputs": (ACTION + '{"expression": "6*7"}\nAction Input: {"expression": "1"}', SIX),
    "thought after the input": (ACTION + '{"expression": "6*7"}\nThought: it is 42', SIX),
    "answer after the action": (ACTION + '{"expression": "6*7"}\nFinal Answer: 42', SIX),
    "action after the answer": ("Final Answer: 42\n" + ACTION + "6*7", answer("42")),
    "two answers": ("Final Answer: 42\nFinal Answer: 43", answer("42")),
    "thought after the answer": ("Final Answer: 42\nThought: sure", answer("42")),
    # observations that the policy writes itself
    "observation after the input": (ACTION + '{"expression": "6*7"}\nObservation: 42\nFinal Answer: 42', SIX),
    "observation after bare input": (ACTION + "6*7\nobservation: 42", SIX),
    "observation after the answer": ("Final Answer: 42\nObservation: right", answer("42")),
    "observation before the answer": ("Observation: 42\nFinal Answer: 42", NOTHING),
    "observation before the action": ("Thought: x\nObservation: 42\n" + ACTION + "6*7", NOTHING),
    "observation inside a line": ("Thought: my Observation: x\nFinal Answer: 42", answer("42")),
    # answers
    "answer": ("Final Answer: 42", answer("42")),
    "answer after a thought": ("Thought: The tool says 42.\nFinal Answer: 42", answer("42")),
    "lower-case answer": ("final answer: 42", answer("42")),
    "answer with spaces": ("  Final  Answer :  42  \n", answer("42")),
    "answer with CRLF": ("Thought: x\r\nFinal Answer: 42\r\n", answer("42")),
    "answer on the next line": ("Final Answer:\n42", answer("42")),
    "answer of many lines": ("Final Answer: one\n\ntwo", answer("one\n\ntwo")),
    "answer in unicode": ("Final Answer: größer als π — 答え", answer("größer als π — 答え")),
    "empty answer": ("Final Answer:", answer("")),
    "answer of spaces": ("Final Answer:   \n ", answer("")),
    "answer that looks like JSON": ('Final Answer: {"a": 1}', answer('{"a": 1}')),
    "answer without a colon": ("Final Answer 42", NOTHING),
    "answer in the middle of a line": ("I know. Final Answer: 42", NOTHING),
    "answer of another name": ("Answer: 42", NOTHING),
    # size
    "million characters before": ("x" * 1_000_000 + "\nFinal Answer: 42", answer("42")),
    "million characters of answer": ("Final Answer: " + "x" * 1_000_000, answer("x" * 1_000_000)),
    "million characters of input": (ACTION + "1" * 1_000_000, call("calculator", expression="1" * 1_000_000)),
    "million spaces in the name": (
        "Action: a" + " " * 1_000_000 + "b\nAction Input: {}",
        call("a" + " " * 1_000_000 + "b"),
    ),
    "million spaces before a label": (" " * 1_000_000 + "x", NOTHING),
    "million spaces before the colon": ("Action" + " " * 1_000_000 + "x", NOTHING),
    "million line breaks": ("\n" * 1_000_000, NOTHING),
    "million labels": ("Thought:\n" * 110_000, NOTHING),
    "fence of a million spaces": (ACTION + "```" + " " * 1_000_000 + "x", None),
    "fence of a million line breaks": (ACTION + "```" + "\n" * 1_000_000 + "x", None),
    "million characters of nothing": ("\u2028\x85\x00" * 333_333, NOTHING),
}


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ)
def test_turn_is_read_as(text, expected):
    started = time.perf_counter()
    try:
        step = ReactFormat().parse(text, TOOLS)
        got = answer(step.answer) if not step.calls else call(step.calls[0].name, **step.calls[0].arguments)
    except MalformedActionError as error:
        got = {NO_ACTION: NOTHING, invalid_json("calculator"): BAD_JSON}.get(str(error), str(error))
        assert "Action Input is not valid JSON arguments for" in got or got in (NOTHING, BAD_JSON)
        got = NOTHING if got == NOTHING else BAD_JSON
    assert time.perf_counter() - started < 10, "reading a turn must take linear time"
    if expected is not None:
        assert got == expected


def test_table_is_large():
    assert len(READ) >= 80


@pytest.mark.parametrize("name", [name for name, (_, expected) in READ.items() if expected not in (NOTHING, BAD_JSON)])
def test_whatever_is_read_can_be_stored_as_json(name):
    step = ReactFormat().parse(READ[name][0], TOOLS)
    turn = Turn(text="", calls=step.calls)
    trajectory = Trajectory(prompt=[], stop_reason=StopReason.MAX_TURNS, turns=[turn], answer=step.answer)
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


def test_prompt_gets_a_system_message_that_describes_the_tools():
    (system, user) = ReactFormat().prompt([{"role": "user", "content": "6*7?"}], TOOLS[:2])
    assert user == {"role": "user", "content": "6*7?"}
    assert system["role"] == "system"
    for spec in TOOLS[:2]:
        assert f"{spec.name}: {spec.description} Parameters: {json.dumps(spec.parameters)}" in system["content"]
    assert "one of calculator, search\n" in system["content"]
    assert "{tool" not in system["content"]


def test_system_message_of_the_row_comes_first():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]
    prompt = ReactFormat("Tools: {tool_names}").prompt(messages, TOOLS[:2])
    assert prompt == [
        {"role": "system", "content": "Be brief.\n\nTools: calculator, search"},
        {"role": "user", "content": "?"},
    ]
    assert messages[0]["content"] == "Be brief.", "the row's own messages stay as they are"


def test_empty_instructions_leave_the_prompt_alone():
    messages = [{"role": "user", "content": "?"}]
    assert ReactFormat("").prompt(messages, TOOLS) == messages


def test_instructions_may_hold_braces():
    (system,) = ReactFormat('Write {"expression": "..."} for {tool_names}').prompt([], TOOLS[:1])
    assert system["content"] == 'Write {"expression": "..."} for calculator'


def test_instructions_without_tools():
    (system, _) = ReactFormat("[{tools}][{tool_names}]").prompt([{"role": "user", "content": "?"}], [])
    assert system["content"] == "[][]"


def test_chat_template_gets_no_tools():
    assert ReactFormat().template_tools(TOOLS) == []


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


def test_correction_says_what_was_expected():
    with pytest.raises(MalformedActionError) as caught:
        ReactFormat().parse("hm", TOOLS)
    assert ReactFormat().correction(caught.value) == f"Observation: Error: {NO_ACTION}"


def test_call_without_known_tool_is_left_to_the_session():
    assert ReactFormat().parse(ACTION + "6*7", []).calls == [ToolCall("calculator", {})]


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
        "42",
        "Sure!\nFinal Answer: 42",
        "final answer: 42",
        "Thought: x",
        "Thought: x\nThought: y\nFinal Answer: 42",
        "Final Answer: 42\nThought: x",
        'Action: calculator\nAction Input: {"expression": "1"}\nFinal Answer: 1',
        'Action: calculator\nAction Input: {"expression": "1"}\nAction: clock\nAction Input: {}',
        'action: calculator\naction input: {"expression": "1"}',
        'Action : calculator\nAction Input : {"expression": "1"}',
        'Action: calculator\nAction  Input: {"expression": "1"}',
        "Action: calculator\nAction Input: 6*7",
        'Action: calculator\nAction Input: ```json\n{"expression": "1"}\n```',
        'Action: calculator\nAction Input: {"expression": "1"} and so on',
        "Action: sum\nAction Input: [1, 2]",
        "Action: unknown\nAction Input: broken",
        "Action:\nAction Input: {}",
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


def test_examples_may_stand_alone():
    (system, _) = ReactFormat("", examples=["Question: a"]).prompt([{"role": "user", "content": "?"}], TOOLS)
    assert system["content"].endswith("\n\nQuestion: a")


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
