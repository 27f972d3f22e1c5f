"""The contract that every tool fulfils.

A tool is a class that carries its own schema; an instance lives for one trajectory and keeps that trajectory's state:

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

The contract does not promise isolation: a tool runs inside the rollout worker. What executes a model's code belongs
into `agent_rl.sandbox`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel

from agent_rl.settings.errors import validated
from agent_rl.settings.section import Section
from agent_rl.tools.scope import TrajectoryScope

__all__ = ["Tool", "ToolConfig", "ToolOutput"]


class ToolConfig(Section):
    """Base of a tool's `Config`."""


@dataclass(slots=True)
class ToolOutput:
    """What a call gives when a text alone does not say it."""

    text: str
    reward: float | None = None
    """A step reward that the tool itself assigns."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """JSON data for the trace; the policy does not see it."""
    answer: str | None = None
    """When given, the episode ends with this as its final answer."""
    images: list[Any] = field(default_factory=list)
    """PIL images that a vision model is shown before the text; a result with images is neither cached nor recorded."""


class Tool(ABC):
    """Base of all tools.

    Args:
        config: the YAML entry's `config`, read-only, the same for all trajectories.
        create_kwargs: this row's `extra_info.tools_kwargs[name]["create_kwargs"]`, the trajectory's own copy.

    `__init__` should be quick, because it runs on the event loop; what takes time belongs into `start`.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    """For the policy: what the tool does and when it helps."""
    parameters: ClassVar[dict[str, Any]]
    """JSON schema (draft 2020-12) of type object."""
    Config: ClassVar[type[BaseModel] | None] = None
    """Model of `config`, which is then checked when the file is loaded and is there as `settings`; None: any keys."""
    timeout_s: ClassVar[float | None] = None
    """Seconds that one call may take; None: the run's default."""
    max_concurrency: ClassVar[int | None] = None
    """Calls that run at once in one worker process, unless the tool's entry says otherwise; None: no limit."""
    idempotent: ClassVar[bool] = False
    """Whether a call may be repeated: the same arguments give the same text, whatever was called before. Only such a
    tool is retried when its infrastructure fails, and only its results may be cached."""
    retries: ClassVar[int] = 2
    """How often an idempotent tool's call is repeated, unless its entry says so; 0 where the tool itself retries."""
    answers: ClassVar[bool] = False
    """Whether a call hands in the final answer: it is run in an episode's last turn too, and no budget counts it."""

    scope: TrajectoryScope
    """What the tools of this trajectory have in common; set before `start`."""

    def __init__(self, config: Mapping[str, Any], create_kwargs: Mapping[str, Any]) -> None:
        self.config = config
        self.create_kwargs = create_kwargs
        self.settings: Any = None if self.Config is None else validated(self.Config, config)

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Refuse a `config` that cannot work by raising ValueError; called once, when the YAML file is loaded."""
        if cls.Config is not None:
            validated(cls.Config, config)

    async def start(self) -> None:
        """Prepare the trajectory's state; awaited once, before the first call and within that call's time limit."""
        return None

    @abstractmethod
    def call(self, arguments: dict[str, Any]) -> str | ToolOutput | Awaitable[str | ToolOutput]:
        """Answer one call; `arguments` fit `parameters`.

        Either `async def`, or a plain `def`, which runs in a thread of its own so that it cannot block other
        trajectories. Calls of one turn may overlap: a tool whose state does not bear that takes a lock.

        Raises:
            ToolError: for what the tool cannot do; the policy reads the text.
            UnscoredError: when the infrastructure failed and the trajectory must not be scored.
            FatalError: when the run must stop.

        Any other exception is shown to the policy in one line and logged with its traceback.
        """

    async def close(self) -> None:
        """Release the trajectory's state; awaited once for every instance, also when `start` failed."""
        return None
