"""Calls a user's reward function, whatever signature it has.

    def score(solution_str, ground_truth, extra_info): ...                     # the form of this package's scorers
    def score(data_source, solution_str, ground_truth, extra_info=None): ...   # verl's
    def score(ground_truth, solution_str, **kwargs): ...                       # by name, in any order
    def score(data_sources, solution_strs, ground_truths, extra_infos): ...    # a batch: lists of one, and one score
    async def score(...): ...

Parameters with these names are passed by keyword. A function with other names is called by position: two parameters
are the answer and the ground truth, a third is `extra_info`, and four are verl's. Any other signature is refused when
the configuration is read.
"""

from __future__ import annotations

import asyncio
import inspect
import reprlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from inspect import Parameter
from typing import Any, NoReturn, SupportsFloat

from agent_rl.rewards.scorers import Scorer
from agent_rl.rewards.scorers.scorer import as_entries
from agent_rl.settings.errors import Place
from agent_rl.trajectory import ToolStatus, Trajectory

__all__ = ["CUSTOM_FUNCTION", "UserFunction", "scorer_info"]

CUSTOM_FUNCTION = "reward.custom_reward_function"
"""The section of verl's configuration that names the user's reward function."""

NAMES = ("data_source", "solution_str", "ground_truth", "extra_info")
BATCH = {f"{name}s": name for name in NAMES}
BY_POSITION = {2: NAMES[1:3], 3: NAMES[1:], 4: NAMES}
"""The arguments of a function whose parameters have other names, by the number of those without a default."""
REMEDY = "Take data_source, solution_str, ground_truth and extra_info by these names, in any order, or some of them"


class UserFunction:
    """A user's reward function, called with verl's four arguments.

    Args:
        function: a function with one of the signatures above.
        place: the configuration key that names it.
        options: keyword arguments of every call: `reward_kwargs` in verl's configuration.
        more: names of further keyword arguments, passed to a function that accepts them.

    Attributes:
        is_async: whether a call returns an awaitable.

    Raises:
        ConfigError: the function cannot be called with these arguments; the message shows its signature.
    """

    def __init__(
        self, function: Any, place: Place, *, options: Mapping[str, Any] | None = None, more: Collection[str] = ()
    ) -> None:
        if not callable(function) or isinstance(function, type):
            problem = f"it is a {type(function).__name__}, not a function"
            raise place.error(problem, "Name a function (solution_str, ground_truth, extra_info) -> float")
        self._function: Callable[..., Any] = function
        self._options, self._place = dict(options or {}), place
        self.is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # a builtin without a signature
            parameters = [Parameter(name, Parameter.KEYWORD_ONLY) for name in NAMES]
        self._open = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
        self._known = {each.name for each in parameters if each.kind not in _VARIABLE}
        self._is_batch = not self._known.isdisjoint(BATCH)
        self._in_order = self._order(parameters, {*(BATCH if self._is_batch else NAMES), *self._options, *more})

    def __call__(
        self, data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any], **more: Any
    ) -> Any:
        """Return the function's result for one answer, or an awaitable of it.

        Args:
            data_source: the row's data source.
            solution_str: the answer, or the whole response.
            ground_truth: the row's ground truth.
            extra_info: a dict, by default `scorer_info`.
            more: further keyword arguments.
        """
        values: dict[str, Any] = dict(zip(NAMES, (data_source, solution_str, ground_truth, extra_info), strict=True))
        if self._in_order:
            return self._function(*(values[name] for name in self._in_order), **self._options)
        if self._is_batch:
            values = {batch: [values[name]] for batch, name in BATCH.items()}
        values |= {**more, **self._options}
        result = self._function(**{name: values[name] for name in values if self._open or name in self._known})
        if not self._is_batch:
            return result
        return self._awaited(result) if inspect.isawaitable(result) else self._only(result)

    async def answer(self, *arguments: Any, threads: Executor | None = None, **more: Any) -> Any:
        """Return the result of a call without blocking the event loop.

        Args:
            arguments: the arguments of `__call__`.
            threads: executor of a function that is not a coroutine; None: asyncio's.
            more: further keyword arguments of `__call__`.
        """
        if self.is_async:
            return await self(*arguments, **more)
        result = await asyncio.get_running_loop().run_in_executor(threads, partial(self, *arguments, **more))
        return await result if inspect.isawaitable(result) else result

    async def judge(
        self, trajectory: Trajectory, text: str, threads: Executor | None = None
    ) -> tuple[float, dict[str, float]]:
        """Return the verdict on a trajectory and the other numbers that the function returns.

        Args:
            trajectory: passed as a dict in `extra_info["trajectory"]`.
            text: its answer or response.
            threads: see `answer`.

        Raises:
            TypeError: the function does not return a number; its own exceptions are passed on.
        """
        info = {**scorer_info(trajectory), "trajectory": trajectory.to_dict()}
        result = await self.answer(trajectory.data_source, text, trajectory.ground_truth, info, threads=threads)
        numbers = {key: float(value) for key, value in as_entries(result).items() if isinstance(value, SupportsFloat)}
        if "score" not in numbers:
            raise TypeError(f"it returned {reprlib.repr(result)}, neither a number nor a dict with a 'score'")
        return numbers.pop("score"), numbers

    def scorer(self, name: str) -> Scorer:
        """Return the function as a scorer; the data source is `extra_info["data_source"]`."""
        return Scorer(name, self._score_async if self.is_async else self._score)

    def _score(self, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Any:
        return self(str(extra_info.get("data_source") or ""), solution_str, ground_truth, extra_info)

    async def _score_async(self, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Any:
        return await self._score(solution_str, ground_truth, extra_info)

    def _order(self, parameters: Sequence[Parameter], given: Collection[str]) -> tuple[str, ...]:
        """Return the names of the positional arguments; empty if all are passed by keyword."""
        if unknown := sorted(set(self._options) - self._known) if not self._open else ():
            self._refuse(f"reward_kwargs has {', '.join(unknown)}, which it does not accept", "Remove it from one side")
        needed = [each for each in parameters if each.default is Parameter.empty and each.kind not in _VARIABLE]
        unknown = [each.name for each in needed if each.name not in given or each.kind is Parameter.POSITIONAL_ONLY]
        answers = {"solution_str", "solution_strs"}
        if not unknown and (self._open or self._known & answers):
            return ()
        if not needed and any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
            return BY_POSITION[3]
        slots = [each for each in needed if each.name not in self._options]
        order = BY_POSITION.get(len(slots), ())
        misplaced = any(
            each.kind is Parameter.KEYWORD_ONLY or (each.name in NAMES and each.name != name)
            for each, name in zip(slots, order, strict=False)
        )
        if self._is_batch or not order or misplaced:
            self._refuse(f"there is no value for {', '.join(unknown)}" if unknown else "it takes no answer", REMEDY)
        return order

    def _refuse(self, problem: str, remedy: str) -> NoReturn:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        raise self._place.error(f"{name}{inspect.signature(self._function)} cannot be called: {problem}", remedy)

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        return self._only(await result)

    def _only(self, results: Any) -> Any:
        """Return the result of a batch of one answer."""
        results = results.tolist() if hasattr(results, "tolist") else results
        if not isinstance(results, Sequence) or isinstance(results, str) or len(results) != 1:
            problem = f"it returned {reprlib.repr(results)} for a batch of one answer"
            raise self._place.error(problem, "Return a list with one score, or one dict, for each answer")
        return results[0]


_VARIABLE = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)


def scorer_info(trajectory: Trajectory) -> dict[str, Any]:
    """Build a scorer's `extra_info`: the row's own, the rest of its `reward_model`, and numbers of the episode.

    The numbers override entries of the row with the same names, unless the agent is unknown: then the trajectory is a
    request to a reward service, whose own `extra_info` may have them. `num_turns` counts messages as verl does: the
    prompt, the policy's turns and the environment's answers. `executed_calls` are the successful calls in order, as
    `{name, arguments}`. `answer_marked` tells whether an agent submitted the answer as final; otherwise the answer may
    be the whole response.
    """
    asked = [message.content for message in trajectory.prompt if message.role == "user"]
    given = {key: value for key, value in (trajectory.row.get("reward_model") or {}).items() if key != "ground_truth"}
    row = {"original_prompt": asked[-1] if asked else "", **trajectory.info, **given, **trajectory.extra_info}
    whole = not trajectory.agent and [turn.text for turn in trajectory.turns] == [trajectory.answer]
    episode = {
        "answer_marked": trajectory.answer is not None and not whole,
        "data_source": trajectory.data_source,
        "num_turns": 1 + len(trajectory.turns) + sum(turn.observation is not None for turn in trajectory.turns),
        "num_tool_calls": trajectory.tool_calls,
        "tool_errors": trajectory.tool_errors,
        "malformed_turns": trajectory.malformed_turns,
        "stop_reason": trajectory.stop_reason.value,
        "tool_rewards": [result.reward for result in trajectory.results if result.reward is not None],
        "response_tokens": trajectory.response_tokens,
        "seconds": trajectory.seconds,
    }
    if not trajectory.agent:
        return {**episode, **row}
    return {**row, **episode, "executed_calls": _executed(trajectory)}


def _executed(trajectory: Trajectory) -> list[dict[str, Any]]:
    pairs = (pair for turn in trajectory.turns for pair in zip(turn.calls, turn.results, strict=False))
    return [{"name": call.name, "arguments": call.arguments} for call, result in pairs
            if result.status is ToolStatus.OK]  # fmt: skip
