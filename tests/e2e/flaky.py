"""A component of the reward that can say nothing of some rows."""

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import Component, Value
from agent_rl.trajectory import Trajectory

EVERY = 4


class Flaky(Component):
    """Fails for each `EVERY`th row."""

    async def measure(self, trajectory: Trajectory) -> Value:
        if trajectory.info["index"] % EVERY == 1:
            raise UnscoredError("nothing can be said about this row")
        return Value(1.0)
