"""Your own rules in one file, by which `POST /get_reward` computes rewards."""

from __future__ import annotations

from typing import Any

from agent_rl.rewards import numeric_match


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any] | None = None
) -> dict[str, float]:
    """Return 1 for the right number as `score`, which is the correctness; all other values are logged."""
    right = numeric_match(solution_str, ground_truth)
    return {"score": float(right), "characters": float(len(solution_str))}
