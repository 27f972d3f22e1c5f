"""Creates the cold start of an environment from episodes of the expert `solve` and spoiled copies of these episodes.

Episodes of the expert alone would leave nothing to learn. With spoiled copies, about 0.4 of the first episodes succeed,
and reinforcement learning finds that acting like the expert earns a higher reward.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import hashlib
import inspect
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from agent_rl.data.worlds.world import Habit, Turns, World, native_turn, react_answer, react_call
from agent_rl.environments.kind import NAME, ROW, SPLITS, EnvironmentType, environment_rows, row_values, tool_names
from agent_rl.environments.loading import load_environment
from agent_rl.environments.session import EnvironmentSession
from agent_rl.errors import AgentRLError, ConfigError, ObservationError, UnscoredError
from agent_rl.settings.user_code import defined_at, is_users
from agent_rl.trajectory import StopReason, Trajectory

WORLD = "environment"
"""The value of `agent_rl.cold_start.world` that selects the experts of `agent_rl.environments`."""
SUCCESS = 0.4
"""The share of the expert's own episodes in the cold start if no spoiled copy succeeds."""
SAMPLE = 48
"""Number of rows on which each habit's success is measured; spoiled copies borrow arguments from these rows."""
LIMIT_S = 60.0


@dataclass(frozen=True)
class ExpertTurn:
    """A turn of the expert: a tool call, or a message if `tool` is empty."""

    tool: str
    arguments: Mapping[str, Any]
    message: str = ""


_Episode = tuple[ExpertTurn, ...]


def expert_turns(kind: EnvironmentType, values: Mapping[str, Any]) -> tuple[ExpertTurn, ...]:
    """Run the expert on a row, and return the expert's turns; the last turn is the answer.

    Raises:
        ConfigError: the class has no `solve`, or `solve` raises an exception; the error names the line.
    """
    require_expert(kind)
    steps: list[ExpertTurn] = []
    methods = {name: _recorded(kind, name, steps) for name in tool_names(kind.cls)}

    def say(self: Any, message: str) -> Any:
        steps.append(ExpertTurn("", {}, message))
        return super(type(self), self).say(message)

    recorder = type(kind.cls.__name__, (kind.cls,), {**methods, "say": say})

    async def run() -> str:
        session = EnvironmentSession(replace(kind, cls=recorder), values, LIMIT_S, Trajectory([], StopReason.ERROR))
        try:
            await session.reset()
            answer = await session.run("solve")
        finally:
            await session.close()
        return str(answer if answer is not None else "")

    try:
        steps.append(ExpertTurn("", {}, asyncio.run(run())))
        return tuple(steps)
    except UnscoredError as error:  # the expert timed out, or has a bug, and the error names its line
        raise ConfigError(kind.target, str(error), "Correct the expert so that it solves every row") from error


def require_expert(kind: EnvironmentType) -> None:
    """Reject an environment without an expert.

    Raises:
        ConfigError: the class has no `solve`.
    """
    if not kind.has("solve"):
        problem = f"{kind.cls.__qualname__} ({defined_at(kind.cls)}) has no solve, which a small model needs"
        raise ConfigError(kind.target, problem, "Define solve(self), or name a model with --model")


def _recorded(kind: EnvironmentType, name: str, steps: list[ExpertTurn]) -> Callable[..., Any]:
    @contextmanager
    def recording(self: Any, values: Any, arguments: Any) -> Iterator[Callable[..., Any]]:
        call = getattr(super(type(self), self), name)
        bound = inspect.signature(call).bind(*values, **arguments)
        inside = getattr(self, "_inside_tool", False)
        if not inside:  # if a tool calls another tool, only the outer call is a turn
            steps.append(ExpertTurn(name, copy.deepcopy(dict(bound.arguments))))
        self._inside_tool = True
        try:
            yield call
        finally:
            self._inside_tool = inside

    def method(self: Any, *values: Any, **arguments: Any) -> Any:
        with recording(self, values, arguments) as call:
            return call(*values, **arguments)

    async def async_method(self: Any, *values: Any, **arguments: Any) -> Any:
        with recording(self, values, arguments) as call:
            return await call(*values, **arguments)

    return async_method if inspect.iscoroutinefunction(getattr(kind.cls, name)) else method


def worked_world(names: Mapping[str, str]) -> World:
    """Return the world whose habits repeat the experts' episodes, either exactly or with spoiled steps.

    Args:
        names: the `agent_rl.environments` section.
    """
    kinds = {name: load_environment(name, target) for name, target in names.items()}
    pool: list[tuple[str, _Episode]] = []

    @cache
    def solved_row(name: str, text: str) -> _Episode:
        return expert_turns(kinds[name], json.loads(text))

    def turns(habit: str, row: Mapping[str, Any], rng: random.Random) -> Turns:
        name, text = row["extra_info"][NAME], row["extra_info"][ROW]
        solved, (thought, spoil) = solved_row(name, text), _HABITS[habit]
        if habit == "other_argument" and len(pool) < SAMPLE:
            pool.append((name, solved))
        others = [each for owner, each in pool if owner == name]
        return _written(spoil(solved, others, rng), thought, row["agent_name"])

    def more(rows: Sequence[Mapping[str, Any]], test: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return _with_other_digits(kinds, rows, {json.dumps(row["prompt"]) for row in test})

    def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
        rest = {}
        for split in SPLITS:
            rows = [row for kind in kinds.values() for row in environment_rows(kind, split, seed)]
            rest[split] = iter(random.Random(f"{seed}/{split}").sample(rows, len(rows)))
        return {split: list(islice(rest["test" if split == "test" else "train"], count))
                for split, count in counts.items()}  # fmt: skip

    classes = [kinds[name].cls for name in sorted(kinds)]
    bases = [base for cls in classes for base in cls.__mro__ if base is cls or is_users(base)]
    codes = (Path(file).read_text(encoding="utf-8") for file in dict.fromkeys(map(inspect.getfile, bases)))
    # comments and blank lines do not change the hash
    digest = hashlib.sha256("".join(ast.dump(ast.parse(code)) for code in codes).encode())
    habits: dict[str, Habit] = {name: partial(turns, name) for name in _HABITS} | {"unreadable": _unreadable}
    return World(WORLD, write, habits, baselines=("at_once",), more=more, version=digest.hexdigest())


def habit_shares(kind: EnvironmentType, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return each habit's share of the episodes, chosen so that about `SUCCESS` of all episodes succeed.

    Args:
        kind: the environment.
        rows: rows in the form that `environment_rows` returns.

    Raises:
        ConfigError: the expert's episodes have no higher reward than the spoiled copies.
    """
    rng = random.Random(0)
    rows = rows[:SAMPLE]
    solved = [expert_turns(kind, row_values(row)) for row in rows]
    spoiled = {
        name: [_HABITS[name][1](each, solved, rng) for each in solved]
        for name in ("left_out", "other_argument", "at_once")
    }
    best = fmean(_rewards(kind, rows, solved))
    rewards = {name: fmean(_rewards(kind, rows, its)) for name, its in spoiled.items()} | {"unreadable": 0.0}
    worst = min(rewards.values())
    if best <= max(rewards.values()):
        problem = f"solve has a mean reward of {best:.2f}, no more than spoiled copies of it ({rewards})"
        where = f"{kind.cls.__name__}.solve ({defined_at(kind.cls.solve)})"
        raise ConfigError(where, problem, "Correct solve or get_reward")
    success = {name: (reward - worst) / (best - worst) for name, reward in rewards.items()}
    share = 0.5 - fmean(success.values()) / 2  # the oracle's share is lower if spoiled copies also succeed
    share = max(SUCCESS / 2, min(SUCCESS, share))
    return {"oracle": round(share, 2)} | dict.fromkeys(success, round((1 - share) / len(success), 2))


def _rewards(kind: EnvironmentType, rows: Sequence[Mapping[str, Any]], episodes: Sequence[_Episode]) -> list[float]:
    async def reward(values: Mapping[str, Any], episode: _Episode) -> float:
        trajectory = Trajectory([], StopReason.ANSWERED)
        session = EnvironmentSession(kind, values, LIMIT_S, trajectory)
        try:
            await session.reset()
            turns = 0.0
            for step in episode:
                if session.done or trajectory.answer is not None:
                    break
                if step.tool:
                    try:
                        earned = (await session.call(step.tool, dict(step.arguments))).reward
                    except ObservationError as error:
                        earned = error.reward
                    turns += earned or 0.0
                else:
                    text, reward_of_turn = await session.step(step.message)
                    turns += reward_of_turn or 0.0
                    trajectory.answer = step.message if text is None else None
            value = await session.reward()
        finally:
            await session.close()
        return (turns if kind.rewards_turns else 0.0) + (sum(value.values()) if isinstance(value, dict) else value)

    async def rewards() -> list[float]:
        return [await reward(row_values(row), episode) for row, episode in zip(rows, episodes, strict=True)]

    return asyncio.run(rewards())


def _with_other_digits(
    kinds: Mapping[str, EnvironmentType], rows: Sequence[Mapping[str, Any]], excluded: set[str]
) -> list[dict[str, Any]]:
    """Return copies of rows with exchanged digits, if the expert solves all copies equally well.

    From these copies, a tiny model learns to copy any number instead of only the numbers in the training rows.

    Args:
        kinds: the environments by name.
        rows: rows in the form that `environment_rows` returns.
        excluded: prompts, as JSON, that must not occur in copies.
    """
    rng, copies = random.Random(0), []
    for row in rows:
        digits = rng.sample("123456789", 9)  # without 0, so that no new number begins with 0
        table = str.maketrans("123456789", "".join(digits))
        prompt = [
            message
            if message["role"] == "system"
            else json.loads(json.dumps(message, ensure_ascii=False).translate(table))
            for message in row["prompt"]
        ]
        info = row["extra_info"] | {ROW: row["extra_info"][ROW].translate(table)}
        if json.dumps(prompt) not in excluded:
            copies.append({**row, "prompt": prompt, "extra_info": info})
    kept = []
    for name, kind in kinds.items():
        own = [copy for copy in copies if copy["extra_info"][NAME] == name]
        sample = own[:SAMPLE]
        try:
            rewards = _rewards(kind, sample, [expert_turns(kind, row_values(copy)) for copy in sample])
        except AgentRLError:
            continue
        kept += own if rewards and min(rewards) == max(rewards) > 0 else []
    return kept


def _without_one(solved: _Episode, others: Sequence[_Episode], rng: random.Random) -> _Episode:
    if len(solved) == 1:
        return solved
    place = rng.randrange(len(solved) - 1)
    return (*solved[:place], *solved[place + 1 :])


def _with_other_argument(solved: _Episode, others: Sequence[_Episode], rng: random.Random) -> _Episode:
    """Return the episode with one argument replaced by an argument that the expert used in another row."""
    places = [number for number, step in enumerate(solved) if step.arguments]
    if not places:
        return solved
    place = rng.choice(places)
    step = solved[place]
    known = [each for other in others for each in other if each.tool == step.tool]
    name = rng.choice(list(step.arguments))
    values = [each.arguments[name] for each in known if each.arguments.get(name) not in (None, step.arguments[name])]
    if not values:
        return solved
    changed = replace(step, arguments={**step.arguments, name: rng.choice(values)})
    return (*solved[:place], changed, *solved[place + 1 :])


def _at_random(solved: _Episode, others: Sequence[_Episode], rng: random.Random) -> _Episode:
    """Return some of the expert's steps, drawn at random and with random digits, and then the expert's answer."""
    steps: list[ExpertTurn] = []
    while len(solved) > 1 and rng.random() < 0.7:
        step = rng.choice(solved[:-1])
        arguments = json.dumps(dict(step.arguments)).translate({ord(d): rng.choice("123456789") for d in "123456789"})
        steps.append(replace(step, arguments=json.loads(arguments)))
    return (*steps, solved[-1])


_HABITS: dict[str, tuple[str, Callable[[_Episode, Sequence[_Episode], random.Random], _Episode]]] = {
    "oracle": ("Step by step.", lambda solved, others, rng: solved),
    "left_out": ("Skip a step.", _without_one),
    "other_argument": ("Something like it.", _with_other_argument),
    "at_once": ("No need.", lambda solved, others, rng: solved[-1:]),
    "random": ("Try it.", _at_random),
}
"""For each habit, its thought, and the function that turns an expert's episode into an episode of the habit."""


def _written(episode: _Episode, thought: str, agent: str) -> Turns:
    native = agent == "tool_call_agent"
    for step in episode:
        values = list(step.arguments.values())
        if not step.tool:
            yield step.message if native else react_answer(thought, step.message)
        elif native:
            yield native_turn(thought, {"name": step.tool, "arguments": dict(step.arguments)})
        else:  # ReAct's format reads plain text as the value of a tool's only argument
            is_text = len(values) == 1 and isinstance(values[0], str)
            yield react_call(thought, step.tool, values[0] if is_text else dict(step.arguments))


def _unreadable(row: Mapping[str, Any], rng: random.Random) -> Turns:
    native = row["agent_name"] == "tool_call_agent"
    yield "<tool_call>\n{" if native else "Thought: Be quick.\nAction"
    yield "done" if native else react_answer("No need.", "done")
