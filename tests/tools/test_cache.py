"""Equal calls of reusable tools are executed once, in a trajectory, in a process, and across processes."""

import asyncio
import dataclasses

import numpy as np
import pytest

from agent_rl.errors import ConfigError, ToolError, UnscoredError
from agent_rl.settings.sections import ToolsSettings
from agent_rl.tools import Tool, ToolOutput, ToolSession, ToolSpec
from agent_rl.tools.runtime import shared_cache
from agent_rl.trajectory import ToolCall, ToolStatus

X = {"type": "object", "properties": {"x": {"type": "integer"}}}


class Counting(Tool):
    """Says how often it was executed."""

    description = "d"
    parameters = X
    reusable = True
    takes_s = 0.02

    async def call(self, arguments):
        type(self).calls += 1
        await asyncio.sleep(self.takes_s)
        return ToolOutput(f"call {type(self).calls}", 0.5, {"seen": arguments})


async def number_of_the_call(self, arguments):
    type(self).calls += 1
    return f"call {type(self).calls}"


_made = iter(range(10_000))


def counting(cache="shared", **members):
    """A spec of a new class, so that no test finds what another one kept."""
    name = f"counting_{next(_made)}"
    cls = type(name, (Counting,), {"name": name, "calls": 0, **members})
    return dataclasses.replace(ToolSpec.from_class(cls), cache=cache)


def stored(path):
    return ToolsSettings(cache_path=str(path), reuse_results=False)


async def run(spec, *turns, **options):
    async with ToolSession([spec], default_timeout_s=5, **options) as session:
        return [result for calls in turns for result in await session.run(calls)]


def call(spec, **arguments):
    return ToolCall(spec.name, arguments)


def outcomes(results):
    return [(result.text, result.metrics.get("cached", False)) for result in results]


@pytest.mark.parametrize("cache", ["trajectory", "shared"])
def test_an_equal_call_is_answered_from_memory(cache):
    spec = counting(cache)
    first, second, other = asyncio.run(run(spec, [call(spec, x=1)], [call(spec, x="1")], [call(spec, x=2)]))
    assert outcomes([first, second, other]) == [("call 1", False), ("call 1", True), ("call 2", False)]
    assert (second.status, second.reward) == (ToolStatus.OK, 0.5)
    assert first.metrics == {"seen": {"x": 1}}
    assert second.metrics == {"seen": {"x": 1}, "cached": True}
    assert first.seconds >= 0.02
    assert second.queue_seconds == 0


@pytest.mark.parametrize(("cache", "executed"), [("off", 4), ("trajectory", 2), ("shared", 1)])
def test_a_result_reaches_its_trajectory_or_all(cache, executed):
    spec = counting(cache)
    for _ in range(2):
        asyncio.run(run(dataclasses.replace(spec), [call(spec)], [call(spec)]))
    assert spec.cls.calls == executed


def test_calls_with_other_arguments_rows_or_configs_are_executed():
    spec = counting()

    def calls(**changes):
        kwargs = changes.pop("kwargs", {})
        changed = dataclasses.replace(spec, **changes)
        results = asyncio.run(run(changed, [call(changed)], tools_kwargs={changed.name: {"create_kwargs": kwargs}}))
        return outcomes(results)[0]

    assert calls() == ("call 1", False)
    assert calls(config={"k": 1}) == ("call 2", False)
    assert calls(name="renamed") == ("call 3", False)
    assert calls(kwargs={"row": np.array([1, 2])}) == ("call 4", False)
    assert calls(kwargs={"row": np.array([1, 3])}) == ("call 5", False)
    assert calls(kwargs={"row": [1, 2]}) == ("call 4", True)
    assert calls(timeout_s=1.0, description="other") == ("call 1", True)


async def test_equal_calls_at_once_are_executed_once():
    spec = counting(takes_s=0.3)

    sessions = await asyncio.gather(run(spec, [call(spec), call(spec)]), run(spec, [call(spec)]))
    results = [result for session in sessions for result in session]
    assert [result.text for result in results] == ["call 1"] * 3
    waiting = [result for result in results if result.metrics.get("cached")]
    assert len(waiting) == 2
    for result in waiting:  # what they waited is no work of the tool's
        assert result.queue_seconds > 0.2 > result.seconds


async def test_equal_calls_that_fail_do_not_count_the_wait_for_each_other():
    async def refuse(self, arguments):
        await asyncio.sleep(0.3)
        raise ToolError("no")

    spec = counting(call=refuse)
    first, second = await run(spec, [call(spec), call(spec)])
    assert (first.text, second.text) == ("Error: no", "Error: no")
    assert first.queue_seconds == 0
    assert second.queue_seconds >= 0.29


@pytest.mark.parametrize(
    ("error", "status"),
    [(ToolError("no"), ToolStatus.ERROR), (KeyError("bug"), None), (None, None)],
)
async def test_when_the_executed_call_fails_a_waiting_one_is_executed(error, status, caplog):
    async def flaky(self, arguments):
        type(self).calls += 1
        number = type(self).calls
        await asyncio.sleep(0.3)
        if number == 1 and error is not None:
            raise error
        return f"call {number}"

    spec = counting(call=flaky)
    first = asyncio.create_task(run(spec, [call(spec)]))
    await asyncio.sleep(0.01)
    others = asyncio.gather(run(spec, [call(spec)]), run(spec, [call(spec)]))
    await asyncio.sleep(0.01)
    if error is None:
        first.cancel()
    (result,) = await asyncio.gather(first, return_exceptions=True)
    first, others = result, [found for session in await others for found in session]
    if error is None:
        assert isinstance(first, asyncio.CancelledError)
    elif status is None:
        assert isinstance(first, UnscoredError), "of which a bug is one"
    else:
        assert first[0].status is status
    assert sorted(outcomes(others)) == [("call 2", False), ("call 2", True)]


async def test_waiting_for_an_equal_call_is_bounded():
    async def hang_once(self, arguments):
        type(self).calls += 1
        if type(self).calls == 1:
            await asyncio.sleep(60)
        return "done"

    spec = dataclasses.replace(counting(call=hang_once), timeout_s=0.3)
    quick = dataclasses.replace(spec, timeout_s=0.1)

    slow = asyncio.create_task(run(spec, [call(spec)]))
    await asyncio.sleep(0.05)
    (impatient,) = await run(quick, [call(quick)])
    assert (impatient.text, impatient.status) == ("done", ToolStatus.OK)
    assert (await slow)[0].status is ToolStatus.TIMEOUT
    assert impatient.queue_seconds >= 0.1


@pytest.mark.parametrize("output", [ToolOutput("t", answer="42"), ToolError("no")])
def test_results_that_cannot_be_kept_are_not_kept(output):
    async def give(self, arguments):
        type(self).calls += 1
        if isinstance(output, Exception):
            raise output
        return output

    spec = counting(call=give)
    results = asyncio.run(run(spec, [call(spec)], [call(spec)]))
    assert [result.metrics.get("cached") for result in results] == [None, None]
    assert spec.cls.calls == 2


def test_arguments_that_are_not_json_are_executed():
    spec = counting(call=number_of_the_call)
    results = asyncio.run(run(spec, [call(spec, y=object())], [call(spec, y=object())]))
    assert outcomes(results) == [("call 1", False), ("call 2", False)]


def test_equal_arguments_are_recognised_in_any_order():
    spec = counting(call=number_of_the_call)
    calls = [{"y": (1, 2), "z": 0.5}, {"z": np.float64(0.5), "y": [1, 2]}, {"y": [1.0, 2], "z": 0.5}]
    results = asyncio.run(run(spec, *([call(spec, **arguments)] for arguments in calls)))
    assert outcomes(results) == [("call 1", False), ("call 1", True), ("call 2", False)]


# The file


def test_a_file_keeps_results_for_other_processes_and_runs(tmp_path):
    """tests/test_store.py has more of the file: processes at once, what is wrong with it, what fails later."""
    path = str(tmp_path / "new" / "cache.jsonl")
    spec = counting()
    (first,) = asyncio.run(run(spec, [call(spec, x=1)], settings=stored(path)))
    shared_cache.cache_clear()  # as in another process
    (again,) = asyncio.run(run(spec, [call(spec, x=1)], settings=stored(path)))
    assert outcomes([first, again]) == [("call 1", False), ("call 1", True)]
    assert again.metrics["seen"] == {"x": 1}


def test_broken_file_is_named(tmp_path):
    path = tmp_path / "cache.jsonl"
    path.write_bytes(b"not a cache " * 100)
    with pytest.raises(ConfigError, match=r"agent_rl\.tools\.cache_path: .*cache\.jsonl cannot be used.*delete"):
        ToolSession([counting()], default_timeout_s=1, settings=stored(path))
    ToolSession([counting("trajectory")], default_timeout_s=1, settings=stored(path))  # asks for no file
