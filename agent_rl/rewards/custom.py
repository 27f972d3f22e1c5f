"""Builds a configuration's reward outside training, including its `reward.custom_reward_function`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.rewards.compose import Reward
from agent_rl.rewards.user_function import CUSTOM_FUNCTION, UserFunction
from agent_rl.settings import RewardSettings
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.trajectory import Trajectory


def configured_reward(
    settings: RewardSettings, function: Mapping[str, Any] | None, *, max_response_tokens: int | None = None
) -> Reward:
    """Build the reward of a configuration outside training.

    The custom function receives the same text as in training if that text was stored (`info["solution_str"]`);
    otherwise the function receives the turns and the environment's answers.

    Args:
        settings: the `agent_rl.reward` section.
        function: the `reward.custom_reward_function` section (path, name, reward_kwargs); there is no custom function
            if the section is None or has no path.
        max_response_tokens: see `Reward`.

    Raises:
        ConfigError: the reward's settings are not valid, or the custom function cannot be loaded or called.
    """
    if not function or not function.get("path"):
        return Reward(settings, max_response_tokens=max_response_tokens)
    place, name = Place(f"{CUSTOM_FUNCTION}.path"), function.get("name") or "compute_score"
    path = str(function["path"]).removeprefix("file://")  # verl accepts this prefix, and pkg:// before a module
    reference = f"{path[6:].replace('/', '.')}.{name}" if path.startswith("pkg://") else f"{path}:{name}"
    user_function, stops = find_object(reference, place, Path.cwd()), settings.on_error == "stop"
    judge = UserFunction(user_function, place, options=function.get("reward_kwargs")).judge

    async def custom(trajectory: Trajectory) -> tuple[float, dict[str, float]]:
        return await judge(trajectory, trajectory.info.get("solution_str") or _text(trajectory), stops=stops)

    return Reward(settings, max_response_tokens=max_response_tokens, custom=custom)


def _text(trajectory: Trajectory) -> str:
    """Return the response as text: the turns and observations."""
    return "\n".join(part for turn in trajectory.turns for part in (turn.text, turn.observation) if part)
