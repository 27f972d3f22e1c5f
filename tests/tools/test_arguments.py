"""Arguments that are made to take long: they cost their own call its time, and nobody else."""

import asyncio
import gc
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agent_rl.errors import InvalidArgumentsError
from agent_rl.tools import Tool, ToolSession, ToolSpec
from agent_rl.tools.arguments import MAX_SIZE, check_arguments, schema_problem
from agent_rl.tools.bounded_schema import bounded
from agent_rl.trajectory import ToolCall, ToolStatus

LIMIT_S = 1.0
OBJECT = {"type": "object"}
LISTS = {"type": "array", "items": {"$ref": "#/$defs/nest"}}
NEST = {"nest": {"anyOf": [{**LISTS, "minItems": 4}, {**LISTS, "minItems": 5}]}}
SCHEMAS = {
    "unique": {"values": {"type": "array", "uniqueItems": True}},
    "pattern": {"text": {"type": "string", "pattern": r"^(a|aa)+$"}},
    "choice": {"text": {"enum": ["apples and pears" * 100] * 50}},
    "numbers": {"values": {"type": "array", "items": {"type": "integer"}}},
    "text": {"text": {"type": "string"}},
    "tree": {"left": {"$ref": "#"}, "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "closed": {"values": {"type": "object", "patternProperties": {"^(x|xx)+$": {}}, "additionalProperties": False}},
    "nest": {"value": {"$ref": "#/$defs/nest"}},
    "dense": {"values": {"type": "object", "patternProperties": {"^(x|xx)+$": {"type": "integer"}}}},
}
CALLS = [
    ("unique", {"values": [{"n": n} for n in range(12_000)]}, {ToolStatus.OK}),
    ("unique", {"values": [[n, [n]] for n in range(12_000)]}, {ToolStatus.OK}),
    ("pattern", {"text": "a" * 60 + "!"}, {ToolStatus.TIMEOUT}),
    ("dense", {"values": {"x" * 60 + "!": 1}}, {ToolStatus.TIMEOUT}),
    ("closed", {"values": {"x" * 60 + "!": 1}}, {ToolStatus.TIMEOUT}),
    ("nest", {"value": json.loads("[" * 40 + "]" * 40)}, {ToolStatus.TIMEOUT}),
    ("choice", {"text": "pears and apples" * 20_000}, {ToolStatus.INVALID_ARGUMENTS}),
    ("numbers", {"values": ["1"] * 9_000}, {ToolStatus.OK}),
    ("numbers", {"values": ["x"] * 9_000}, {ToolStatus.INVALID_ARGUMENTS}),
    ("numbers", {"values": [1] * MAX_SIZE}, {ToolStatus.INVALID_ARGUMENTS}),
    ("text", {"text": "x" * (MAX_SIZE + 1)}, {ToolStatus.INVALID_ARGUMENTS}),
    ("text", {"text": "x" * (MAX_SIZE - 100)}, {ToolStatus.OK}),
]


def specs() -> list[ToolSpec]:
    class Answering(Tool):
        name = "x"
        description = "x"
        parameters = OBJECT

        async def call(self, arguments):
            return json.dumps(arguments)[:200]

    return [
        ToolSpec(name, "x", {**OBJECT, "properties": properties, "$defs": NEST}, Answering, timeout_s=LIMIT_S)
        for name, properties in SCHEMAS.items()
    ]


def run(*calls):
    """Results, and the most seconds of its thread that the event loop has computed without a pause.

    They leave out other load of the machine, and garbage of other tests is not collected meanwhile.
    """

    async def main():
        longest, last = 0.0, time.thread_time()

        async def tick():
            nonlocal longest, last
            while True:
                await asyncio.sleep(0.01)
                longest, last = max(longest, time.thread_time() - last), time.thread_time()

        async with ToolSession(specs(), default_timeout_s=LIMIT_S) as session:
            last = time.thread_time()
            ticking = asyncio.create_task(tick())
            results = await session.run(
                [ToolCall(id=str(n), name=name, arguments=given) for n, (name, given) in enumerate(calls)]
            )
            ticking.cancel()
        return results, longest

    gc.disable()
    try:
        return asyncio.run(main())
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arguments", "statuses"), CALLS, ids=[str(n) for n in range(len(CALLS))])
def test_a_check_that_takes_long_is_ended_and_blocks_nobody(name, arguments, statuses):
    started = time.process_time()
    (result,), longest_s = run((name, arguments))
    assert result.status in statuses, result.text[:200]
    assert result.seconds < LIMIT_S + 30  # a busy machine delays it
    assert longest_s < 0.5
    assert time.process_time() - started < LIMIT_S + 30  # without an end, the checks would compute for years
    assert len(result.text) < 2000


@pytest.mark.slow
def test_the_others_of_a_turn_are_answered():
    slow = ("pattern", {"text": "a" * 60 + "!"})
    results, _ = run(slow, ("text", {"text": "x"}), slow, ("unique", {"values": [1, 2]}), ("pattern", {"text": "aaa"}))
    timeout, fine = ToolStatus.TIMEOUT, ToolStatus.OK
    assert [result.status for result in results] == [timeout, fine, timeout, fine, fine]
    assert "did not finish within 1 s: checking its arguments takes too long" in results[0].text


def test_arguments_are_coerced_and_explained():
    results, _ = run(
        ("unique", {"values": "[1, 2]"}),
        ("unique", {"values": [1, 1]}),
        ("pattern", {"text": "b"}),
        ("tree", {"left": {"right": None}}),
        ("tree", {"left": {"left": 3}}),
    )
    assert [result.status.value for result in results] == ["ok", *["invalid_arguments"] * 2, "ok", "invalid_arguments"]
    assert results[0].text == '{"values": [1, 2]}'
    assert "argument 'values': expected uniqueItems" in results[1].text
    assert "argument 'text': expected pattern" in results[2].text
    assert "argument 'left.left': expected object, got integer 3" in results[4].text


def test_patterns_of_javascript_are_used():
    letters = {"type": "string", "pattern": r"^\p{L}+(?<end>!)$"}
    assert schema_problem({**OBJECT, "properties": {"a": letters}}) is None
    validator = bounded()({**OBJECT, "properties": {"a": letters}})
    assert check_arguments("t", validator, {"a": "\u00e9t\u00e9!"}) == {"a": "\u00e9t\u00e9!"}
    with pytest.raises(InvalidArgumentsError, match="'a': expected pattern"):
        check_arguments("t", validator, {"a": "1!"})
    for wrong in ("(", 5):
        assert schema_problem({**OBJECT, "properties": {"a": {"pattern": wrong}}})[0].startswith("not a JSON schema")


def test_names_that_match_a_pattern_are_no_additional_ones():
    results, _ = run(("closed", {"values": {"xxx": 1}}), ("closed", {"values": {"xxx": 1, "y": 2}}))
    assert [result.status.value for result in results] == ["ok", "invalid_arguments"]


VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, -0.0, 0.5, 1e22, 10**22, "", "1", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(VALUES, max_size=5))
def test_unique_items_are_those_of_jsonschema(items):
    schema = {"uniqueItems": True}
    assert bounded()(schema).is_valid(items) is Draft202012Validator(schema).is_valid(items)


def test_unique_items_are_never_compared_in_pairs(monkeypatch):
    def compare(items):
        raise AssertionError("quadratic")

    monkeypatch.setattr("jsonschema._keywords.uniq", compare)
    objects = [{"n": number} for number in range(100)]
    validator = bounded()({**OBJECT, "properties": SCHEMAS["unique"]})
    assert check_arguments("f", validator, {"values": objects}) == {"values": objects}
    with pytest.raises(InvalidArgumentsError, match="'values': expected uniqueItems"):
        check_arguments("f", validator, {"values": [*objects, {"n": 1.0}]})
