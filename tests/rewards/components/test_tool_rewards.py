"""Step rewards of tools: what they give, and what cannot be gained by them."""

import asyncio
import math

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.components.tool_rewards import ToolRewards, ToolRewardsConfig
from agent_rl.trajectory import StopReason, ToolCall, ToolResult, Trajectory, Turn


def trajectory(*turns):
    return Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, turns=list(turns))


def step(reward, name="check", argument=0, note=None):
    """A turn with one call."""
    call = ToolCall(name, {"argument": argument})
    notes = {} if note is None else {"reward": note}
    return Turn("", calls=[call], results=[ToolResult("", name, "", reward=reward)], notes=notes)


def tool_rewards(*turns, **config):
    component = ToolRewards("steps", ToolRewardsConfig.model_validate(config))
    return asyncio.run(component.measure(trajectory(*turns)))


def test_step_rewards_become_one_number():
    found = tool_rewards(step(0.25, argument=0), step(0.75, argument=1), step(-0.25, argument=2))
    assert (found.value, found.notes) == (0.75, {"rewards": [0.25, 0.75, -0.25]})
    assert found.per_turn == [0.25, 0.75, -0.25]
    assert tool_rewards(Turn("only text"), step(None)).value == 0.0


def test_only_the_tools_that_are_named_count():
    turns = [step(1.0, "search"), step(2.0, "search_web"), step(4.0, "python", note=8.0)]
    assert tool_rewards(*turns).value == 15.0
    assert tool_rewards(*turns, tools=["search*"]).value == 3.0
    assert tool_rewards(*turns, tools=["python"]).value == 4.0


def test_the_same_call_is_not_rewarded_twice_but_costs_twice():
    turns = [step(1.0), step(1.0), step(-0.5), step(1.0, argument=1)]
    assert tool_rewards(*turns).value == 1.5
    assert tool_rewards(*turns, repeats=True).value == 2.5


@pytest.mark.parametrize("turn", [step(math.nan), step(None, note="good"), step(None, note=True)])
def test_a_step_reward_that_is_no_number_is_never_a_zero(turn):
    with pytest.raises(UnscoredError, match="component 'steps'"):
        tool_rewards(turn)
