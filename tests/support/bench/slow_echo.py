"""A tool that says what it is told, as late as its configuration says."""

import asyncio

from agent_rl.tools import Tool


class SlowEcho(Tool):
    """Its `config` has `seconds`."""

    name = "echo"
    description = "Say it again."
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }

    async def call(self, arguments):
        if seconds := self.config.get("seconds"):
            await asyncio.sleep(seconds)
        return arguments["text"]
