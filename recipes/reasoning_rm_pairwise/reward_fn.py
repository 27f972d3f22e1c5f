"""The reward of a verdict: 1 for the right winner, otherwise 0."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.reasoning_rm import compute_score as score_verdict
from agent_rl.reasoning_rm import find_template

ComparisonTemplate = find_template(f"{Path(__file__).with_name('template.py')}:ComparisonTemplate")


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Verl's signature."""
    return score_verdict(data_source, solution_str, ground_truth, extra_info, template=ComparisonTemplate)
