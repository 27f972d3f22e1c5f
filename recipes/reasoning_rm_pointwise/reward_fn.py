"""The reward of a verdict: exp(-2 |error| / 4), and 0 for one that cannot be read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.reasoning_rm import compute_score as score_verdict
from agent_rl.reasoning_rm import find_template, pointwise_reward

HelpfulnessTemplate = find_template(f"{Path(__file__).with_name('template.py')}:HelpfulnessTemplate")


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Verl's signature; `calculate_reward` instead of `pointwise_reward` is linear."""
    return score_verdict(
        data_source, solution_str, ground_truth, extra_info, template=HelpfulnessTemplate, reward=pointwise_reward
    )
