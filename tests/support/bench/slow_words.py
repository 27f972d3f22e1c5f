"""A tool that answers with as many words as the call asks for, as late as its configuration says."""

import asyncio
from typing import Any, ClassVar

from agent_rl.tools import Tool


class SlowWords(Tool):
    """Its `config` has `seconds`."""

    name = "words"
    description = "Return words."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "required": ["count"],
    }

    async def call(self, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(self.config["seconds"])
        return " the" * int(arguments["count"])
