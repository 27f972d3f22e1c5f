"""Arguments that are made to take long: they cost their own call its time, and nobody else."""

import asyncio
import gc
import json
import time

import pytest

from agent_rl.tools import Tool, ToolSession, ToolSpec
from agent_rl.tools.argument_check import MAX_SIZE
from agent_rl.trajectory import ToolCall, ToolStatus

LIMIT_S = 1.0
OBJECT = {"type": "object"}
SCHEMAS = {
    "unique": {"values": {"type": "array", "uniqueItems": True}},
    "pattern": {"text": {"type": "string", "pattern": r"^(a+)+$"}},
    "choice": {"text": {"enum": ["apples and pears" * 100] * 50}},
    "numbers": {"values": {"type": "array", "items": {"type": "integer"}}},
    "text": {"text": {"type": "string"}},
    "tree": {"left": {"$ref": "#"}, "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "dense": {"values": {"type": "object", "patternProperties": {"(x+x+)+y": {"type": "integer"}}}},
}
CALLS = [
    ("unique", {"values": [{"n": n} for n in range(12_000)]}, {ToolStatus.OK}),
    ("unique", {"values": [[n, [n]] for n in range(12_000)]}, {ToolStatus.OK}),
    ("pattern", {"text": "a" * 40 + "!"}, {ToolStatus.TIMEOUT}),
    ("dense", {"values": {"x" * 40: 1}}, {ToolStatus.TIMEOUT}),
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
        ToolSpec(name, "x", {**OBJECT, "properties": properties}, Answering, timeout_s=LIMIT_S)
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
            await session.run([ToolCall(id="0", name="pattern", arguments={"text": "a"})])  # a process is there
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
    assert result.seconds < LIMIT_S + 2
    assert longest_s < 0.5
    assert time.process_time() - started < LIMIT_S
    assert len(result.text) < 2000


@pytest.mark.slow
def test_the_others_of_a_turn_are_answered():
    slow = ("pattern", {"text": "a" * 40 + "!"})
    results, _ = run(slow, ("text", {"text": "x"}), slow, ("unique", {"values": [1, 2]}), ("pattern", {"text": "aaa"}))
    timeout, fine = ToolStatus.TIMEOUT, ToolStatus.OK
    assert [result.status for result in results] == [timeout, fine, timeout, fine, fine]
    assert "did not finish within 1 s: checking its arguments takes too long" in results[0].text


def test_a_process_coerces_and_explains_as_this_one_does():
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


def test_which_schemas_are_checked_here():
    quick = {spec.name: spec.is_checked_quickly for spec in specs()}
    assert {name for name, is_quick in quick.items() if not is_quick} == {"pattern", "tree", "dense"}
    named = ToolSpec("t", "x", {**OBJECT, "properties": {"pattern": {"type": "string"}}}, Tool)
    assert named.is_checked_quickly
    nested = {"anyOf": [{"type": "array", "items": {"type": "string", "pattern": "x"}}]}
    assert not ToolSpec("t", "x", {**OBJECT, "properties": {"a": nested}}, Tool).is_checked_quickly
