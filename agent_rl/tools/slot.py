"""`Slot`: one tool in one trajectory, from its first call to its release.

A call passes through the cache, the queue and the retries, in this order; each layer is active only if the tool's entry
enables it.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import time
from collections.abc import Coroutine, Mapping
from functools import cached_property
from typing import Any

from agent_rl.errors import ToolError, ToolTimeoutError, UnscoredError
from agent_rl.settings.user_code import one_line
from agent_rl.tools.base import Tool, ToolOutput, TrajectoryScope
from agent_rl.tools.spec import ToolSpec
from agent_rl.tools.truncation import shortened
from agent_rl.trajectory import ToolResult, plain, plain_reward
from agent_rl.work.concurrency import OutOfTime, gate, in_thread, repeated, within
from agent_rl.work.store import Cache

MAX_SHOWN = 200
"""Maximum number of characters of an exception or an unknown name that the policy sees."""

_TRANSIENT = (UnscoredError, OSError, asyncio.TimeoutError)  # errors after which a retry may succeed

logger = logging.getLogger(__name__)


class Slot:
    """A tool's spec and, from the first call on, the tool's instance.

    Args:
        spec: the configured tool.
        limit_s: time limit for one call, and for closing the tool, in seconds.
        scope: resources that the trajectory's tools share.
        create_kwargs: the row's values for this tool.
        cache: cache of the tool's results; if None, every call is executed.
    """

    def __init__(
        self,
        spec: ToolSpec,
        limit_s: float,
        scope: TrajectoryScope,
        create_kwargs: Mapping[str, Any],
        cache: Cache | None,
    ) -> None:
        self.spec = spec
        self.limit_s = limit_s
        self.tool: Tool | None = None
        self._scope, self._create_kwargs, self._cache = scope, create_kwargs, cache
        self._starting = asyncio.Lock()
        self.started = False
        self._failure: str | None = None

    async def answer(self, arguments: dict[str, Any], result: ToolResult) -> ToolOutput:
        """Answer a call from the cache or with the tool."""
        if self._cache is None:
            return await self._queued(arguments, result)
        try:
            key = _digest(self._cache_prefix, arguments)
        except (TypeError, ValueError, RecursionError):  # arguments that are not JSON have no digest
            return await self._queued(arguments, result)
        executed: list[ToolOutput] = []

        async def make() -> str | None:
            output = await self._queued(arguments, result)
            executed.append(output)
            if output.answer is not None or output.images:  # answers end the episode, and JSON cannot store images
                return None
            return json.dumps([output.text, output.reward, output.metrics])

        def wait(seconds: float) -> None:
            result.queue_seconds += seconds

        text, _ = await self._cache.get(key, make, self.limit_s, wait)
        if executed:
            return executed[0]
        result.metrics["cached"] = True
        return ToolOutput(*json.loads(text))

    @cached_property
    def _cache_prefix(self) -> str:
        cls = self.spec.cls
        owner = [self.spec.name, cls.__module__, cls.__qualname__, self.spec.config, self._create_kwargs]
        return _digest("", owner)

    async def _queued(self, arguments: dict[str, Any], result: ToolResult) -> ToolOutput:
        """Run the call once the limit on concurrency allows it."""
        if (limit := self.spec.max_concurrency) is None:
            return await self._repeated(arguments, result)
        waiting = time.perf_counter()
        # the key contains the config's text instead of the spec, which may be a new object in every trajectory
        async with gate((self.spec.name, self.spec.cls, repr(self.spec.config)), limit):
            result.queue_seconds += time.perf_counter() - waiting
            return await self._repeated(arguments, result)

    async def _repeated(self, arguments: dict[str, Any], result: ToolResult) -> ToolOutput:
        def attempt(number: int) -> Coroutine[Any, Any, ToolOutput]:
            if number > 1:
                result.metrics["attempts"] = number
            return self._call(arguments)

        try:
            return await repeated(attempt, self.limit_s, self.spec.retries, _TRANSIENT)
        except OutOfTime:
            raise ToolTimeoutError(f"{self.spec.name} did not finish within {self.limit_s:g} s") from None

    async def _call(self, arguments: dict[str, Any]) -> ToolOutput:
        try:
            tool = self.tool if self.tool is not None and self.started else await self._start()
            if inspect.iscoroutinefunction(tool.call):
                output = await tool.call(arguments)
            else:
                output = await in_thread(tool.call, arguments)
                if inspect.isawaitable(output):
                    output = await output
        except SystemExit as error:  # otherwise, the whole worker process would exit
            raise RuntimeError(f"the tool tried to exit ({error})").with_traceback(error.__traceback__) from error
        if isinstance(output, str):
            return ToolOutput(output)
        if not isinstance(output, ToolOutput) or not isinstance(output.text, str):
            raise TypeError(f"call must return a str or a ToolOutput with text, not {type(output).__name__}")
        if not isinstance(output.answer, str | None):
            raise TypeError(f"the answer of a ToolOutput must be a str, not {type(output.answer).__name__}")
        output.reward = plain_reward("the reward of its ToolOutput", output.reward)
        output.metrics = {
            str(key): plain(f"metrics[{key!r}] of its ToolOutput", value) for key, value in output.metrics.items()
        }
        return output

    async def _start(self) -> Tool:
        """Return the instance, which is started only once; concurrent first calls wait for this start.

        After a transient failure of a tool with retries, the next attempt creates a new instance.
        """
        async with self._starting:
            if self._failure is not None:
                raise ToolError(f"{self.spec.name} is not available: {self._failure}")
            if self.tool is None:
                self._failure = "it did not start in time"  # this message stays if the start is canceled
                try:
                    self.tool = self.spec.create(self._create_kwargs)
                    self.tool.scope = self._scope
                    await self.tool.start()
                except Exception as error:
                    if self.spec.retries and isinstance(error, _TRANSIENT):
                        await self.close()
                        self.tool = self._failure = None
                    else:
                        self._failure = shown(error)
                    raise
                self._failure = None
                self.started = True
            assert self.tool is not None
            return self.tool

    async def close(self) -> None:
        """Release the instance, within the time limit for one call."""
        if self.tool is None or type(self.tool).close is Tool.close:
            return
        try:
            await within(self.limit_s, self.tool.close())
        except OutOfTime:
            logger.warning("tool %r: close did not finish within %g s", self.spec.name, self.limit_s)
        except Exception:  # not raised, because the other tools must still be closed
            logger.exception("tool %r: close raised", self.spec.name)


def _digest(prefix: str, value: Any) -> str:
    """Return a short hash that is the same for equal JSON data; numpy arrays and other mappings count as JSON."""
    text = json.dumps(plain("the value", value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{prefix}{text}".encode()).hexdigest()[:32]


def shown(error: BaseException) -> str:
    """Format a tool's exception for the policy, in one short line."""
    return shortened(one_line(error), MAX_SHOWN)
