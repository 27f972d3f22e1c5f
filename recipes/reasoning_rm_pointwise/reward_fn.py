"""The reward of a verdict: exp(-2 |error| / 4), or 0 if the verdict cannot be parsed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.reasoning_rm import compute_score as score_verdict
from agent_rl.reasoning_rm import find_template, pointwise_reward

HelpfulnessTemplate = find_template(f"{Path(__file__).with_name('template.py')}:HelpfulnessTemplate")


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Score a verdict, with verl's signature; `calculate_reward` is a linear alternative to `pointwise_reward`."""
    return score_verdict(
        data_source, solution_str, ground_truth, extra_info, template=HelpfulnessTemplate, reward=pointwise_reward
    )
