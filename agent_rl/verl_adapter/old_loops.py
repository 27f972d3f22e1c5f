"""Agent loops of the user that were written for older releases or by older guides: what they import and read.

`register_agent_loop` is not in verl 0.9, and a row's messages are in the column `raw_prompt`, not `messages`.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

__all__ = ["give_messages", "name_what_moved"]

MOVED = {"register_agent_loop": "from agent_rl import register_agent_loop"}


def name_what_moved(module: ModuleType) -> None:
    """`verl.experimental.agent_loop`: say what to import instead of a name that is gone.

    Python would say that the name cannot be imported.
    """

    def __getattr__(name: str) -> Any:
        if name in MOVED:
            raise ImportError(f"verl 0.9 has no {name} in {module.__name__}. Write: {MOVED[name]}", name=name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__getattr__ = __getattr__  # type: ignore[method-assign]


def give_messages(module: ModuleType) -> None:
    """`verl.experimental.agent_loop.agent_loop`: a user's loop whose `run` reads `messages` gets them.

    verl calls `run` with the row's columns, of which `raw_prompt` has the messages.
    """

    def init_subclass(cls: type[Any], /, **kwargs: Any) -> None:
        super(module.AgentLoopBase, cls).__init_subclass__(**kwargs)
        run = vars(cls).get("run")
        code = getattr(inspect.unwrap(run), "__code__", None) if run is not None else None
        if code is not None and not cls.__module__.startswith(("verl.", "agent_rl.")):
            parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if "messages" in (*code.co_consts, *parameters):
                cls.run = _with_messages(run)

    module.AgentLoopBase.__init_subclass__ = classmethod(init_subclass)


def _with_messages(run: Any) -> Any:
    @functools.wraps(run)
    async def with_messages(self: Any, sampling_params: dict[str, Any], **row: Any) -> Any:
        row.setdefault("messages", list(row.get("raw_prompt", ())))
        return await run(self, sampling_params=sampling_params, **row)

    return with_messages
