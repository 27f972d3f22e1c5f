"""The contract that every tool fulfills.

A tool is a class that contains a schema; each instance serves one trajectory and keeps that trajectory's state:

    class Dice(Tool):
        name = "dice"
        description = "Roll one die."
        parameters = {
            "type": "object",
            "properties": {"sides": {"type": "integer", "minimum": 2}},
            "required": ["sides"],
        }

        async def call(self, arguments):
            return str(random.randint(1, arguments["sides"]))

The contract does not guarantee isolation, because a tool runs inside the rollout worker. Code that a model wrote must
run in `agent_rl.sandbox`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel

from agent_rl.settings.errors import Section, validated

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ToolConfig(Section):
    """Base class of a tool's `Config`."""


@dataclass(slots=True)
class ToolOutput:
    """The result of a call that returns more than text."""

    text: str
    reward: float | None = None
    """A step reward that the tool itself assigns."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """JSON data for the trace; the policy does not see it."""
    answer: str | None = None
    """If set, the final answer, which ends the episode."""
    images: list[Any] = field(default_factory=list)
    """PIL images that a vision model sees before the text; a result with images is not cached."""


class Tool(ABC):
    """Base class of all tools.

    Args:
        config: the YAML entry's `config`, which is read-only and the same for all trajectories.
        create_kwargs: the row's `extra_info.tools_kwargs[name]["create_kwargs"]`, copied for this trajectory.

    `__init__` should be quick, because it runs on the event loop; slow work belongs in `start`.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    """Text for the policy: what the tool does and when it helps."""
    parameters: ClassVar[dict[str, Any]]
    """JSON schema (draft 2020-12) of type object."""
    Config: ClassVar[type[BaseModel] | None] = None
    """Pydantic model that validates `config` and whose instance is `settings`; None means that any keys are allowed."""
    timeout_s: ClassVar[float | None] = None
    """Maximum duration of one call in seconds; None means the run's default."""
    max_concurrency: ClassVar[int | None] = None
    """Maximum number of concurrent calls in one worker process; None means no limit. The tool's entry overrides it."""
    idempotent: ClassVar[bool] = False
    """Whether sending a call twice has the same effect as sending it once. Only an idempotent tool is retried after an
    infrastructure failure."""
    retries: ClassVar[int] = 2
    """Number of retries of an idempotent tool, unless its entry sets one; 0 for a tool that does its own retries."""
    reusable: ClassVar[bool] = False
    """Whether the same arguments always produce the same text, regardless of earlier calls, as in a pure function or a
    search in fixed data. Only results of reusable tools are reused; the tool's entry can override the value."""
    in_order: ClassVar[bool] = False
    """Whether a call to this tool makes all calls in the same turn run one after another, in order."""
    outside: ClassVar[bool] = False
    """Whether a call uses something outside the process, such as a service. `agent-rl fork` repeats a recorded call of
    such a tool, or of a tool whose `config` has a `url`, only if the tool's entry has `reusable: true`."""
    answers: ClassVar[bool] = False
    """Whether a call submits the final answer; such a call also runs in the last turn and counts toward no budget."""

    scope: TrajectoryScope
    """Resources shared by the tools of this trajectory; set before `start`."""

    def __init__(self, config: Mapping[str, Any], create_kwargs: Mapping[str, Any]) -> None:
        self.config = config
        self.create_kwargs = create_kwargs
        self.settings: Any = None if self.Config is None else validated(self.Config, config)

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ValueError for an invalid `config`; called once, when the YAML file is loaded."""
        if cls.Config is not None:
            validated(cls.Config, config)

    async def start(self) -> None:
        """Prepare the trajectory's state; awaited once, before the first call and within that call's time limit."""
        return None

    @abstractmethod
    def call(self, arguments: dict[str, Any]) -> str | ToolOutput | Awaitable[str | ToolOutput]:
        """Answer one call; `arguments` match `parameters`.

        Define `call` with `async def`, or with a plain `def`, which runs in a separate thread, so that it cannot block
        other trajectories. Calls in one turn may overlap, so a tool whose state does not allow this must take a lock.

        Raises:
            ToolError: the tool cannot do what was asked; the policy reads the text.
            UnscoredError: the infrastructure failed and the trajectory must not be scored.
            FatalError: the run must stop.

        A timeout or a failed connection leaves the trajectory unscored too. Any other exception is a bug in the tool:
        it is logged with its traceback, the trajectory is unscored, and the eighth exception of its kind stops the run
        (with `agent_rl.tools.on_error=observe` the policy sees the exception in one line instead).
        """

    async def close(self) -> None:
        """Release the trajectory's state; awaited once for every instance, even if `start` failed."""
        return None


class TrajectoryScope:
    """Resources, such as a connection, that several tools of one trajectory share, each under a key.

    A resource is opened at its first use, and closed once when the trajectory ends, in the reverse order of opening.
    A resource may be opened in one task and closed in another; a context manager that forbids this must run in its own
    task.
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._open: dict[Hashable, tuple[AbstractAsyncContextManager[Any], Any]] = {}

    async def get(self, key: Hashable, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """Return the resource with this key, and open it with the context manager from `make` if it is not open yet.

        Raises:
            Exception: opening failed; the next `get` tries again.
        """
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._open:
                manager = make()
                self._open[key] = manager, await manager.__aenter__()
            value: T = self._open[key][1]
            return value

    def share(self, key: Hashable, value: Any) -> None:
        """Set the resource for a key; the caller remains responsible for closing the resource."""
        self._open[key] = nullcontext(), value

    def shared(self, key: Hashable) -> Any:
        """Return the resource that `share` set for this key."""
        return self._open[key][1]

    async def close(self) -> None:
        """Close all open resources."""
        while self._open:
            _, (manager, _) = self._open.popitem()
            try:
                await manager.__aexit__(None, None, None)
            except Exception:  # not raised, because the other resources must still be closed
                logger.exception("closing %r raised", manager)
