"""One trajectory's environment: its state, its thread, its limits, its reward."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from typing import Any

import numpy as np
import pytest
from PIL import Image

from agent_rl import Environment
from agent_rl.environments import EnvironmentSession, open_environment
from agent_rl.environments.kind import NAME, ROW, SESSION, row_values
from agent_rl.errors import ConfigError, InvalidArgumentsError, ToolError, UnscoredError
from agent_rl.settings.user_code import BrokenCallError
from agent_rl.tools import ToolOutput, ToolSession
from agent_rl.trajectory import StopReason, ToolCall, Trajectory
from tests.environments.sessions import LOCKERS, lockers, run, session


class Base(Environment):
    """A world of a test."""

    def get_reward(self) -> Any:
        return 0.0


class Counter(Base):
    def reset(self, start: int = 0, **row: Any) -> None:
        self.count = start

    def add(self, number: int) -> str:
        """Add a number."""
        self.count += number
        return str(self.count)

    def get_reward(self) -> float:
        return self.count


def test_each_trajectory_has_its_own_state() -> None:
    async def trajectories() -> list[Any]:
        worlds = [session(Counter, {"start": start}) for start in (0, 100)]
        await asyncio.gather(*(world.reset() for world in worlds))
        for _ in range(3):
            await asyncio.gather(*(world.call("add", {"number": 1}) for world in worlds))
        rewards = [await world.reward() for world in worlds]
        await asyncio.gather(*(world.close() for world in worlds))
        return rewards

    assert asyncio.run(trajectories()) == [3, 103]


class Threads(Base):
    def reset(self, **row: Any) -> None:
        self.threads = [threading.get_ident()]

    def plain(self) -> str:
        """A plain method."""
        self.threads.append(threading.get_ident())
        return "done"

    async def waiting(self) -> str:
        """An async method."""
        await asyncio.sleep(0)
        self.loop_thread = threading.get_ident()
        return "done"

    def step(self, message: str) -> str:
        return self.plain()

    def get_reward(self) -> float:
        self.plain()
        return 1.0


def test_plain_methods_run_on_one_thread_of_the_trajectory_and_async_ones_on_the_event_loop() -> None:
    async def work(world: EnvironmentSession) -> None:
        for tool in ("plain", "waiting", "plain"):
            assert (await world.call(tool, {})).text == "done"
        await world.step("hello")
        await world.reward()

    first, second = session(Threads), session(Threads)

    async def both() -> None:
        await asyncio.gather(first.reset(), second.reset())
        await asyncio.gather(work(first), work(second))
        await asyncio.gather(first.close(), second.close())

    asyncio.run(both())
    used = [world.instance.threads for world in (first, second)]
    assert [len(threads) for threads in used] == [5, 5]
    assert len({*used[0]}) == len({*used[1]}) == 1
    assert len({used[0][0], used[1][0], first.instance.loop_thread, threading.get_ident()}) == 3
    assert first.instance.loop_thread == threading.get_ident()


def test_calls_at_the_same_time_run_one_after_the_other() -> None:
    class Slow(Counter):
        async def add(self, number: int) -> str:
            """Add a number, slowly."""
            before = self.count
            await asyncio.sleep(0.01)
            self.count = before + number
            return str(self.count)

    async def work(world: EnvironmentSession) -> list[str]:
        outputs = await asyncio.gather(*(world.call("add", {"number": 1}) for _ in range(4)))
        return [output.text for output in outputs]

    assert run(session(Slow), work) == ["1", "2", "3", "4"]


def test_the_thread_ends_with_the_trajectory() -> None:
    world = session(Threads)
    run(world, EnvironmentSession.reward)
    thread = next((each for each in threading.enumerate() if each.ident == world.instance.threads[0]), None)
    if thread is not None:
        thread.join(5)
        assert not thread.is_alive()


class Slow(Base):
    def reset(self, slow: str, **row: Any) -> None:
        self.slow = slow
        self._wait("reset")

    def _wait(self, name: str) -> None:
        if name == self.slow:
            time.sleep(0.6)

    def plain(self) -> str:
        """A plain tool."""
        self._wait("plain")
        return "done"

    async def waiting(self) -> str:
        """An async tool."""
        await asyncio.sleep(5 if self.slow == "waiting" else 0)
        return "done"

    def step(self, message: str) -> str:
        self._wait("step")
        return "go on"

    def get_reward(self) -> float:
        self._wait("get_reward")
        return 1.0


@pytest.mark.parametrize("slow", ["reset", "plain", "waiting", "step", "get_reward"])
def test_each_method_has_a_time_limit_and_the_instance_is_dropped_after_it(slow: str) -> None:
    world = session(Slow, {"slow": slow}, limit_s=0.25)
    calls = {
        "reset": world.reset, "plain": lambda: world.call("plain", {}), "waiting": lambda: world.call("waiting", {}),
        "step": lambda: world.step("hello"), "get_reward": world.reward,
    }  # fmt: skip

    async def work() -> None:
        for name, call in calls.items():
            if name == slow:
                break
            await call()
        for later in (calls[slow], world.reward):
            with pytest.raises(UnscoredError, match=rf"slow\.{slow} did not finish within 0\.25 s"):
                await later()
        await world.close()

    asyncio.run(work())


class Breaking(Base):
    def reset(self, error: Exception | None = None, where: str = "", **row: Any) -> None:
        self.error, self.where = error, where
        self._raise("reset")

    def _raise(self, name: str) -> None:
        if name == self.where and self.error:
            raise self.error

    def look(self) -> str:
        """Look."""
        self._raise("look")
        return "done"

    def nothing(self) -> str | None:
        """Return nothing."""
        return None if self.where else "text"

    def step(self, message: str) -> str:
        self._raise("step")
        return 5 if message == "number" else "go on"  # type: ignore[return-value]

    def get_reward(self) -> float:
        self._raise("get_reward")
        return 1.0


LINE = Breaking._raise.__code__.co_firstlineno + 2


def test_a_tool_error_of_a_tool_is_for_the_policy() -> None:
    row = {"error": ToolError("no such drawer"), "where": "look"}

    async def work(world: EnvironmentSession) -> float | dict[str, float]:
        with pytest.raises(ToolError, match="no such drawer"):
            await world.call("look", {})
        return await world.reward()

    assert run(session(Breaking, row), work) == 1.0


@pytest.mark.parametrize("where", ["reset", "look", "step", "get_reward"])
@pytest.mark.parametrize("error", [KeyError("drawer"), ToolError("not in a tool")])
def test_any_other_exception_is_a_bug_with_its_line(where: str, error: Exception) -> None:
    if where == "look" and isinstance(error, ToolError):
        return

    async def work(world: EnvironmentSession) -> Any:
        await (world.call("look", {}) if where == "look" else world.step("x"))
        return await world.reward()

    with pytest.raises(BrokenCallError, match=rf"Breaking\.{where} failed at .*test_session\.py:{LINE}: \w+Error: "):
        run(session(Breaking, {"error": error, "where": where}), work)


def test_an_outage_is_no_bug() -> None:
    with pytest.raises(ConnectionError):
        run(
            session(Breaking, {"error": ConnectionError("refused"), "where": "look"}),
            lambda world: world.call("look", {}),
        )


def test_what_a_method_must_not_return_names_the_method() -> None:
    line = Breaking.nothing.__code__.co_firstlineno
    with pytest.raises(
        BrokenCallError, match=rf"Breaking\.nothing failed at .*test_session\.py:{line}.*text for the policy"
    ):
        run(session(Breaking, {"where": "x"}), lambda world: world.call("nothing", {}))
    with pytest.raises(BrokenCallError, match=r"Breaking\.step .*it returned 5, but it must return text"):
        run(session(Breaking), lambda world: world.step("number"))


def test_an_init_that_raises_is_a_bug() -> None:
    class Unborn(Base):
        def __init__(self) -> None:
            raise OSError("no display")

    with pytest.raises(BrokenCallError, match=r"unborn: __init__ failed at .*test_session\.py.*no display"):
        session(Unborn)


def test_arguments_are_converted_to_their_types() -> None:
    assert run(session(Counter), lambda world: world.call("add", {"number": "7"})).text == "7"
    with pytest.raises(InvalidArgumentsError, match="number"):
        run(session(Counter), lambda world: world.call("add", {"number": "seven"}))


class Bell(Base):
    shared = ToolOutput("ding")

    def reset(self, **row: Any) -> str:
        return "A bell."

    def ring(self, times: int) -> ToolOutput:
        """Ring."""
        for _ in range(times):
            self.reward_turn(0.25)
        self.done = times > 2
        return self.shared

    def step(self, message: str) -> str | None:
        if message == "ring":
            self.reward_turn(0.5)
        self.done = message == "stop"
        return None if message == "leave" else f"you said {message}"


def test_done_ends_the_episode_after_the_call() -> None:
    async def work(world: EnvironmentSession) -> str:
        assert not world.done
        text = (await world.call("ring", {"times": 3})).text
        assert world.done
        with pytest.raises(ToolError, match="the episode is over"):
            await world.call("ring", {"times": 1})
        return text

    assert run(session(Bell), work) == "ding"


def test_step_answers_a_message_until_it_returns_none_or_is_done() -> None:
    async def work(world: EnvironmentSession) -> list[Any]:
        answers = [await world.step(message) for message in ("hello", "ring", "hello", "leave", "stop")]
        assert world.instance.answer == "stop"
        return answers

    expected = [("you said hello", None), ("you said ring", 0.5), ("you said hello", None), (None, None), (None, None)]
    assert run(session(Bell), work) == expected


def test_a_reward_of_a_turn_counts_for_its_call_alone() -> None:
    async def work(world: EnvironmentSession) -> list[float | None]:
        return [(await world.call("ring", {"times": times})).reward for times in (1, 0, 2, 1)]

    assert run(session(Bell), work) == [0.25, None, 0.5, 0.25]
    assert Bell.shared.reward is None


class Board(Base):
    def move(self, squares: int) -> str:
        """Move."""
        self.reward_turn(0.5 if squares > 0 else -1.0)
        if squares <= 0:
            raise ToolError("illegal move")
        return "moved"


def test_a_call_that_fails_keeps_its_reward_of_the_turn() -> None:
    async def work(world: EnvironmentSession) -> list[tuple[str, float | None]]:
        async with ToolSession(world.specs, default_timeout_s=5, shared={SESSION: world}) as tools:
            calls = [ToolCall("move", {"squares": squares}) for squares in (1, 0, 2, 0)]
            return [(result.text, result.reward) for call in calls for result in await tools.run([call])]

    moved, illegal = ("moved", 0.5), ("Error: illegal move", -1.0)
    assert run(session(Board), work) == [moved, illegal, moved, illegal]


def test_without_step_a_message_is_the_answer() -> None:
    async def work(world: EnvironmentSession) -> tuple[Any, Any]:
        return await world.step("42"), world.instance.answer

    assert run(session(Counter), work) == ((None, None), "42")


@pytest.mark.parametrize(
    ("value", "reward"),
    [(1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), ({"right": 1, "short": np.int64(0)}, {"right": 1.0, "short": 0.0})],
)
def test_a_reward_is_a_number_or_named_parts(value: Any, reward: Any) -> None:
    class Rewarded(Base):
        def get_reward(self) -> Any:
            return value

    assert run(session(Rewarded), EnvironmentSession.reward) == reward


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, "it returned nan, not a finite number"),
        (math.inf, "it returned inf"),
        (None, "it returned None"),
        ("1.0", "it returned '1.0'"),
        (np.ones(2), "it returned array"),
        ({"right": 1.0, "short": math.nan}, "part 'short' is nan"),
        ({}, "it returned no parts"),
    ],
)
def test_a_reward_that_is_no_number_is_refused(value: Any, problem: str) -> None:
    class Rewarded(Base):
        def get_reward(self) -> Any:
            return value

    with pytest.raises(BrokenCallError, match=rf"Rewarded\.get_reward failed at .*test_session\.py:\d+: .*{problem}"):
        run(session(Rewarded), EnvironmentSession.reward)


def test_a_reward_has_the_same_parts_in_every_trajectory() -> None:
    class Parts(Base):
        def reset(self, names: list[str], **row: Any) -> None:
            self.names = names

        def get_reward(self) -> dict[str, float]:
            return dict.fromkeys(self.names, 1.0)

    for names in (["a", "b"], ["b", "a"]):
        assert run(session(Parts, {"names": names}), EnvironmentSession.reward) == {"a": 1.0, "b": 1.0}
    with pytest.raises(BrokenCallError, match=r"the parts \['a'\] after the parts \['a', 'b'\]"):
        run(session(Parts, {"names": ["a"]}), EnvironmentSession.reward)


class Dice(Base):
    def roll(self) -> str:
        """Roll."""
        return str(self.random.random())


def test_random_numbers_depend_on_the_row_alone() -> None:
    async def rolls(world: EnvironmentSession) -> list[str]:
        return [(await world.call("roll", {})).text for _ in range(3)]

    random.seed(1)
    first = run(session(Dice, {"number": 1, "name": "a"}), rolls)
    random.seed(2)
    assert run(session(Dice, {"name": "a", "number": 1}), rolls) == first
    assert run(session(Dice, {"number": 2, "name": "a"}), rolls) != first
    assert len(set(first)) == 3


def test_a_change_of_a_rows_value_stays_in_its_trajectory() -> None:
    class Basket(Base):
        def reset(self, items: list[str], **row: Any) -> None:
            self.items = items

        def take(self) -> str:
            """Take an item."""
            return self.items.pop()

    row = {"items": ["apple", "pear"]}
    for _ in range(2):
        assert run(session(Basket, row), lambda world: world.call("take", {})).text == "pear"
    assert row == {"items": ["apple", "pear"]}


def test_an_observation_may_hold_images() -> None:
    class Camera(Base):
        def look(self) -> ToolOutput:
            """Look."""
            return ToolOutput("A red square.", images=[Image.new("RGB", (2, 2), "red")])

    output = run(session(Camera), lambda world: world.call("look", {}))
    assert output.text == "A red square."
    assert output.images[0].getpixel((0, 0)) == (255, 0, 0)


def test_a_row_names_its_environment() -> None:
    names, trajectory = {"lockers": str(LOCKERS)}, Trajectory([], StopReason.ERROR)
    row = {"extra_info": {NAME: "lockers", ROW: '{"number": 7, "code": 1234}'}}
    world = open_environment(names, row, 5.0, trajectory)
    assert world is not None
    assert run(world, lambda world: world.call("look_up", {"number": 7})).text == "Its code is 1234."
    assert world.kind is not None
    assert world.kind.cls is lockers().cls
    assert open_environment(names, {"extra_info": {}}, 5.0, trajectory) is None
    with pytest.raises(ConfigError, match=r"there is no environment 'locker'\. Did you mean 'lockers'"):
        open_environment(names, {"extra_info": {NAME: "locker"}}, 5.0, trajectory)
    assert row_values({"extra_info": None}) == {}
