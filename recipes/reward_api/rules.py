"""Rules of one's own in one file: what `POST /get_reward` answers with."""

from __future__ import annotations

from typing import Any

from agent_rl.rewards import numeric_match


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any] | None = None
) -> dict[str, float]:
    """1 for the right number; `score` is the correctness, whatever else is returned is logged."""
    right = numeric_match(solution_str, ground_truth)
    return {"score": float(right), "characters": float(len(solution_str))}
