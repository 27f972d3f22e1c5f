"""Checks that try the user's code once, on real rows, before a GPU is used.

The checks create hooks, simulated users and tools, start the users and tools, and score a made-up episode with
components and scorers. Without these checks, an exception in the user's code would occur in every worker, after the
model is loaded, and would look like the policy's failure. A tool's `call` and a hook's methods are not tried, because
they may have side effects. Service outages are not reported, because they are not problems with the code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from agent_rl.agents.episode.hooks import Hooks
from agent_rl.agents.episode.loop import EpisodeSetup, new_trajectory
from agent_rl.agents.registry import StartsTrainingError, agent_names, load_script, make_loop, registered
from agent_rl.agents.sessions.program import function_worker
from agent_rl.agents.users.user import User, load_user, opened
from agent_rl.errors import AgentRLError, ConfigError, FatalError, ObservationError, UnscoredError
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import Finding, check, skipped
from agent_rl.rewards import Reward
from agent_rl.rewards.component import Component, GroupComponent, as_value
from agent_rl.rewards.scorers import score_answer
from agent_rl.rewards.user_function import CUSTOM_FUNCTION, UserFunction, scorer_info
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.importing import method_problem
from agent_rl.settings.user_code import UserCodeError, is_outage, is_users
from agent_rl.tools import ToolSpec
from agent_rl.tools.base import TrajectoryScope
from agent_rl.trajectory import StopReason, Trajectory, Turn
from agent_rl.work.concurrency import OutOfTime, within

Row = Mapping[str, Any]


@check("tools", at=("trainer",))
def readable_tools(case: RunCase) -> None:
    """The tool file can be read."""
    case.tools  # noqa: B018 - loads the tool file, and raises an error if that fails


@check("your code", "simulated user", at=("trainer", "doctor"))
def simulated_user(case: RunCase) -> None:
    """The simulated user exists and accepts its configuration."""
    load_user(case.settings.user_sim.user, case.settings.user_sim.config)


@check("your code", "program", at=("trainer", "doctor"))
def program(case: RunCase) -> None:
    """The interpreter for `gateway_agent` can import the agent's function."""
    if case.settings.gateway.function is not None:
        function_worker(case.settings.gateway).close()


@check("your code", "tried on a row", at=("trainer", "doctor"))
def own_code(case: RunCase) -> list[Finding | FatalError]:
    """Hooks, users and tools can be created, users and tools can be started, and an answer can be scored.

    The user's script runs up to its main block, so that its agents are registered.
    """
    findings: list[Finding | FatalError] = []
    if case.script is not None:
        try:
            load_script(str(case.script))
        except StartsTrainingError as error:
            findings.append(skipped(f"the script's agents were not tried: {error.problem}", error.remedy))
        except FatalError as error:
            findings.append(error)
    reward, tools = None, list[ToolSpec]()
    with suppress(AgentRLError):  # a check in the group "tools" reports the error
        tools = case.tools
    with suppress(FatalError):  # a check in the group "reward" reports the error
        reward = case.reward if case.scored_by_ours else None
    rows = [row for row in (case.rows if case.has_rows_of_ours else ()) if "prompt" in row]  # "data" reports others
    findings += own_code_problems(EpisodeSetup(case.settings, tools=tools), rows, case.default_agent, reward)
    return findings


def own_code_problems(
    setup: EpisodeSetup, rows: Sequence[Row], default_agent: str, reward: Reward | None = None
) -> list[FatalError]:
    """Return the problems found in the user's tools, hooks, simulated users, components and scorers.

    Args:
        setup: the run's settings and tools.
        rows: some of the run's rows in stored form; the first row of each agent is tried.
        default_agent: the agent for rows without `agent_name`.
        reward: the run's reward, or None if agent_rl does not compute it.

    Returns:
        One error per problem, which names the file and line.
    """
    trial = _Trial(setup, rows, default_agent)
    return trial.problems_of(trial.run(reward))


def function_problems(
    settings: AgentRLSettings, row: Row, default_agent: str, function: UserFunction
) -> list[FatalError]:
    """Return the problems that `reward.custom_reward_function` has when it scores an answer to a row."""
    trial = _Trial(EpisodeSetup(settings), [row], default_agent)
    return trial.problems_of(trial.function(function)) if settings.reward.on_error == "stop" else []


class _Trial:
    def __init__(self, setup: EpisodeSetup, rows: Sequence[Row], default_agent: str) -> None:
        self.setup, self.rows = setup, rows
        self.problems: list[FatalError] = []
        self.by_agent: dict[str, Row] = {}
        for row in rows:
            self.by_agent.setdefault(str(row.get("agent_name") or default_agent), row)

    def problems_of(self, work: Coroutine[Any, Any, None]) -> list[FatalError]:
        with ThreadPoolExecutor(1) as thread:  # the caller may already be running an event loop
            thread.submit(asyncio.run, work).result()
        return list({str(error): error for error in self.problems}.values())

    async def run(self, reward: Reward | None) -> None:
        for agent, row in self.by_agent.items():
            if agent in agent_names() or agent in registered:
                await self.agent(agent, row)
        for spec in self.setup.tools if self.rows else []:  # creating a tool may need a row's arguments
            if not spec.is_verl and not spec.cls.__module__.startswith("agent_rl.tools.builtin."):
                await self.tool(spec)
        if reward is not None and self.rows and self.setup.settings.reward.on_error == "stop":
            await self.reward(reward, self.answered())

    async def agent(self, name: str, row: Row) -> None:
        """Create the agent's hooks and the row's user, and start the user."""
        try:
            loop = make_loop(name, self.setup)
        except ConfigError:  # only verl's worker can run this class
            return
        await self.attempt(f"agent {name}", loop.format)
        hooks = await self.attempt("hooks: __init__", loop.hooks)
        user = await self.attempt("simulated user: __init__", lambda: loop.user(row))
        bases: tuple[tuple[str, Any, type], ...] = (("hooks", hooks, Hooks), ("user", user, User))
        for what, made, base in bases:
            if isinstance(made, base) and (problem := method_problem(type(made), base)):
                self.problems.append(ConfigError(f"the {what} of {name}", *problem))
        if user is not None and is_users(type(user)):
            await self.attempt("simulated user: start", lambda: opened(row["prompt"], user), type(user).start)
            await self.attempt("simulated user: finish", user.finish)

    async def tool(self, spec: ToolSpec) -> None:
        """Create the tool with the arguments of the first row that has any, start it and close it."""
        options = ((row.get("extra_info") or {}).get("tools_kwargs") or {} for row in self.rows)
        kwargs = next((value for each in options if (value := (each.get(spec.name) or {}).get("create_kwargs"))), None)
        what = f"tool {spec.name}"
        tool = await self.attempt(f"{what}: __init__", lambda: spec.create(kwargs), spec.cls)
        if tool is None:
            return
        tool.scope = TrajectoryScope()
        await self.attempt(f"{what}: start", tool.start, spec.cls.start)  # type: ignore[attr-defined]
        await self.attempt(f"{what}: close", tool.close, spec.cls.close)  # type: ignore[attr-defined]
        await tool.scope.close()

    async def reward(self, reward: Reward, trajectory: Trajectory) -> None:
        """Measure a trajectory with the user's components and scorers."""
        for scorer in reward.scorers:
            if not scorer.built_in:
                arguments = scorer, trajectory.answer, trajectory.ground_truth, scorer_info(trajectory)
                await self.attempt(f"scorer {scorer.name}", partial(score_answer, *arguments))
        for component in reward.components:
            if is_users(type(component)):
                method = component.measure if isinstance(component, Component) else component.measure_group
                await self.attempt(f"component {component.name}", partial(_measure, component, trajectory), method)

    async def function(self, function: UserFunction) -> None:
        """Score a trajectory with the custom reward function."""
        trajectory = self.answered()
        info = {**scorer_info(trajectory), "trajectory": trajectory.to_dict(), "rollout_reward_scores": {}}
        arguments = function.scorer(CUSTOM_FUNCTION), trajectory.answer, trajectory.ground_truth, info
        await self.attempt(CUSTOM_FUNCTION, partial(score_answer, *arguments))

    def answered(self) -> Trajectory:
        """Return a one-turn episode for the first row, in which the agent answers with the ground truth."""
        agent, row = next(iter(self.by_agent.items()))
        return answered(row, str((row.get("reward_model") or {}).get("ground_truth")), agent)

    async def attempt(self, what: str, work: Callable[[], Any], code: Any = None) -> Any:
        """Call `work` and return its awaited result, or None after a timeout or an error; record the user's errors."""
        try:
            result = work()
            return await within(self.setup.settings.budget.tool_timeout_s, _value(result))
        except FatalError as error:
            self.problems.append(error)
        except (OutOfTime, ObservationError):  # not a problem, because the policy sees this error in training
            pass
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises is reported to the user
            cause = error.__cause__ if isinstance(error, UnscoredError) else error
            if cause is not None and not is_outage(cause):
                self.problems.append(UserCodeError.of(what, cause, code=code))
        return None


def answered(row: Row, answer: str, agent: str) -> Trajectory:
    """Return a one-turn episode for a row, in which the agent gives this answer."""
    index = (row.get("extra_info") or {}).get("index")
    trajectory = new_trajectory({**row, "raw_prompt": row["prompt"], "index": index, "uid": "trial"}, agent)
    trajectory.stop_reason, trajectory.turns, trajectory.answer = StopReason.ANSWERED, [Turn(text=answer)], answer
    return trajectory


async def _value(result: Any) -> Any:
    return await result if isinstance(result, Awaitable) else result


async def _measure(component: Component | GroupComponent, trajectory: Trajectory) -> None:
    if isinstance(component, Component):
        as_value(await component.measure(trajectory))
    else:
        for value in await component.measure_group([trajectory, trajectory]):
            as_value(value)
