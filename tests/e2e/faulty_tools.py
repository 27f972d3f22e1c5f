"""A user's own tools, which go wrong."""

import asyncio
from typing import Any, ClassVar

from agent_rl.tools import Tool

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


class Raises(Tool):
    name = "raises"
    description = "Raises."
    parameters: ClassVar[dict[str, Any]] = NO_ARGUMENTS

    async def call(self, arguments: dict[str, Any]) -> str:
        raise ZeroDivisionError("the tool's own bug")


class Hangs(Tool):
    name = "hangs"
    description = "Hangs."
    parameters: ClassVar[dict[str, Any]] = NO_ARGUMENTS

    async def call(self, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(3600)
        return "never"
