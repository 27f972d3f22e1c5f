"""Rewards: pure scorers and shaping terms over a `Trajectory`, their composition, and verl's reward manager.

Nothing here needs verl or torch but `manager`, the adapter to verl, which is not imported here.
"""

from agent_rl.rewards.component import Component, GroupComponent, Value
from agent_rl.rewards.compose import Reward, extra_info
from agent_rl.rewards.numeric import extract_number, numeric_match, parse_number

__all__ = [
    "Component",
    "GroupComponent",
    "Reward",
    "Value",
    "extra_info",
    "extract_number",
    "numeric_match",
    "parse_number",
]
