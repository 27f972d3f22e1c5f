"""Whatever fails at once, asyncio has nothing to complain about: no exception is left in a task that nobody awaits."""

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.hooks import Hooks
from agent_rl.agents.episode.loop import EpisodeSetup, loop_class
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.tool_call import AGENT as TOOL_CALL
from agent_rl.agents.users.user import Reply, User
from agent_rl.errors import FatalError, UnscoredError
from agent_rl.rewards import Reward, groups
from agent_rl.settings import AgentRLSettings, RewardSettings
from agent_rl.tools import Tool, ToolSpec
from agent_rl.trajectory import Message, StopReason, Trajectory
from agent_rl.work.concurrency import uninterrupted


def complaints(work: Callable[[], Awaitable[Any]]) -> list[str]:
    """What asyncio complains about while the work runs, and when its loop ends."""
    found: list[str] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(str(context)))
        with contextlib.suppress(Exception):
            await work()
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()

    gc.freeze()  # what other tests have left need not be searched, which takes seconds
    asyncio.run(watched())
    gc.collect()
    gc.unfreeze()
    return found


KINDS: dict[str, type[Exception]] = {"fatal": FatalError, "unscored": UnscoredError, "bug": KeyError}


class Failing(Tool):
    """Raises at once, or when it is cancelled, or when it is closed."""

    description = "Fails."
    parameters = {"type": "object", "properties": {"how": {"type": "string"}}}  # noqa: RUF012

    async def call(self, arguments: dict[str, Any]) -> str:
        if arguments["how"] in KINDS:
            raise KINDS[arguments["how"]]("at once")
        try:
            await asyncio.sleep(30)
        finally:
            raise RuntimeError("while it is cancelled")

    async def close(self) -> None:
        raise RuntimeError("while it is closed")


class Raising(Hooks):
    async def after_turn(self, trajectory: Trajectory, turn: Any) -> bool:
        raise KeyError("hook")


class Angry(User):
    async def respond(self, message: str, trajectory: Trajectory) -> Reply:
        await asyncio.sleep(0)
        raise KeyError("respond")

    async def finish(self) -> None:
        await asyncio.sleep(0.01)
        raise KeyError("finish")


def episode(*turns: str, **parts: Any) -> Awaitable[Trajectory]:
    agent = Agent("failing", TOOL_CALL.format, **parts)
    tools = [ToolSpec(name, "Fails.", Failing.parameters, Failing) for name in ("one", "two", "three")]
    loop = loop_class(agent)(EpisodeSetup(AgentRLSettings(), EpisodeLimits(), tools))
    row = {"raw_prompt": [{"role": "user", "content": "?"}], "data_source": "x"}
    format = loop.format()
    return loop.run_row(row, loop.conversation(ScriptedPolicy(list(turns))), format)


def calls(*how: str) -> str:
    names = ("one", "two", "three")
    one = '<tool_call>\n{{"name": "{}", "arguments": {{"how": "{}"}}}}\n</tool_call>'
    return "\n".join(one.format(name, each) for name, each in zip(names, how, strict=False))


@pytest.mark.parametrize("how", ["fatal", "unscored", "bug"])
def test_of_tools_that_fail_together(how: str) -> None:
    assert complaints(lambda: episode(calls(how, how, "wait"), "done")) == []


def test_of_hooks_and_users_that_raise() -> None:
    assert complaints(lambda: episode("What?", "done", hooks=Raising)) == []
    assert complaints(lambda: episode("What?", "done", user=lambda settings, info: Angry({}, {}))) == []


def test_of_an_episode_that_is_cancelled_while_everything_fails() -> None:
    async def cancelled() -> None:
        tasks = [
            asyncio.ensure_future(episode(calls("wait", "wait", "wait"), "done")),
            asyncio.ensure_future(episode("What?", user=lambda settings, info: Angry({}, {}))),
        ]
        await asyncio.sleep(0.005)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert complaints(cancelled) == []


def test_of_work_that_fails_in_the_moment_of_its_interruption() -> None:
    async def interrupted() -> None:
        loop = asyncio.get_running_loop()
        work = loop.create_future()
        task = asyncio.ensure_future(uninterrupted(work))
        await asyncio.sleep(0)
        task.cancel()
        loop.call_soon(work.set_exception, KeyError("work"))
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)

    assert complaints(interrupted) == []


COMPONENTS = """
import asyncio
from agent_rl import Component
from agent_rl.rewards import GroupComponent

class One(Component):
    async def measure(self, trajectory):
        await asyncio.sleep(0.001 * len(trajectory.id))
        raise KeyError(trajectory.id)

class Rank(GroupComponent):
    async def measure_group(self, group):
        await asyncio.sleep(0.002)
        raise KeyError("group")

def compute_score(solution_str, **_):
    raise KeyError(solution_str)
"""


@pytest.fixture
def settings(tmp_path: Path) -> RewardSettings:
    (tmp_path / "mine.py").write_text(COMPONENTS)
    kinds = {"one": "One", "again": "One"}
    components = {name: {"kind": f"{tmp_path}/mine.py:{kind}"} for name, kind in kinds.items()}
    return RewardSettings.model_validate({"components": components})


def answered(number: int) -> Trajectory:
    return Trajectory([Message("user", "?")], StopReason.ANSWERED, answer="4", ground_truth="4", id=f"u_{'0' * number}")


def test_of_components_that_raise_for_all_samples(settings: RewardSettings, tmp_path: Path) -> None:
    rank = {**settings.model_dump()["components"], "rank": {"kind": f"{tmp_path}/mine.py:Rank"}}
    together = RewardSettings.model_validate({"components": rank})

    async def score(given: RewardSettings) -> None:
        reward = Reward(given)

        group = groups.Group(6)

        async def session(number: int) -> Any:
            group.join()
            return await group.score(reward, answered(number), None)

        tasks = [asyncio.ensure_future(session(number)) for number in range(6)]
        await asyncio.sleep(0.001)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert complaints(lambda: score(settings)) == []
    assert complaints(lambda: score(together)) == []
    assert complaints(lambda: Reward(settings).score_group([answered(number) for number in range(6)])) == []
