"""What is recorded is replayed: the same results, bit for bit, and no tool is executed."""

import asyncio
import json
import random

import numpy as np
import pytest

from agent_rl.errors import ConfigError, FatalError, ToolError, UnscoredError
from agent_rl.tools import Tool, ToolOutput, ToolSession, ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.tools.cassette import Cassette, CassetteMissError
from agent_rl.tools.truncation import ResultLimit
from agent_rl.trajectory import ToolCall, ToolStatus

OPEN = {"type": "object", "properties": {}}


class Counter(Tool):
    """A tool with state: what it gives depends on what was called before."""

    name = "counter"
    description = "d"
    parameters = OPEN
    made = 0

    async def start(self):
        type(self).made += 1
        self.value = self.create_kwargs.get("start", 0)

    async def call(self, arguments):
        self.value += arguments.get("by", 1)
        text = str(self.value)
        await asyncio.sleep(random.random() * 0.01)
        return ToolOutput(text, reward=1, metrics={"pair": (1, 2.5)}, answer=arguments.get("answer"))


class Noise(Tool):
    """Gives something else every time, but says that it does not."""

    name = "noise"
    description = "d"
    parameters = OPEN
    reusable = True
    made = 0

    async def start(self):
        type(self).made += 1

    async def call(self, arguments):
        await asyncio.sleep(random.random() * 0.01)
        if "error" in arguments:
            raise {"tool": ToolError, "unscored": UnscoredError, "fatal": FatalError}[arguments["error"]]("failed")
        return arguments.get("text", "") + str(random.random())


SPECS = [ToolSpec.from_class(cls) for cls in (Calculator, Counter, Noise)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "cassette.jsonl"


def call(name, _id="", **arguments):
    return ToolCall(name, arguments, _id)


async def episode(cassette, *turns, **options):
    async with ToolSession(SPECS, default_timeout_s=5, cassette=cassette, **options) as session:
        return [await session.run(calls) for calls in turns]


def run(cassette, *turns, **options):
    return [result for turn in asyncio.run(episode(cassette, *turns, **options)) for result in turn]


def nested(depth):
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def untouched():
    """Whether no tool has been made since the last time."""
    made, Counter.made, Noise.made = Counter.made + Noise.made, 0, 0
    return made == 0


ROLLOUT = [
    [call("calculator", "1", expression="6*7"), call("counter", "2", by=2), call("counter", "3", by=2)],
    [call("noise"), call("noise"), call("noise"), call("noise", error="tool")],
    [call("counter", by=2), call("calculator", expression="1/0"), call("calculator"), call("nothing", x=1)],
    [call("counter", by=2, answer="größer \ud800"), call("noise", deep=nested(100_000))],
]


def test_replay_gives_equal_results_and_executes_nothing(path):
    recorded = run(Cassette.record(path), *ROLLOUT)
    assert [result.text for result in recorded[:3]] == ["42", "2", "4"]
    assert recorded[7].text == "6"
    assert recorded[-2].answer == "größer ?"
    assert {result.status.value for result in recorded} == {"ok", "error", "invalid_arguments", "unknown_tool"}
    assert not untouched()
    assert run(Cassette.replay(path), *ROLLOUT) == recorded
    assert untouched()


def test_many_trajectories_at_once_replay_their_own(path):
    """Also in another order, and with results that differ only by chance."""

    async def rollout(cassette, order):
        async def one(number):
            await asyncio.sleep(random.random() * 0.02)
            return await episode(cassette.scoped(f"row/{number}"), *ROLLOUT)

        results = await asyncio.gather(*(one(number) for number in order))
        return dict(zip(order, results, strict=True))

    recorded = asyncio.run(rollout(Cassette.record(path), range(8)))
    untouched()
    assert asyncio.run(rollout(Cassette.replay(path), [5, 2, 7, 1, 0, 6, 3, 4])) == recorded
    assert untouched()


def test_what_was_recorded_several_times_is_replayed_in_order_and_then_again(path):
    cassette = Cassette.record(path)
    texts = [run(cassette, [call("noise")])[0].text for _ in range(3)]
    assert len(set(texts)) == 3
    cassette = Cassette.replay(path)
    assert [run(cassette.scoped("unknown"), [call("noise")])[0].text for _ in range(4)] == [*texts, texts[0]]


def test_calls_of_a_stateful_tool_differ_by_the_earlier_calls(path):
    cassette = Cassette.record(path)
    run(cassette, [call("counter")], [call("calculator", expression="1")], [call("counter")])
    replay = Cassette.replay(path)
    results = run(replay, [call("counter")], [call("counter")], [call("calculator", expression="1")])
    assert [result.text for result in results] == ["1", "2", "1"], "reusable calls between them do not matter"
    with pytest.raises(CassetteMissError, match="recorded with other earlier calls"):
        run(replay, [call("counter")], [call("counter")], [call("counter")])


def test_calls_of_rows_with_other_create_kwargs_differ(path):
    cassette = Cassette.record(path)
    for start in (1, 2):
        run(cassette, [call("counter")], tools_kwargs={"counter": {"create_kwargs": {"start": start}}})
    kwargs = {"counter": {"create_kwargs": {"start": np.int64(2)}}}
    assert run(Cassette.replay(path), [call("counter")], tools_kwargs=kwargs)[0].text == "3"
    with pytest.raises(CassetteMissError, match="recorded with other create_kwargs"):
        run(Cassette.replay(path), [call("counter")])


def test_limits_may_change_between_recording_and_replay(path):
    recorded = run(Cassette.record(path), [call("noise", text="x" * 100)], result_limit=ResultLimit(chars=10))
    (whole,) = run(Cassette.replay(path), [call("noise", text="x" * 100)])
    assert len(recorded[0].text) < 50
    assert whole.text.startswith("x" * 100)
    calls = [call("noise", text="x" * 100), call("noise")]
    results = run(Cassette.replay(path), calls, max_parallel_calls=1)
    assert results[0] == whole
    assert results[1].status is ToolStatus.SKIPPED


def test_unknown_call_says_what_is_near_and_what_to_do(path):
    run(Cassette.record(path), [call("calculator", expression="6*7"), call("calculator", expression="1+1")])
    with pytest.raises(CassetteMissError) as caught:
        run(Cassette.replay(path), [call("calculator", expression="6*8")])
    text = str(caught.value)
    assert 'cassette.jsonl has no recorded call calculator {"expression":"6*8"}' in text
    assert 'The nearest is calculator {"expression":"6*7"}' in text
    assert "agent_rl.tools.cassette.mode=record" in text
    with pytest.raises(CassetteMissError, match="nearest is calculator"):
        run(Cassette.replay(path), [call("noise", text="y" * 100_000)])
    assert isinstance(caught.value, FatalError)
    path.write_text("")
    with pytest.raises(CassetteMissError, match="Nothing is recorded"):
        run(Cassette.replay(path), [call("noise", text="y" * 100_000)])


@pytest.mark.parametrize("error", ["unscored", "fatal"])
def test_turn_without_a_result_is_not_recorded(path, error):
    cassette = Cassette.record(path)
    with pytest.raises((UnscoredError, FatalError), match="failed"):
        run(cassette, [call("calculator", expression="1")], [call("noise", error=error), call("noise")])
    assert path.read_text().count("\n") == 1


def test_cancelled_turn_is_not_recorded(path):
    async def main():
        task = asyncio.create_task(episode(Cassette.record(path), [call("counter")] * 3))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert path.read_text() == ""


# Secrets


class Leaky(Tool):
    name = "leaky"
    description = "d"
    parameters = OPEN

    async def call(self, arguments):
        text = f"got {arguments['query']} with hush-hush-hush"
        return ToolOutput(text, metrics={"tokens": 7, "apiKey": "abc"}, answer="hush-hush-hush!")


def test_secrets_are_neither_written_nor_shown(path, monkeypatch):
    """tests/test_secrets.py has what counts as one."""
    monkeypatch.setenv("SEARCH_API_KEY", "hush-hush-hush")
    kwargs = {"leaky": {"create_kwargs": {"password": "very-private"}}}
    asked = call("leaky", query="hush-hush-hush?", headers={"Authorization": "Bearer x"})

    async def once(cassette):
        specs = [ToolSpec.from_class(Leaky)]
        async with ToolSession(specs, default_timeout_s=5, cassette=cassette, tools_kwargs=kwargs) as session:
            return await session.run([asked])

    (recorded,) = asyncio.run(once(Cassette.record(path)))
    assert not [secret for secret in ("hush", "Bearer", "abc", "very-private") if secret in path.read_text()]
    assert (recorded.text, recorded.answer) == ("got [redacted]? with [redacted]", "[redacted]!")
    assert recorded.metrics == {"tokens": 7, "apiKey": "[redacted]"}
    assert asked.arguments["headers"] == {"Authorization": "Bearer x"}
    assert asyncio.run(once(Cassette.replay(path))) == [recorded]
    asked.arguments["other"] = "hush-hush-hush"
    with pytest.raises(CassetteMissError) as caught:
        asyncio.run(once(Cassette.replay(path)))
    assert "hush" not in str(caught.value)


# The file


def test_torn_line_does_not_take_the_next_one_with_it(path):
    cassette = Cassette.record(path)
    run(cassette, [call("counter")])
    with open(path, "ab") as file:
        file.write(b'{"version": 1, "sc')
    run(cassette, [call("noise")])
    with pytest.raises(ConfigError, match=r"cassette\.jsonl, line 2: not JSON.*Delete the line"):
        Cassette.replay(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    assert run(Cassette.replay(path), [call("counter")])[0].text == "1"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 2}, "version 2 cannot be read: this agent_rl reads 1"),
        ({"version": None}, "version None cannot be read"),
        ({"call": {}}, r"not a recorded call: call\.tool: Field required"),
        ({"result": None}, "not a recorded call: result: "),
        ({"scope": 3}, "not a recorded call: scope: "),
        ("[1]", "version None"),
        ("", "not JSON"),
    ],
)
def test_line_that_is_no_record_is_named(path, change, problem):
    run(Cassette.record(path), [call("counter")], [call("counter")])
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{change if isinstance(change, str) else json.dumps({**json.loads(second), **change})}\n")
    with pytest.raises(ConfigError, match=rf"cassette\.jsonl, line 2: .*{problem}"):
        Cassette.replay(path)


def test_path_that_cannot_be_used_is_refused(path, tmp_path):
    with pytest.raises(ConfigError, match=r"agent_rl\.tools\.cassette\.path: .*cannot be read"):
        Cassette.replay(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"agent_rl\.tools\.cassette\.path: .*cannot be written"):
        Cassette.record(tmp_path / "file" / "below")
    cassette = Cassette.record(path)
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("")
    with pytest.raises(FatalError, match="cannot be written any more"):
        run(cassette, [call("counter")])
