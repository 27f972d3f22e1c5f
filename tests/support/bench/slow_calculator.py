"""The calculator of a user whose tool takes its time: `config.seconds` for each call."""

import asyncio
from typing import Any

from agent_rl.tools.base import ToolConfig
from agent_rl.tools.builtin.calculator import Calculator


class SlowConfig(ToolConfig):
    seconds: float


class SlowCalculator(Calculator):
    Config = SlowConfig

    async def call(self, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(self.settings.seconds)
        return await super().call(arguments)
