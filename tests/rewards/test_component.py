import asyncio

import pytest
from pydantic import ValidationError

from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.trajectory import StopReason, Trajectory


class Turns(Component):
    class Config(ComponentConfig):
        times: float = 1.0

    async def measure(self, trajectory: Trajectory) -> Value:
        return Value(self.config.times * len(trajectory.turns))


async def measured(config: dict[str, float]) -> float:
    component = Turns("turns", Turns.Config.model_validate(config))
    return (await component.measure(Trajectory(prompt=[], stop_reason=StopReason.ANSWERED))).value


def test_a_component_measures_with_its_config() -> None:
    assert asyncio.run(measured({"times": 2.0})) == 0.0


def test_a_config_knows_its_keys() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Turns.Config.model_validate({"time": 2.0})
