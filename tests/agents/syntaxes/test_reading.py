"""JSON that can be stored again, and values by the tool's schema."""

import contextlib

import pytest

from agent_rl.agents.episode.format import spoken
from agent_rl.agents.syntaxes import SYNTAXES
from agent_rl.agents.syntaxes.reading import call_from, parameter_types, read_json, without_ends
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec


@pytest.mark.parametrize("raw", ["", "{", "NaN", "[Infinity]", '"\\ud800"', "[" * 70 + "]" * 70, "[" * 10**5, "1 2"])
def test_json_that_could_not_be_stored_again_is_refused(raw):
    with pytest.raises(ValueError, match=r"."):
        read_json(raw)


@pytest.mark.parametrize(
    ("raw", "value"),
    [('{"a": "b\nc"}', {"a": "b\nc"}), (" [1, 2.5, null] ", [1, 2.5, None]), ("[" * 9 + "]" * 9, None)],
)
def test_json_is_read(raw, value):
    assert value is None or read_json(raw) == value


def test_types_are_those_of_all_alternatives():
    parameters = {"a": {"anyOf": [{"type": "integer"}, {"oneOf": [{"type": ["null", "string"]}]}]}, "b": {}, "c": True}
    spec = ToolSpec("t", "d", {"type": "object", "properties": parameters}, object)
    assert parameter_types("t", [spec]) == {"a": {"integer", "null", "string"}, "b": set(), "c": set()}
    assert parameter_types("u", [spec]) == {}


@pytest.mark.parametrize("value", [None, 3, [], {}, {"name": ""}, {"name": 1}, {"name": "f", "arguments": 3}])
def test_value_that_is_no_call_is_malformed(value):
    with pytest.raises(MalformedActionError):
        call_from(value, "arguments")


@pytest.mark.parametrize(
    ("text", "rest"),
    [("42<|im_end|>", "42"), (" 42 <|a|>\n<|b|>\n", "42"), ("<|a|> 42", "<|a|> 42"), ("a | b", "a | b"), ("", "")],
)
def test_tokens_that_end_a_turn_are_no_part_of_the_answer(text, rest):
    assert without_ends(text) == rest


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize(
    "piece", [" ", "\n", "<|", "<tool_call>", "<think>", "<|message|>", "[TOOL_CALLS]", "{", "<|im_end|>", "x"]
)
def test_long_nonsense_is_read_in_time(syntax, piece):
    """Within the test's own limit, where a quadratic reader would take minutes."""
    text = spoken(piece * 30_000)
    with contextlib.suppress(MalformedActionError):
        SYNTAXES[syntax].read(text, [])


@pytest.mark.parametrize(
    ("syntax", "begin", "piece", "end"),
    [
        ("qwen3_coder", "<tool_call>", "<function=a>", "</tool_call>"),
        ("qwen3_coder", "<tool_call><function=a>", "<parameter=a>", "</function></tool_call>"),
        ("glm", "<tool_call>a", "<arg_key>a</arg_key><arg_value>", "</tool_call>"),
        ("glm", "<tool_call>a", "<arg_key>", "</tool_call>"),
        ("minimax", "<minimax:tool_call>", '<invoke name="a">', "</minimax:tool_call>"),
        ("kimi", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_calls_section_end|>"),
        ("gemma4", "<|tool_call>call:a{", "a:[", "}<tool_call|>"),
    ],
)
def test_long_nonsense_in_a_call_is_refused_in_time(syntax, begin, piece, end):
    with pytest.raises(MalformedActionError):
        SYNTAXES[syntax].read(begin + piece * 20_000 + end, [])
