"""One trajectory's tools: every call is answered, and the state is made once and released once."""

import asyncio
import contextlib
import inspect
import json
import logging
import math
import pickle
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from agent_rl.errors import (
    ConfigError,
    EngineError,
    FatalError,
    ToolError,
    ToolTimeoutError,
    UnscoredError,
)
from agent_rl.settings.sections import ToolsSettings
from agent_rl.settings.user_code import BrokenCallError
from agent_rl.tools import Tool, ToolOutput, ToolSession, ToolSpec
from agent_rl.tools.arguments import check_arguments, coerce
from agent_rl.tools.bounded_schema import bounded
from agent_rl.tools.truncation import ResultLimit
from agent_rl.trajectory import ToolCall, ToolStatus

OPEN = {"type": "object", "properties": {}}


class Recorder(Tool):
    """Notes what happens to it in `events`, and acts by the name of its behaviour."""

    name = "recorder"
    description = "d"
    parameters = OPEN
    events: list

    async def start(self):
        self.events.append("start")
        self.state = 0
        await asyncio.sleep(0.01)

    async def call(self, arguments):
        self.state += 1
        return str(self.state)

    async def close(self):
        self.events.append("close")


def spec_of(base=Recorder, **overrides):
    cls = type("Made", (base,), {"events": [], **overrides})
    return ToolSpec.from_class(cls), cls.events


def session_of(*specs, **options):
    return ToolSession(specs, **{"default_timeout_s": 5.0, **options})


async def episode(spec, *turns, **options):
    """Results of the turns, each a list of calls."""
    async with session_of(*(spec if isinstance(spec, list) else [spec]), **options) as session:
        return [result for calls in turns for result in await session.run(calls)]


def run(spec, *turns, **options):
    return asyncio.run(episode(spec, *turns, **options))


def call(name="recorder", _id="", **arguments):
    return ToolCall(name, arguments, _id)


def test_state_lives_for_the_trajectory():
    spec, events = spec_of()
    results = run(spec, [call(_id="a")], [call(_id="b")])
    assert [(result.text, result.call_id, result.status) for result in results] == [
        ("1", "a", ToolStatus.OK),
        ("2", "b", ToolStatus.OK),
    ]
    assert all(result.seconds > 0 for result in results)
    assert events == ["start", "close"]
    assert run(spec, [call()])[0].text == "1"  # another trajectory starts anew


def test_concurrent_first_calls_share_one_instance_and_a_tool_without_calls_has_none():
    spec, events = spec_of()
    other, other_events = spec_of(name="other")
    assert sorted(result.text for result in run([spec, other], [call(), call(), call()])) == ["1", "2", "3"]
    assert (events, other_events) == (["start", "close"], [])


async def test_released_once_when_the_episode_raises_or_is_cancelled():
    async def hang(self, arguments):
        try:
            await asyncio.sleep(60)
        finally:
            self.events.append("stopped")

    async def close(self):
        await asyncio.sleep(0.1)
        self.events.append("close")

    spec, events = spec_of(call=hang, close=close)

    with pytest.raises(KeyError):
        async with session_of(spec):
            raise KeyError("episode")
    for calls, pauses_s in ((1, [0.1]), (2, [0.1]), (1, [0.1, 0.02])):  # the last is cancelled while it closes, too
        events.clear()
        task = asyncio.create_task(episode(spec, [call()] * calls))
        for pause_s in pauses_s:
            await asyncio.sleep(pause_s)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert events == ["start", *["stopped"] * calls, "close"]


def test_a_failing_close_does_not_keep_the_others_open(caplog):
    async def fail(self):
        raise OSError("gone")

    async def hang(self):
        await asyncio.sleep(60)

    failing, _ = spec_of(name="failing", close=fail)
    hanging, _ = spec_of(name="hanging", close=hang)
    good, events = spec_of(name="good")
    shared: list = []
    sharing_well, _ = spec_of(name="sharing", **sharing(shared, "good"))
    stuck, _ = spec_of(name="stuck", **sharing([], "stuck", close_s=60))
    specs = [failing, hanging, good, sharing_well, stuck]
    run(specs, [call(spec.name) for spec in specs], default_timeout_s=0.2)
    assert (events, shared[-1]) == (["start", "close"], "release")
    assert {"tool 'failing': close raised", "tool 'hanging': close did not finish within 0.2 s"} <= set(caplog.messages)
    assert "did not close within 0.2 s" in caplog.text


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ToolError("no index"), ToolStatus.ERROR, "ToolError: no index"),
        (UnscoredError("not yet"), None, "UnscoredError: not yet"),
        (None, ToolStatus.TIMEOUT, "it did not start in time"),
    ],
)
async def test_a_start_that_fails_or_hangs_is_not_repeated(error, status, text):
    async def start(self):
        self.events.append("start")
        await asyncio.sleep(0 if error else 60)
        raise error

    spec, events = spec_of(start=start)
    first = None
    async with session_of(spec, default_timeout_s=0.1) as session:
        with contextlib.suppress(UnscoredError):
            first = (await session.run([call()]))[0].status
        second = (await session.run([call()]))[0]
    assert (first, second.status, events) == (status, ToolStatus.ERROR, ["start", "close"])
    assert f"not available: {text}" in second.text


async def test_timeout_of_a_tool_that_ignores_its_cancellation(monkeypatch, caplog):
    monkeypatch.setattr("agent_rl.work.concurrency.CANCEL_GRACE_S", 0.1)

    async def stubborn(self, arguments):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.3)
        return "late"

    spec, _ = spec_of(call=stubborn, timeout_s=0.1)
    started = time.monotonic()
    async with session_of(spec) as session:
        (result,) = await session.run([call()])
        seconds = time.monotonic() - started
    assert result.status is ToolStatus.TIMEOUT
    assert seconds < 0.9
    assert "ignores its cancellation" in caplog.text


def test_a_blocking_tool_blocks_neither_the_loop_nor_the_others():
    release = threading.Event()

    def block(self, arguments):
        assert threading.current_thread().daemon, "it does not keep the process alive"
        release.wait(10)
        return "late"

    blocking, events = spec_of(name="blocking", call=block, timeout_s=0.2)
    quick, _ = spec_of(name="quick", call=lambda self, arguments: "quick")
    slow, fast = run([blocking, quick], [call("blocking"), call("quick")])
    release.set()
    assert (slow.status, fast.status, fast.text) == (ToolStatus.TIMEOUT, ToolStatus.OK, "quick")
    assert fast.seconds < 0.2
    assert events == ["start", "close"]


def test_calls_beyond_the_cap_are_answered_as_skipped():
    spec, _ = spec_of()
    results = run(spec, [call(_id=str(number)) for number in range(4)], max_parallel_calls=2)
    assert [result.call_id for result in results] == ["0", "1", "2", "3"]
    assert [result.status.value for result in results] == ["ok", "ok", "skipped", "skipped"]
    assert "at most 2 calls" in results[3].text
    assert "number 4" in results[3].text
    assert run(spec, [], max_parallel_calls=2) == []


def test_an_unknown_tool_gets_the_nearest_name():
    spec, _ = spec_of()
    (result,) = run(spec, [call("recoder")])
    assert result.status is ToolStatus.UNKNOWN_TOOL
    assert result.text == "Error: there is no tool 'recoder'. Did you mean 'recorder'? Known: recorder."
    (result,) = run(spec, [call("x" * 100_000)])
    assert len(result.text) < 300


OBSERVE = ToolsSettings(on_error="observe", reuse_results=False)


def test_a_tools_own_exception_leaves_the_session_with_file_and_line(caplog):
    def crash(self, arguments):
        raise ValueError("secret\nsecond line")

    spec, events = spec_of(call=crash)
    with pytest.raises(BrokenCallError) as caught:
        run(spec, [call(x=1)])
    line = inspect.getsourcelines(crash)[1] + 1
    assert str(caught.value) == f"tool 'recorder' failed at {__file__}:{line}: ValueError: secret"
    assert "second line" in caplog.text
    assert "The call was {'x': 1}" in caplog.text
    assert events == ["start", "close"]


@pytest.mark.parametrize("method", ["__init__", "start"])
def test_a_tool_that_cannot_be_started_leaves_the_session_with_file_and_line(method):
    def fails(self, *_):
        raise OSError("no index")

    async def start(self):
        fails(self)

    spec, _ = spec_of(**{method: fails if method == "__init__" else start})
    with pytest.raises(BrokenCallError, match=rf"tool 'recorder': start failed at {__file__}:\d+: OSError: no index"):
        run(spec, [call()])


@pytest.mark.parametrize("error", [TimeoutError("socket"), ConnectionRefusedError("no server")])
def test_an_outage_that_a_tool_does_not_handle_is_no_bug(error):
    spec, _ = spec_of(call=raising(error))
    with pytest.raises(UnscoredError, match=str(error)) as caught:
        run(spec, [call()])
    assert not isinstance(caught.value, BrokenCallError)


def raising(error):
    async def call(self, arguments):
        raise error

    return call


@pytest.mark.parametrize(
    ("behaviour", "status", "text"),
    [
        (raising(ToolError("no such page")), ToolStatus.ERROR, "Error: no such page"),
        (raising(ValueError("bug\nline 2")), ToolStatus.ERROR, "Error: recorder failed: ValueError: bug"),
        (lambda self, arguments: asyncio.sleep(60), ToolStatus.TIMEOUT, "Error: recorder did not finish within 0.1 s"),
        (raising(ToolTimeoutError("the query ran too long")), ToolStatus.TIMEOUT, "Error: the query ran too long"),
        (raising(TimeoutError("socket")), ToolStatus.ERROR, "Error: recorder failed: TimeoutError: socket"),
        (raising(asyncio.CancelledError()), ToolStatus.ERROR, "cancelled from within"),
        (raising(SystemExit(3)), ToolStatus.ERROR, "the tool tried to exit (3)"),
        (lambda self, arguments: sys.exit(3), ToolStatus.ERROR, "the tool tried to exit (3)"),
        (lambda self, arguments: next(iter([])), ToolStatus.ERROR, "StopIteration"),
        (lambda self, arguments: 3, ToolStatus.ERROR, "must return a str or a ToolOutput with text, not int"),
        (lambda self, arguments: ToolOutput(None), ToolStatus.ERROR, "not ToolOutput"),
        (lambda self, arguments: ToolOutput("t", answer=42), ToolStatus.ERROR, "must be a str, not int"),
        (lambda self, arguments: asyncio.sleep(0, "awaited"), ToolStatus.OK, "awaited"),
        (lambda self, arguments: "lone \ud800 surrogate", ToolStatus.OK, "lone ? surrogate"),
    ],
)
def test_each_end_of_a_call_has_its_status(behaviour, status, text, caplog):
    spec, events = spec_of(call=behaviour)
    (result,) = run(spec, [call()], settings=OBSERVE, default_timeout_s=0.1)
    assert result.status is status
    assert text in result.text
    assert ("Traceback" in caplog.text) is (" failed: " in result.text), "for the tool's author"
    assert "\n" not in result.text
    assert events == ["start", "close"]


@pytest.mark.parametrize("error", [UnscoredError("host down"), FatalError("wrong key")])
@pytest.mark.parametrize("others", [0, 2])
def test_infrastructure_failures_leave_the_session_and_stop_the_turn(error, others):
    async def hang(self, arguments):
        try:
            await asyncio.sleep(60)
        finally:
            self.events.append("stopped")

    failing, _ = spec_of(name="failing", call=raising(error))
    hanging, events = spec_of(name="hanging", call=hang)
    started = time.monotonic()
    with pytest.raises(type(error)):
        run([failing, hanging], [*[call("hanging")] * others, call("failing")])
    assert time.monotonic() - started < 2
    assert events == (["start", *["stopped"] * others, "close"] if others else [])


def test_an_output_is_passed_on_with_numbers_of_numpy_as_those_of_python():
    metrics = {"hits": np.int64(3), "found": np.bool_(True), "scores": np.array([0.5, 1.5]), 1: {"a": (np.float32(2),)}}
    output = ToolOutput("0123456789", np.float32(0.25), metrics, "lone \ud800")
    spec, _ = spec_of(call=lambda self, arguments: output)
    (result,) = run(spec, [call()], result_limit=ResultLimit(chars=4))
    assert (result.text, result.answer) == ("01...(6 characters cut)...89", "lone ?")
    plain = {"hits": 3, "found": True, "scores": [0.5, 1.5], "1": {"a": [2.0]}}
    assert json.dumps([result.reward, result.metrics]) == json.dumps([0.25, plain])
    assert "hits" in metrics
    assert type(metrics["hits"]) is np.int64, "the tool may keep it"


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (None, "TypeError: call must return a str or a ToolOutput with text, not NoneType"),
        (ToolOutput("t", math.nan), "the reward of its ToolOutput is nan, not a finite number"),
        (ToolOutput("t", np.float32("inf")), "the reward of its ToolOutput is np.float32(inf), not a finite number"),
        (ToolOutput("t", "high"), "the reward of its ToolOutput is 'high', not a finite number"),
        (ToolOutput("t", True), "the reward of its ToolOutput is True, not a finite number"),
        (ToolOutput("t", metrics={"fine": 1, "page": object()}), "metrics['page'] of its ToolOutput: object"),
    ],
)
def test_what_json_does_not_express_is_a_bug_of_the_tool(output, problem, caplog):
    caplog.set_level(logging.CRITICAL)
    spec, _ = spec_of(call=lambda self, arguments: output)
    with pytest.raises(BrokenCallError) as caught:
        run(spec, [call()])
    assert f"tool 'recorder' failed at {__file__}:" in str(caught.value)
    assert problem in str(caught.value)


def test_create_kwargs_reach_the_instance():
    spec, _ = spec_of(call=lambda self, arguments: str(self.create_kwargs))
    for kwargs, text in [
        ({"recorder": {"create_kwargs": {"answer": 3}}}, "{'answer': 3}"),
        ({"recorder": {"create_kwargs": None}}, "{}"),
        ({"recorder": None}, "{}"),
        (None, "{}"),
    ]:
        assert run(spec, [call()], tools_kwargs=kwargs)[0].text == text
    with pytest.raises(ConfigError, match=r"extra_info.tools_kwargs.recorder: expected a mapping"):
        run(spec, [call()], tools_kwargs={"recorder": {"create_kwargs": [1]}})


def test_a_tool_may_change_its_arguments_without_changing_the_transcript():
    def change(self, arguments):
        arguments["list"].append(1)
        return str(arguments)

    spec, _ = spec_of(call=change)
    asked = call(list=[])
    assert run(spec, [asked])[0].text == "{'list': [1]}"
    assert asked.arguments == {"list": []}


def test_a_session_is_used_inside_its_context():
    spec, _ = spec_of()
    session = session_of(spec)
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(session.run([call()]))
    with pytest.raises(FatalError, match="two tools have the name recorder: rename one of them"):
        session_of(spec, spec)


# A tool's own limit on concurrency


class Busy(Tool):
    """Notes how many of its calls run at once."""

    name = "busy"
    description = "d"
    parameters = OPEN
    running = most = 0

    async def call(self, arguments):
        Busy.running += 1
        Busy.most = max(Busy.most, Busy.running)
        try:
            await asyncio.sleep(arguments.get("s", 0.3))
        finally:
            Busy.running -= 1
        return "done"


@pytest.fixture
def busy():
    Busy.running = Busy.most = 0
    return replace(ToolSpec.from_class(Busy), max_concurrency=2)


def test_concurrency_is_limited_over_all_trajectories(busy):
    async def main():
        specs = [busy, pickle.loads(pickle.dumps(busy)), replace(busy)]
        turn = [call("busy"), call("busy")]
        return await asyncio.gather(*(episode(spec, turn, default_timeout_s=0.8) for spec in specs))

    results = [result for turn in asyncio.run(main()) for result in turn]
    assert [result.status for result in results] == [ToolStatus.OK] * 6, "queueing does not count against the limit"
    assert Busy.most == 2
    assert all(0.29 <= result.seconds < 0.8 for result in results), "nor as time that the tool took"
    assert sorted(result.queue_seconds > 0.05 for result in results) == [False] * 2 + [True] * 4
    assert max(result.queue_seconds for result in results) > 0.5
    assert run(busy, [call("busy", s=0)])[0].status is ToolStatus.OK, "in another event loop"
    run([busy, replace(busy, name="other")], [call(name) for name in ("busy", "other") for _ in range(3)])
    assert Busy.most == 4, "another tool has a limit of its own"


async def test_queue_goes_on_when_calls_are_cancelled_time_out_or_fail(busy):
    busy = replace(busy, max_concurrency=1)
    long = call("busy", s=60)
    first = asyncio.create_task(episode(busy, [long]))
    queued = asyncio.create_task(episode(busy, [long, long]))
    await asyncio.sleep(0.05)
    late = asyncio.create_task(episode(busy, [long], default_timeout_s=0.1))
    wrong = asyncio.create_task(episode(busy, [call("busy", s="soon")]))
    last = asyncio.create_task(episode(busy, [call("busy", s=0)]))
    await asyncio.sleep(0.05)
    assert Busy.running == 1
    queued.cancel()
    first.cancel()
    with pytest.raises(BrokenCallError):
        await wrong
    assert [(await task)[0].status.value for task in (late, last)] == ["timeout", "ok"]
    assert (Busy.running, Busy.most) == (0, 1)


# Repeats


def failing(*errors, text="fine"):
    """A call that raises these, one after the other, and then gives the text."""
    left = list(errors)

    async def call(self, arguments):
        self.events.append("call")
        if left:
            raise left.pop(0)
        return text

    return call


def repeating(retries=2, **members):
    spec, events = spec_of(idempotent=True, **members)
    return replace(spec, retries=retries), events


@pytest.mark.parametrize(
    "error", [UnscoredError("503"), ConnectionResetError("reset"), OSError("net"), TimeoutError("t"), EngineError("e")]
)
def test_transient_failure_is_repeated(error):
    spec, events = repeating(call=failing(error, error))
    (result,) = run(spec, [call()])
    assert (result.text, result.status, result.metrics) == ("fine", ToolStatus.OK, {"attempts": 3})
    assert events == ["start", "call", "call", "call", "close"]


@pytest.mark.parametrize("error", [ToolError("no"), ToolTimeoutError("slow"), ValueError("bug"), FatalError("wrong")])
def test_any_other_failure_is_not_repeated(error, caplog):
    spec, events = repeating(call=failing(error))
    with contextlib.suppress(FatalError):
        (result,) = run(spec, [call()], settings=OBSERVE)
        assert (result.metrics, result.status is ToolStatus.OK) == ({}, False)
    assert events.count("call") == 1


def test_failure_stands_when_the_repeats_are_spent(caplog):
    spec, events = repeating(1, call=failing(OSError("first"), OSError("second"), OSError("third")))
    (result,) = run(spec, [call()], settings=OBSERVE)
    assert (result.status, result.text) == (ToolStatus.ERROR, "Error: recorder failed: OSError: second")
    assert result.metrics == {"attempts": 2}
    assert events.count("call") == 2
    spec, _ = repeating(1, call=failing(UnscoredError("first"), UnscoredError("second")))
    with pytest.raises(UnscoredError, match="second"):
        run(spec, [call()])


def test_repeats_end_with_the_calls_time():
    spec, events = repeating(50, call=failing(*[UnscoredError("down")] * 50))
    started = time.monotonic()
    with pytest.raises(UnscoredError, match="down"):
        run(spec, [call()], default_timeout_s=1.0)
    assert time.monotonic() - started < 5
    assert 2 <= events.count("call") <= 6


def test_start_is_repeated_with_a_new_instance():
    failures = [OSError("not yet")]

    async def start(self):
        self.events.append("start")
        self.state = 0
        await asyncio.sleep(0.01)
        if failures:
            raise failures.pop()

    spec, events = repeating(start=start)
    results = run(spec, [call(), call()])
    assert sorted(result.text for result in results) == ["1", "2"]
    assert events == ["start", "close", "start", "close"]


# What the tools of a trajectory share


def shared_resource(events, close_s=0.0):
    @contextlib.asynccontextmanager
    async def resource():
        events.append("open")
        try:
            yield "resource"
        finally:
            await asyncio.sleep(close_s)
            events.append("release")

    return resource


def sharing(events, key="k", close_s=0.0, fails=False):
    async def start(self):
        self.got = await self.scope.get(key, shared_resource(events, close_s))
        if fails:
            raise OSError("late")

    async def call(self, arguments):
        events.append("call")
        return self.got

    async def close(self):
        events.append("close")

    return {"start": start, "call": call, "close": close}


def test_tools_of_a_trajectory_share_a_scope_that_outlives_them():
    events = []
    first, _ = spec_of(name="first", **sharing(events))
    second, _ = spec_of(name="second", **sharing(events))
    results = run([first, second], [call("first"), call("second")])
    assert [result.text for result in results] == ["resource", "resource"]
    assert events == ["open", "call", "call", "close", "close", "release"]
    run(first, [call("first")])
    assert events.count("open") == 2, "another trajectory has its own"


async def test_scope_is_closed_when_no_tool_could_be_started(caplog):
    events = []
    spec, _ = repeating(1, name="late", **sharing(events, fails=True))
    async with session_of(spec, settings=OBSERVE) as session:
        (result,) = await session.run([call("late")])
    seen = list(events)
    assert result.status is ToolStatus.ERROR
    assert seen == ["open", "close", "close", "release"]


# Arguments


SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1},
        "query": {"type": "string", "maxLength": 20},
        "mode": {"enum": ["fast", "exact"]},
        "limit": {"anyOf": [{"type": "integer", "maximum": 9}, {"type": "null"}]},
        "filters": {"type": "array", "items": {"type": "object", "properties": {"year": {"type": "integer"}}}},
    },
    "required": ["query"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "missing 'query' (none given). Arguments of search: count (integer, optional), query (string, required)"),
        ({"querry": "a"}, "missing 'query' (given: querry); "),
        ({"querry": "a"}, "unknown name 'querry'. Did you mean 'query'?"),
        ({"query": ["a"]}, "argument 'query': expected string, got array [\"a\"]"),
        ({"query": "a", "count": "3.7"}, "argument 'count': expected integer, got string \"3.7\""),
        ({"query": "a", "count": True}, "argument 'count': expected integer, got boolean true"),
        ({"query": "a", "count": 0}, "argument 'count': expected minimum 1, got 0"),
        ({"query": "a", "mode": "slow"}, 'argument \'mode\': expected one of ["fast", "exact"], got "slow"'),
        ({"query": "a", "mode": "fats"}, "got \"fats\" (did you mean 'fast'?)"),
        ({"query": "a", "limit": "few"}, "argument 'limit': expected integer or null, got string \"few\""),
        ({"query": "a", "limit": "10"}, "argument 'limit': expected maximum 9, got 10"),
        ({"query": "a" * 10_000}, "argument 'query': expected maxLength 20"),
        ({"query": "a", "filters": [{"year": "soon"}]}, "argument 'filters[0].year': expected integer"),
        (["a"], "the arguments: expected object, got array"),
    ],
)
def test_invalid_arguments_are_explained(arguments, text):
    spec, events = spec_of(name="search", parameters=SCHEMA)
    (result,) = run(spec, [ToolCall("search", arguments)])
    assert (result.status, events) == (ToolStatus.INVALID_ARGUMENTS, []), "nothing was started for it"
    assert result.text.startswith("Error: invalid arguments for search: ")
    assert len(result.text) < 500
    assert text in result.text


@pytest.mark.parametrize("value", ["9" * 310, ["9" * 400], 10**400], ids=["text", "list", "number"])
def test_numbers_beyond_a_floats_range_are_the_policys_mistake(value):
    number = {"type": "number", "multipleOf": 0.5}
    schema = {"type": "object", "properties": {"a": {**number, "type": ["number", "array"], "items": number}}}
    spec, events = spec_of(parameters=schema)
    (result,) = run(spec, [call(a=value)])
    assert (result.status, "cannot be read" in result.text, events) == (ToolStatus.INVALID_ARGUMENTS, True, [])


def test_arguments_that_cannot_be_read_are_the_policys_mistake():
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    for value, problem in ((nested, "nested too deeply"), (10**5000, "cannot be read")):
        spec, events = spec_of(parameters={"type": "object", "properties": {"a": {}}})
        (result,) = run(spec, [call(a=value)])
        assert (result.status, problem in result.text, events) == (ToolStatus.INVALID_ARGUMENTS, True, [])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("integer", "3", 3),
        ("integer", " -3 ", -3),
        ("integer", 3.0, 3),
        ("integer", "3.5", "3.5"),
        ("integer", "\u0663", "\u0663"),
        ("number", "2.5", 2.5),
        ("number", "1e3", 1000.0),
        ("number", "0.10000000000000000001", "0.10000000000000000001"),
        ("number", "1e999", "1e999"),
        ("boolean", "true", True),
        ("boolean", "yes", "yes"),
        ("boolean", 1, 1),
        ("string", 42, "42"),
        ("string", True, True),
        ("array", "[1, 2]", [1, 2]),
        ("object", '{"a": 1}', {"a": 1}),
        (["integer", "null"], "null", None),
        (["string", "null"], "null", "null"),
        (["integer", "number"], 3.0, 3.0),
        ({"anyOf": [{"type": ["integer", "number"]}, {"type": "null"}]}, "3", 3),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", "x"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "3", "3"),
        ({"anyOf": [{"type": "integer"}, {"minLength": 1}]}, "3", "3"),
    ],
)
def test_coercion_loses_nothing(kind, value, expected):
    result = coerce(kind if isinstance(kind, dict) else {"type": kind}, value)
    assert result == expected
    assert type(result) is type(expected)


def test_coercion_reaches_nested_values():
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    asked = {"a": ["1", 2, 3.0], "b": "4"}
    assert check_arguments("t", bounded()(schema), asked) == {"a": [1, 2, 3], "b": "4"}
    assert asked["a"] == ["1", 2, 3.0]


@pytest.mark.parametrize("in_order", [True, False])
def test_calls_of_a_turn_run_at_the_same_time_unless_one_of_them_asks_for_their_order(in_order):
    class Slowest(Recorder):
        async def call(self, arguments):
            self.events.append(f"begin {arguments['wait_s']}")
            await asyncio.sleep(arguments["wait_s"])
            self.events.append(f"end {arguments['wait_s']}")
            return str(arguments["wait_s"])

    spec, events = spec_of(Slowest, in_order=in_order)
    turn = [call(wait_s=wait_s) for wait_s in (0.1, 0)]
    assert [result.text for result in run(spec, turn)] == ["0.1", "0"], "results are in the order of the calls"
    begins = ["begin 0.1", "end 0.1", "begin 0", "end 0"] if in_order else ["begin 0.1", "begin 0", "end 0", "end 0.1"]
    assert [event for event in events if " " in event] == begins
