"""`ToolSession`: the tools of one trajectory, from the first call to the release of their state.

Every call gets an answer that the policy can use, even if the call was wrong. `run` raises only `UnscoredError`, for an
outage or a bug in the tool, and `FatalError`; in both cases, the turn's other calls are canceled.

First, the arguments of a call are checked; a slow check moves to a thread with a time limit. If the tool uses a
cache, the result of an equal call is taken from the cache. If the tool limits concurrency, the call waits in a queue.
Only then does the call's time limit start. The call runs, with retries if the tool allows them, and the result
is cut to the limit.

A plain `def` call that exceeds its time limit is abandoned, because a thread cannot be stopped. The daemon thread of an
abandoned call continues until the function returns or the process exits, and no longer counts toward the tool's
concurrency. An `async def` call that never awaits blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any

from agent_rl.errors import (
    ConfigError,
    FatalError,
    InvalidArgumentsError,
    ObservationError,
    ToolTimeoutError,
    UnknownToolError,
    UnscoredError,
    did_you_mean,
)
from agent_rl.settings.sections import ToolsSettings
from agent_rl.settings.user_code import BrokenCallError, is_outage
from agent_rl.tools.arguments import checked
from agent_rl.tools.base import ToolOutput, TrajectoryScope
from agent_rl.tools.declared import DeclaredFunction, as_answer
from agent_rl.tools.slot import MAX_SHOWN, Slot, shown
from agent_rl.tools.spec import ToolSpec
from agent_rl.tools.truncation import ResultLimit, encodable
from agent_rl.trajectory import ToolCall, ToolResult, ToolStatus
from agent_rl.work.concurrency import OutOfTime, together, uninterrupted, within
from agent_rl.work.store import Cache

_STATUS = {
    UnknownToolError: ToolStatus.UNKNOWN_TOOL,
    InvalidArgumentsError: ToolStatus.INVALID_ARGUMENTS,
    ToolTimeoutError: ToolStatus.TIMEOUT,
}

logger = logging.getLogger(__name__)


class ToolSession:
    """The tools of one trajectory; use it as an async context manager.

    A tool's instance is created and started at its first call, and closed once when the session ends for any reason. If
    a tool cannot start, all its calls in this trajectory return that error, unless the failure was transient and the
    tool has retries.

    Args:
        specs: the tools that this row may use.
        tools_kwargs: the row's `extra_info.tools_kwargs`, a mapping of tool names to `{"create_kwargs": {...}}`.
        default_timeout_s: time limit in seconds for tools without their own limit. The limit covers a call, including
            the tool's start, and the closing of the tool.
        max_parallel_calls: maximum number of calls in one turn that run; the others are skipped. None means no limit.
        result_limit: limits on the part of a result that the policy sees. None means no limits.
        settings: the `agent_rl.tools` section, of which `cache_path`, `on_error` and `reuse_results` are used. None
            means its defaults, except that results are not reused.
        shared: resources that the tools find in their `scope`, by key; the caller closes them.

    Raises:
        ConfigError: the cache file or the row's `tools_kwargs` cannot be used.
    """

    def __init__(
        self,
        specs: Sequence[ToolSpec],
        *,
        tools_kwargs: Mapping[str, Any] | None = None,
        default_timeout_s: float,
        max_parallel_calls: int | None = None,
        result_limit: ResultLimit | None = None,
        settings: ToolsSettings | None = None,
        shared: Mapping[Hashable, Any] | None = None,
    ) -> None:
        settings = settings or ToolsSettings(reuse_results=False)
        self._scope = TrajectoryScope()
        for key, value in (shared or {}).items():
            self._scope.share(key, value)
        self._default_timeout_s = default_timeout_s
        self._slots: dict[str, Slot] = {}
        for spec in specs:
            limit_s, created = spec.timeout_s or default_timeout_s, _create_kwargs(tools_kwargs or {}, spec.name)
            self._slots[spec.name] = Slot(spec, limit_s, self._scope, created, _cache(spec, settings))
        if len(self._slots) < len(specs):
            twice = [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]
            raise FatalError(f"two tools have the name {', '.join(twice)}: rename one of them")
        self._max_parallel_calls = max_parallel_calls
        self._result_limit = result_limit
        self._on_error = settings.on_error
        self._open = False

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools, in the order of the constructor's `specs`."""
        return [slot.spec for slot in self._slots.values()]

    def answers(self, name: str) -> bool:
        """Whether a call of this tool submits the final answer."""
        slot = self._slots.get(name)
        return slot is not None and getattr(slot.spec.cls, "answers", False)

    def handed_over(self, calls: Sequence[ToolCall]) -> str | None:
        """Return the calls as the final answer if one of them calls a function that the row only declares."""
        executable = [name for name, slot in self._slots.items() if slot.spec.cls is not DeclaredFunction]
        if len(executable) == len(self._slots) or all(call.name in executable for call in calls):
            return None
        return as_answer(calls)

    def ordered(self, calls: list[ToolCall]) -> list[ToolCall]:
        """Return a turn's calls in the order in which the policy sees their results."""
        return calls

    async def __aenter__(self) -> ToolSession:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._open:
            return
        self._open = False
        await uninterrupted(asyncio.ensure_future(self._close()))

    async def _close(self) -> None:
        await asyncio.gather(*(slot.close() for slot in self._slots.values()))
        while True:
            try:
                return await within(self._default_timeout_s, self._scope.close())
            except OutOfTime:  # continues with the rest, because the scope has dropped the hanging resource
                logger.warning("a resource of the trajectory did not close within %g s", self._default_timeout_s)

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Answer one turn's calls: concurrently, or in order if a called tool is `in_order`.

        Returns:
            One result per call, in the order of the calls.

        Raises:
            UnscoredError: a tool's infrastructure failed.
            BrokenCallError: a tool has a bug.
            FatalError: a tool raised this error.
        """
        if not self._open:
            raise RuntimeError("ToolSession.run is used outside of `async with`")
        allowed = calls if self._max_parallel_calls is None else calls[: self._max_parallel_calls]
        results = await self._answers(allowed)
        if self._result_limit is not None:
            for result in results:
                result.text = self._result_limit.cut(result.text)
        return results + [self._skip(call, number) for number, call in enumerate(calls, 1) if number > len(allowed)]

    async def _answers(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        slots = [self._slots[call.name] for call in calls if call.name in self._slots]
        if any(getattr(slot.spec.cls, "in_order", False) for slot in slots):
            return [await self._answer(call) for call in calls]
        return await together([self._answer(call) for call in calls])

    async def _answer(self, call: ToolCall) -> ToolResult:
        result = ToolResult(call.id, call.name, "")
        started = time.perf_counter()
        try:
            output = await self._execute(call, result)
        except ObservationError as error:
            result.status = _STATUS.get(type(error), ToolStatus.ERROR)
            output = ToolOutput(f"Error: {error}", reward=error.reward)
        except (UnscoredError, FatalError):
            raise
        except Exception as error:  # the traceback is logged; the policy sees at most one line
            if self._on_error == "unscored":
                raise self._unscored(call, error) from error
            logger.exception("tool %r raised", call.name)
            result.status = ToolStatus.ERROR
            output = ToolOutput(f"Error: {call.name} failed: {shown(error)}")
        result.text = encodable(output.text)
        result.seconds = time.perf_counter() - started - result.queue_seconds
        result.reward = output.reward
        result.metrics = {**output.metrics, **result.metrics} if result.metrics else output.metrics
        if output.images:
            result.images = output.images
            result.metrics = {**result.metrics, "images": len(output.images)}
        result.answer = None if output.answer is None else encodable(output.answer)
        return result

    def _unscored(self, call: ToolCall, error: Exception) -> UnscoredError:
        """Return the error for an unexpected exception from a tool: an outage, or a bug, which is logged."""
        if is_outage(error):
            return UnscoredError(f"tool {call.name!r}: {shown(error)}")
        slot = self._slots[call.name]
        what = f"tool {call.name!r}" if slot.started else f"tool {call.name!r}: start"
        bug = BrokenCallError.of(what, error, getattr(slot.spec.cls, "call", None) if slot.started else slot.spec.cls)
        logger.error("%s. The call was %s", bug, call.arguments, exc_info=error)
        return bug

    async def _execute(self, call: ToolCall, result: ToolResult) -> ToolOutput:
        """Run the tool; record attempts, cache hits and waiting time in `result`."""
        slot = self._slots.get(call.name)
        if slot is None:
            name = call.name[:MAX_SHOWN]
            raise UnknownToolError(f"there is no tool {name!r}. {did_you_mean(name, self._slots)}")
        arguments = await checked(slot.spec.name, slot.spec.validator, call.arguments, slot.limit_s)
        return await slot.answer(arguments, result)

    def _skip(self, call: ToolCall, position: int) -> ToolResult:
        text = (
            f"Skipped: at most {self._max_parallel_calls} calls are run in one turn and this was number {position}. "
            "Repeat it in your next turn if you still need it."
        )
        return ToolResult(call.id, call.name, text, ToolStatus.SKIPPED)


def _create_kwargs(tools_kwargs: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a tool's `create_kwargs`; in a row from a parquet file, they or the mapping around them may be None."""
    kwargs = tools_kwargs.get(name) or {}
    create_kwargs = kwargs.get("create_kwargs") if isinstance(kwargs, Mapping) else kwargs
    if create_kwargs is not None and not isinstance(create_kwargs, Mapping):
        key = f"extra_info.tools_kwargs.{name}"
        raise ConfigError(key, f"expected a mapping with `create_kwargs`, got {kwargs!r}", "Fix the row")
    return create_kwargs or {}


def _cache(spec: ToolSpec, settings: ToolsSettings) -> Cache | None:
    if spec.cache == "shared":
        return shared_cache(settings.cache_path)
    is_kept = spec.cache == "trajectory" or (settings.reuse_results and spec.may_be_reused)
    return Cache() if is_kept else None


@cache
def shared_cache(path: str | None) -> Cache:
    """Return the cache that all trajectories of this process share; each file has one cache.

    Raises:
        ConfigError: the file cannot be used.
    """
    return Cache(path, "agent_rl.tools.cache_path", "tool results")
