"""The calculator of a user whose tool takes its time: `config.seconds` for each call."""

import asyncio
from collections.abc import Mapping
from typing import Any

from agent_rl.tools.builtin.calculator import Calculator


class SlowCalculator(Calculator):
    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        if set(config) != {"seconds"}:
            raise ValueError("the slow calculator takes `seconds` and nothing else")

    async def call(self, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(self.config["seconds"])
        return await super().call(arguments)
