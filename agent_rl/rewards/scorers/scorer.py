"""`Scorer`: a named function that scores one answer against the row's ground truth, for sync and async callers.

The function takes `(solution_str, ground_truth, extra_info)` and returns a number, or a dict with a number under
`score`. A function that needs a process or a server may return an awaitable instead.

Exceptions in a user's function reach the caller. A scorer in this package returns 0 for an answer that makes the scorer
raise an exception.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import logging
import math
import os
import reprlib
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat, TypeVar

from agent_rl.errors import AgentRLError, ConfigError, UnscoredError
from agent_rl.settings.user_code import is_outage

logger = logging.getLogger(__name__)

Result = float | dict[str, Any]
"""A number, or a dict with a number under `score`; verl logs the dict's other entries."""
ScorerFunction = Callable[[str, Any, Mapping[str, Any]], Result | Awaitable[Result]]
FunctionT = TypeVar("FunctionT", bound=ScorerFunction)


class GroundTruthError(UnscoredError):
    """Raised when the scorer cannot use the row's ground truth."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """A function that scores answers.

    `inline` means that a call takes at most 50 ms for any answer, so that it may run in the event loop. Other functions
    run in a thread, unless they are declared with `async def`.
    """

    name: str
    function: ScorerFunction
    inline: bool = False
    built_in: bool = False
    text: str = ""
    """One-sentence description, for use if the function's docstring describes several scorers."""

    def using(self, **options: Any) -> Scorer:
        """Return a copy of this scorer that calls its function with these keyword arguments."""
        return replace(self, function=functools.partial(self.function, **options)) if options else self


SCORERS: dict[str, Scorer] = {}
"""The built-in scorers by name; the mapping is complete once `agent_rl.rewards.scorers` is imported."""
ROUTES: dict[str, Scorer] = {}
"""The scorers by the names of their data sources, which may contain shell wildcards."""


def built_in(
    name: str, *sources: str, inline: bool = False, text: str = "", **options: Any
) -> Callable[[FunctionT], FunctionT]:
    """Register the decorated function as a scorer in this package; decorate it again for each set of options.

    Args:
        name: the scorer's name in a configuration.
        sources: patterns, with shell wildcards, of the data sources that use the scorer by default.
        inline: see `Scorer`.
        text: see `Scorer`.
        options: keyword arguments of the function for these data sources.
    """

    def declare(function: FunctionT) -> FunctionT:
        scorer = SCORERS.setdefault(name, Scorer(name, function, inline, built_in=True, text=text))
        ROUTES.update(dict.fromkeys(sources, scorer.using(**options)))
        return function

    return declare


def unusable(ground_truth: Any, expected: str) -> GroundTruthError:
    """Return the error for a row whose ground truth cannot be used.

    Args:
        ground_truth: the row's ground truth.
        expected: description of a usable ground truth.
    """
    problem = f"its ground truth is not {expected}: {reprlib.repr(ground_truth)}"
    return GroundTruthError(f"the row cannot be judged: {problem}")


def as_data(ground_truth: Any) -> Any:
    """Convert a ground truth to plain data, because lists from a parquet file are numpy arrays."""
    return ground_truth.tolist() if hasattr(ground_truth, "tolist") else ground_truth


async def score_answer(
    scorer: Scorer, solution_str: str | None, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> Result:
    """Score one answer without blocking the event loop.

    Args:
        scorer: a scorer from `find_scorer` or `route`.
        solution_str: the answer, or the whole response that contains it; None (no answer) is replaced by "".
        ground_truth: the row's ground truth.
        extra_info: the row's `extra_info`.

    Raises:
        UnscoredError: the ground truth cannot be used, or the scorer's sandbox or process failed.
        ConfigError: the scorer did not return a score.
        Exception: any exception that a user's function raises.
    """
    text, info = solution_str or "", extra_info or {}
    try:
        if scorer.inline or inspect.iscoroutinefunction(scorer.function):
            result = scorer.function(text, ground_truth, info)
        else:
            result = await asyncio.to_thread(scorer.function, text, ground_truth, info)
        if type(result) is not float and inspect.isawaitable(result):
            result = await result
    except Exception as error:  # noqa: BLE001 - `_without_score` re-raises an error of a user's function
        return await _without_score(scorer, text, ground_truth, info, error)
    return _checked(scorer, result)


def score_now(
    scorer: Scorer, solution_str: str | None, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> Result:
    """Score one answer like `score_answer`, for callers without an event loop; this blocks the calling thread."""
    try:
        result = scorer.function(solution_str or "", ground_truth, extra_info or {})
        if type(result) is not float and inspect.isawaitable(result):
            result = _wait_for(result)
    except Exception as error:  # noqa: BLE001 - `_without_score` re-raises a user's error, as in `score_answer`
        return _wait_for(_without_score(scorer, solution_str or "", ground_truth, extra_info or {}, error))
    return _checked(scorer, result)


async def _without_score(
    scorer: Scorer, text: str, ground_truth: Any, info: Mapping[str, Any], error: Exception
) -> Result:
    """Return 0 for an answer that made a scorer in this package raise an exception, unless the row is the cause.

    Raises:
        GroundTruthError: the scorer raises an exception for an empty answer too, so the row is the cause.
        Exception: `error` itself, if a user's function raised it, or if it is an outage or an error from agent_rl.
    """
    if not scorer.built_in or isinstance(error, AgentRLError) or is_outage(error):
        raise error
    if not text:
        raise unusable(ground_truth, f"one that the {scorer.name} scorer can read ({error!r})") from error
    await score_answer(scorer, "", ground_truth, info)
    logger.warning("the %s scorer returned 0 for an answer that it cannot read", scorer.name, exc_info=error)
    return 0.0


def as_entries(result: Any) -> dict[str, Any]:
    """Convert a scorer's result to a dict with the score under `score`; a `reward_score` key is renamed to `score`."""
    if not isinstance(result, Mapping):
        return {"score": result}
    return {"score" if key == "reward_score" and "score" not in result else str(key): result[key] for key in result}


def _checked(scorer: Scorer, result: Any) -> Result:
    if type(result) is float and math.isfinite(result):  # the most common result needs no further checks
        return result
    entries = as_entries(result)
    if not isinstance(score := entries.get("score"), SupportsFloat):
        problem = f"the scorer returned {reprlib.repr(result)}"
        remedy = "Return a number, or a dict with a number under 'score'"
        raise ConfigError(f"scorer {scorer.name}", problem, remedy)
    number = float(score)
    if not math.isfinite(number):
        raise UnscoredError(f"the {scorer.name} scorer returned {number}")
    return entries if isinstance(result, Mapping) else number


@functools.cache
def _background() -> tuple[asyncio.AbstractEventLoop, Callable[[], None]]:
    """Start an event loop in a thread; return it with a function that stops it. A forked process starts a new loop."""
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        running.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()  # when `serve` returns, asyncio.run cancels the remaining tasks

    thread = threading.Thread(target=asyncio.run, args=[serve()], name="agent_rl-scorers", daemon=True)
    thread.start()
    loop, stop = running.result()

    def end() -> None:
        loop.call_soon_threadsafe(stop.set)
        thread.join()

    atexit.register(close_background)
    return loop, end


def close_background() -> None:
    """Stop the event loop that `score_now` uses, if the loop is running."""
    if _background.cache_info().currsize:
        _, end = _background()
        _background.cache_clear()
        end()


os.register_at_fork(after_in_child=_background.cache_clear)


def _wait_for(awaitable: Awaitable[Result]) -> Result:
    async def wait() -> Result:
        return await awaitable

    loop, _ = _background()
    return asyncio.run_coroutine_threadsafe(wait(), loop).result()
