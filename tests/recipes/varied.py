"""A component of the reward by which any two samples that differ get rewards that differ."""

import zlib

from agent_rl.rewards.component import Component, Value
from agent_rl.trajectory import Trajectory


class Varied(Component):
    async def measure(self, trajectory: Trajectory) -> Value:
        text = "".join(turn.text for turn in trajectory.turns)
        return Value(zlib.crc32(text.encode()) % 1000 / 1000)
