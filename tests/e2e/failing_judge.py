"""A component of the reward that says how good an answer from 0 to 7 is, and is away for one of them."""

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.trajectory import Trajectory


class Judge(Component):
    class Config(ComponentConfig):
        away: int | None = None
        """The answer that cannot be judged."""

    async def measure(self, trajectory: Trajectory) -> Value:
        answer = int(str(trajectory.answer))
        if answer == self.config.away:
            raise UnscoredError("the judge is away")
        return Value(answer / 8)
