"""Rewards: pure scorers and shaping terms over a `Trajectory`, their composition, and verl's reward manager.

`numeric`, `terms` and `compose` need neither verl nor torch; `manager` is the adapter to verl and is not imported here.
"""

from agent_rl.rewards.compose import COMPONENTS, extra_info, score
from agent_rl.rewards.numeric import extract_number, numeric_match, parse_number
from agent_rl.rewards.terms import correctness, efficiency, format_term

__all__ = [
    "COMPONENTS",
    "correctness",
    "efficiency",
    "extra_info",
    "extract_number",
    "format_term",
    "numeric_match",
    "parse_number",
    "score",
]
