"""Named parts of an environment's reward as components."""

import asyncio

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.components.environment import EnvironmentConfig, EnvironmentPart
from agent_rl.trajectory import StopReason, Trajectory


def measure(part: str | None, **rewards: float) -> float:
    component = EnvironmentPart("found", EnvironmentConfig(part=part))
    return asyncio.run(component.measure(Trajectory([], StopReason.ANSWERED, rewards=rewards))).value


def test_a_part_is_selected_by_the_components_name_or_by_its_own() -> None:
    assert measure(None, found=0.5, steps=7.0) == 0.5
    assert measure("steps", found=0.5, steps=7.0) == 7.0


@pytest.mark.parametrize(("rewards", "known"), [({"steps": 1.0}, "steps"), ({}, "none")])
def test_a_missing_part_is_never_a_zero(rewards: dict[str, float], known: str) -> None:
    with pytest.raises(UnscoredError, match=rf"component 'found': the reward has no part 'found' \(parts: {known}\)"):
        measure(None, **rewards)


def test_parts_of_a_reward_are_kept_in_the_trace() -> None:
    written = Trajectory([], StopReason.ANSWERED, rewards={"found": 0.5}).to_dict()
    assert Trajectory.from_dict(written).rewards == {"found": 0.5}
