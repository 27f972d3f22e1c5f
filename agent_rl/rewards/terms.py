"""The components of the trajectory reward: pure functions of what happened, unweighted."""

from __future__ import annotations

from agent_rl.errors import UnscoredError
from agent_rl.rewards.numeric import numeric_match
from agent_rl.settings import EfficiencySettings, OverlongSettings
from agent_rl.trajectory import Trajectory

__all__ = ["correctness", "efficiency", "format_term", "overlong"]


def correctness(trajectory: Trajectory) -> float:
    """1.0 when the final answer's number is the ground truth (see `numeric_match`), else 0.0; no answer is 0.0.

    Raises:
        UnscoredError: when the row's ground truth is not a number, so that no answer could be judged by it.
    """
    try:
        return float(numeric_match(trajectory.answer, trajectory.ground_truth))
    except ValueError as error:
        row = f"data_source {trajectory.data_source!r}, index {trajectory.info.get('index')!r}"
        raise UnscoredError(f"the row cannot be judged ({row}): {error}") from error


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
