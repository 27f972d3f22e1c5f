"""Calls a user's reward function, which may have any of the signatures below.

    def score(solution_str, ground_truth, extra_info): ...                     # the signature of this package's scorers
    def score(data_source, solution_str, ground_truth, extra_info=None): ...   # verl's signature
    def score(ground_truth, solution_str, **kwargs): ...                       # any order, by name
    def score(data_sources, solution_strs, ground_truths, extra_infos): ...    # a batch: lists with one item each
    async def score(...): ...

Arguments are passed by keyword to parameters with the names above. A function with other parameter names is called by
position: with the answer and the ground truth, with `extra_info` as a third argument, or with verl's four arguments.
Any other signature is rejected when the configuration is read.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import reprlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from inspect import Parameter
from typing import Any, NoReturn, SupportsFloat

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers import Scorer
from agent_rl.rewards.scorers.scorer import as_entries
from agent_rl.settings.errors import Place
from agent_rl.settings.user_code import sort_out
from agent_rl.trajectory import ToolStatus, Trajectory

CUSTOM_FUNCTION = "reward.custom_reward_function"
"""The section of verl's configuration with the user's reward function."""

NAMES = ("data_source", "solution_str", "ground_truth", "extra_info")
BATCH = {f"{name}s": name for name in NAMES}
BY_POSITION = {2: NAMES[1:3], 3: NAMES[1:], 4: NAMES}
"""Arguments to pass to a function with other parameter names, by the number of its parameters without a default."""
REMEDY = "Name the parameters data_source, solution_str, ground_truth and extra_info, or use only some of these names"


class UserFunction:
    """A user's reward function, called with verl's four arguments.

    Args:
        function: a function with one of the signatures in the module's docstring.
        place: the configuration key that names the function.
        options: keyword arguments that are added to every call: `reward_kwargs` in verl's configuration.
        more: names of other keyword arguments, which are passed if the function accepts them.

    Raises:
        ConfigError: the function cannot be called with these arguments; the message shows its signature.
    """

    def __init__(
        self, function: Any, place: Place, *, options: Mapping[str, Any] | None = None, more: Collection[str] = ()
    ) -> None:
        if not callable(function) or isinstance(function, type):
            problem = f"the object is a {type(function).__name__}, not a function"
            raise place.error(problem, "Use the name of a function (solution_str, ground_truth, extra_info) -> float")
        self._function: Callable[..., Any] = function
        self._options, self._place = dict(options or {}), place
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # built-in functions may have no signature
            parameters = [Parameter(name, Parameter.KEYWORD_ONLY) for name in NAMES]
        self._takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
        self._names = {parameter.name for parameter in parameters if parameter.kind not in _VARIABLE}
        self._is_batch = not self._names.isdisjoint(BATCH)
        self._in_order = self._order(parameters, {*(BATCH if self._is_batch else NAMES), *self._options, *more})

    def __call__(
        self, data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any], **more: Any
    ) -> Any:
        """Return the function's result for one answer, or an awaitable of the result.

        Args:
            data_source: the row's data source.
            solution_str: the answer, or the whole response.
            ground_truth: the row's ground truth.
            extra_info: a mapping such as the result of `scorer_info`.
            more: other keyword arguments.
        """
        values: dict[str, Any] = dict(zip(NAMES, (data_source, solution_str, ground_truth, extra_info), strict=True))
        if self._in_order:
            return self._function(*(values[name] for name in self._in_order), **self._options)
        if self._is_batch:
            values = {batch: [values[name]] for batch, name in BATCH.items()}
        values |= {**more, **self._options}
        result = self._function(**{name: values[name] for name in values if self._takes_any or name in self._names})
        if not self._is_batch:
            return result
        return self._awaited(result) if inspect.isawaitable(result) else self._only(result)

    async def answer(self, *arguments: Any, threads: Executor | None = None, **more: Any) -> Any:
        """Return the result of a call without blocking the event loop.

        Args:
            arguments: the positional arguments of `__call__`.
            threads: the executor in which the function is called; None means asyncio's default executor. A coroutine
                runs in the event loop.
            more: the keyword arguments of `__call__`.
        """
        result = await asyncio.get_running_loop().run_in_executor(threads, partial(self, *arguments, **more))
        return await result if inspect.isawaitable(result) else result

    async def judge(
        self,
        trajectory: Trajectory,
        text: str,
        info: Mapping[str, Any] | None = None,
        *,
        stops: bool = True,
        **more: Any,
    ) -> tuple[float, dict[str, float]]:
        """Return the verdict on a trajectory and the other numbers that the function returns.

        Args:
            trajectory: the trajectory to judge; the function receives it as a dict in `extra_info["trajectory"]`.
            text: the trajectory's answer or response.
            info: entries of `extra_info` in addition to `scorer_info`.
            stops: whether an exception from the function stops the run.
            more: the keyword arguments of `answer`.

        Raises:
            UnscoredError: a number is not finite, or an exception from the function leaves the trajectory unscored.
            ConfigError: the function returned neither a number nor a dict with a score.
            UserCodeError: the function raised an exception.
        """
        info = {**scorer_info(trajectory), **(info or {}), "trajectory": trajectory.to_dict()}
        try:
            result = await self.answer(trajectory.data_source, text, trajectory.ground_truth, info, **more)
        except Exception as error:  # the user's function may raise anything; `sort_out` classifies the error
            what, remedy = self._place.key.rpartition(".")[0], f"The trajectory is {trajectory.id!r}"
            raise sort_out(what or self._place.key, error, stops=stops, remedy=remedy) from error
        numbers = {key: float(value) for key, value in as_entries(result).items() if _is_number(value)}
        if "score" not in numbers:
            problem = f"the function returned {reprlib.repr(result)}, neither a number nor a dict with a 'score'"
            raise self._place.error(problem, "Return a number, or a dict with a number under 'score'")
        if invalid := [f"{key}={value}" for key, value in numbers.items() if not math.isfinite(value)]:
            raise UnscoredError(f"the custom reward function returned non-finite numbers: {', '.join(invalid)}")
        return numbers.pop("score"), numbers

    def scorer(self, name: str) -> Scorer:
        """Return a scorer that calls the function with `extra_info["data_source"]` as the data source."""
        return Scorer(name, self._score)

    def _score(self, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Any:
        return self(str(extra_info.get("data_source") or ""), solution_str, ground_truth, extra_info)

    def _order(self, parameters: Sequence[Parameter], known: Collection[str]) -> tuple[str, ...]:
        """Return the names of the positional arguments, or none if all arguments are passed by keyword."""
        if unknown := sorted(set(self._options) - self._names) if not self._takes_any else ():
            problem = f"it does not accept {', '.join(unknown)}, which reward_kwargs sets"
            self._refuse(problem, "Remove the key from reward_kwargs, or add the parameter")
        needed = [item for item in parameters if item.default is Parameter.empty and item.kind not in _VARIABLE]
        unknown = [item.name for item in needed if item.name not in known or item.kind is Parameter.POSITIONAL_ONLY]
        answers = {"solution_str", "solution_strs"}
        if not unknown and (self._takes_any or self._names & answers):
            return ()
        if not needed and any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
            return BY_POSITION[3]
        slots = [parameter for parameter in needed if parameter.name not in self._options]
        order = BY_POSITION.get(len(slots), ())
        misplaced = any(
            parameter.kind is Parameter.KEYWORD_ONLY or (parameter.name in NAMES and parameter.name != name)
            for parameter, name in zip(slots, order, strict=False)
        )
        if self._is_batch or not order or misplaced:
            problem = f"there is no value for {', '.join(unknown)}" if unknown else "no parameter takes the answer"
            self._refuse(problem, REMEDY)
        return order

    def _refuse(self, problem: str, remedy: str) -> NoReturn:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        raise self._place.error(f"{name}{inspect.signature(self._function)} cannot be called: {problem}", remedy)

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        return self._only(await result)

    def _only(self, results: Any) -> Any:
        """Return the only result of a batch with one answer."""
        results = results.tolist() if hasattr(results, "tolist") else results
        if not isinstance(results, Sequence) or isinstance(results, str) or len(results) != 1:
            problem = f"the function returned {reprlib.repr(results)} for a batch of one answer"
            raise self._place.error(problem, "Return a list with one score or one dict for each answer")
        return results[0]


def _is_number(value: Any) -> bool:
    is_text = isinstance(value, str | bytes)  # numpy's strings have __float__
    return isinstance(value, SupportsFloat) and not is_text and not getattr(value, "ndim", 0)


_VARIABLE = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)


def scorer_info(trajectory: Trajectory) -> dict[str, Any]:
    """Build a scorer's `extra_info` from the row's `extra_info` and `reward_model`, and from data about the episode.

    The episode's data overrides the row's entries with the same names. If the agent is unknown, the trajectory comes
    from a request to a reward service, and the row's entries override the episode's data. `num_turns` counts
    messages as verl does: the prompt, the policy's turns and the environment's answers. `executed_calls` lists the
    successful calls in order, as `{name, arguments}`. `answer_marked` is true if an agent submitted a final answer;
    otherwise the answer may be the whole response.
    """
    questions = [message.content for message in trajectory.prompt if message.role == "user"]
    extra = {key: value for key, value in (trajectory.row.get("reward_model") or {}).items() if key != "ground_truth"}
    row = {"original_prompt": questions[-1] if questions else "", **trajectory.info, **extra, **trajectory.extra_info}
    whole_response = not trajectory.agent and [turn.text for turn in trajectory.turns] == [trajectory.answer]
    episode = {
        "answer_marked": trajectory.answer is not None and not whole_response,
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
