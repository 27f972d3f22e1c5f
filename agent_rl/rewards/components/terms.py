"""The built-in components `efficiency`, `format` and `overlong`, as pure functions that return unweighted values."""

from __future__ import annotations

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.settings import EfficiencySettings, FormatSettings, OverlongSettings
from agent_rl.trajectory import StopReason, Trajectory

_UNSCORED_STOP_REASONS = (StopReason.ENGINE_ERROR, StopReason.ERROR)
SCORED_STOP_REASONS = tuple(reason for reason in StopReason if reason not in _UNSCORED_STOP_REASONS)
"""The stop reasons of trajectories that can be scored."""


def require_scorable(trajectory: Trajectory) -> None:
    """Check that a trajectory did not end because the engine or the agent loop failed.

    Raises:
        UnscoredError: the engine or the agent loop failed.
    """
    if trajectory.stop_reason in _UNSCORED_STOP_REASONS:
        raise UnscoredError(
            f"trajectory {trajectory.id!r} ended with {trajectory.stop_reason.value}: {trajectory.error}"
        )


def efficiency(trajectory: Trajectory, settings: EfficiencySettings) -> float:
    """Return the negative cost of the trajectory's calls and tokens (see `EfficiencySettings`), in [floor, 0]."""
    cost = (
        settings.penalty * max(0, charged_calls(trajectory) - settings.free_calls)
        + settings.per_error * trajectory.tool_errors
        + settings.per_repeat * trajectory.repeated_calls
        + settings.per_1000_tokens * trajectory.response_tokens / 1000
    )
    return max(settings.floor, -cost) + 0.0  # adding 0.0 turns -0.0 into 0.0


def charged_calls(trajectory: Trajectory) -> int:
    """Count the calls, except submissions of the answer and calls to the row's functions, which are never executed."""
    last = trajectory.turns[-1:] if trajectory.stop_reason is StopReason.ANSWERED else []
    submissions = sum(len(turn.calls) for turn in last if not turn.results)
    return trajectory.tool_calls - submissions - sum(result.answer is not None for result in trajectory.results)


def format_term(trajectory: Trajectory, settings: FormatSettings) -> float:
    """Return a penalty from -1 to 0: each malformed turn costs `1 / turns`, where `turns` is a setting."""
    return -min(1.0, trajectory.malformed_turns / settings.turns) + 0.0


def overlong(trajectory: Trajectory, settings: OverlongSettings, max_response_tokens: int) -> float:
    """Return DAPO's soft overlong punishment (https://arxiv.org/abs/2503.14476, equation 13), in [-penalty, 0].

    The value is 0 up to `max_response_tokens - buffer_tokens` response tokens, and then falls linearly to `-penalty` at
    the limit. The sampled and observed tokens of the longest conversation are counted.
    """
    buffer = settings.buffer_tokens or max(1, max_response_tokens // 5)
    tokens = trajectory.longest_tokens or trajectory.response_tokens
    exceeding = tokens - (max_response_tokens - buffer)
    return -settings.penalty * min(1.0, max(0.0, exceeding / buffer)) + 0.0


def overlong_limit(settings: OverlongSettings, max_response_tokens: int | None) -> int:
    """Check the settings of the overlong penalty, and return the limit on response tokens that it uses.

    Raises:
        ConfigError: the penalty is set without a token limit, or its buffer is longer than the limit.
    """
    if not settings.penalty:
        return max_response_tokens or 1
    if max_response_tokens is None:
        raise ConfigError("agent_rl.reward.overlong", "there is no token limit", "Set max_response_tokens")
    if (settings.buffer_tokens or 0) > max_response_tokens:
        raise ConfigError(
            "agent_rl.reward.overlong.buffer_tokens",
            f"{settings.buffer_tokens} is more than data.max_response_length={max_response_tokens}",
            "Lower it, or set it to null for a fifth of the limit",
        )
    return max_response_tokens
