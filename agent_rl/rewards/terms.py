"""The components of the trajectory reward: pure functions of what happened, unweighted."""

from __future__ import annotations

from agent_rl.errors import ConfigError
from agent_rl.settings import EfficiencySettings, OverlongSettings
from agent_rl.trajectory import Trajectory

__all__ = ["efficiency", "format_term", "overlong", "overlong_limit"]


def efficiency(trajectory: Trajectory, settings: EfficiencySettings) -> float:
    """`-penalty` for each tool call beyond `free_calls`, never below `floor`; at most 0."""
    extra_calls = max(0, trajectory.tool_calls - settings.free_calls)
    return max(settings.floor, -settings.penalty * extra_calls) + 0.0  # + 0.0 turns -0.0 into 0.0


def format_term(trajectory: Trajectory) -> float:
    """Minus the share of turns that were malformed, in [-1, 0]; 0 for a trajectory without turns."""
    if not trajectory.turns:
        return 0.0
    return -trajectory.malformed_turns / len(trajectory.turns) + 0.0


def overlong(trajectory: Trajectory, settings: OverlongSettings, max_response_tokens: int) -> float:
    """DAPO's soft overlong punishment (https://arxiv.org/abs/2503.14476, equation 13), in [-penalty, 0].

    0 up to `max_response_tokens - buffer_tokens` response tokens (sampled and observed together), then falling linearly
    to `-penalty` at the limit.
    """
    buffer = settings.buffer_tokens or max(1, max_response_tokens // 5)
    exceeding = trajectory.response_tokens - (max_response_tokens - buffer)
    return -settings.penalty * min(1.0, max(0.0, exceeding / buffer)) + 0.0


def overlong_limit(settings: OverlongSettings, max_response_tokens: int | None) -> int:
    """The limit on response tokens (`data.max_response_length`) that the overlong penalty counts from.

    Raises:
        ConfigError: when the penalty is on and there is no limit, or its buffer is longer than that.
    """
    if not settings.penalty:
        return max_response_tokens or 1
    if max_response_tokens is None:
        raise ConfigError("agent_rl.reward.overlong", "there is no limit on tokens", "Give max_response_tokens")
    if (settings.buffer_tokens or 0) > max_response_tokens:
        raise ConfigError(
            "agent_rl.reward.overlong.buffer_tokens",
            f"{settings.buffer_tokens} is more than data.max_response_length={max_response_tokens}",
            "Lower it; null is a fifth of the limit",
        )
    return max_response_tokens
