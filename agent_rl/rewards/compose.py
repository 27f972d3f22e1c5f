"""From components to a total, and to the flat numbers that verl logs.

The total is the sum of weight times value; the components keep the unweighted values, so that a curve means the same
whatever the weights are. The same functions score a batch offline.
"""

from __future__ import annotations

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards import terms
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import Score, StopReason, Trajectory

__all__ = ["COMPONENTS", "SCORED_STOP_REASONS", "extra_info", "require_limits", "require_scorable", "score"]

COMPONENTS = ("correctness", "efficiency", "format", "overlong")
"""The keys of `Score.components`, which are also those of the weights' sections in the settings."""

_UNSCORED_STOP_REASONS = (StopReason.ENGINE_ERROR, StopReason.ERROR)
SCORED_STOP_REASONS = tuple(reason for reason in StopReason if reason not in _UNSCORED_STOP_REASONS)
"""The stop reasons that a scored trajectory can have."""


def require_scorable(trajectory: Trajectory) -> None:
    """Refuse a trajectory that says nothing about the policy.

    Raises:
        UnscoredError: when the engine or the loop failed.
    """
    if trajectory.stop_reason in _UNSCORED_STOP_REASONS:
        raise UnscoredError(f"trajectory {trajectory.id!r} ended by {trajectory.stop_reason.value}: {trajectory.error}")


def require_limits(settings: RewardSettings, max_response_tokens: int | None) -> None:
    """Refuse settings that do not fit the limit on response tokens (`data.max_response_length`).

    Raises:
        ConfigError: when the overlong penalty is on and there is no limit, or its buffer is longer than that.
    """
    if not settings.overlong.penalty:
        return
    if max_response_tokens is None:
        raise ConfigError("agent_rl.reward.overlong", "there is no limit on tokens", "Give max_response_tokens")
    if (settings.overlong.buffer_tokens or 0) > max_response_tokens:
        raise ConfigError(
            "agent_rl.reward.overlong.buffer_tokens",
            f"{settings.overlong.buffer_tokens} is more than data.max_response_length={max_response_tokens}",
            "Lower it; null is a fifth of the limit",
        )


def score(
    trajectory: Trajectory,
    settings: RewardSettings,
    *,
    verdict: float | None = None,
    max_response_tokens: int | None = None,
) -> Score:
    """Score one trajectory.

    Args:
        trajectory: the finished episode; it is not changed.
        settings: the components' weights and parameters.
        verdict: the value of the component `correctness` when something else has judged the answer; None: the
            trajectory's own verdict, else numeric comparison with the ground truth.
        max_response_tokens: the limit that the episode had; only the overlong penalty asks for it.

    Raises:
        UnscoredError: when the engine or the loop failed, or the row's ground truth is unusable.
        ConfigError: see `require_limits`.
    """
    require_scorable(trajectory)
    require_limits(settings, max_response_tokens)
    verdict = trajectory.verdict if verdict is None else verdict
    components = {
        "correctness": terms.correctness(trajectory) if verdict is None else verdict,
        "efficiency": terms.efficiency(trajectory, settings.efficiency),
        "format": terms.format_term(trajectory),
        "overlong": terms.overlong(trajectory, settings.overlong, max_response_tokens or 0),
    }
    total = sum(getattr(settings, name).weight * value for name, value in components.items())
    return Score(total=total + 0.0, components=components)


def extra_info(trajectory: Trajectory, score: Score) -> dict[str, float]:
    """The flat numbers that verl logs for one trajectory: the same keys for every one.

    Times are seconds, rates are shares of the turns, `answered` and `stop_*` are 0 or 1. verl takes `acc` as the core
    validation variable.
    """
    turns = len(trajectory.turns)
    return {
        "acc": score.components["correctness"],
        **{name: score.components[name] for name in COMPONENTS},
        "tool_calls": float(trajectory.tool_calls),
        "tool_errors": float(trajectory.tool_errors),
        "repeated_calls": float(trajectory.repeated_calls),
        "malformed_turns": float(trajectory.malformed_turns),
        "malformed_rate": trajectory.malformed_turns / turns if turns else 0.0,
        "turns": float(turns),
        "answered": float(trajectory.answer is not None),
        "tool_seconds": float(trajectory.tool_seconds),
        "generation_seconds": float(trajectory.generation_seconds),
        **{f"stop_{reason.value}": float(trajectory.stop_reason is reason) for reason in SCORED_STOP_REASONS},
    }
