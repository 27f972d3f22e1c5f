"""Computes the reward of a `Trajectory` from named components; also has scorers, a service, and a lab for reward hacks.

Code in this package must not depend on verl or torch, or on the agent that produced a trajectory;
`agent_rl.verl_adapter.manager` connects rewards to verl.
"""

from agent_rl.rewards.component import Component, GroupComponent, Value
from agent_rl.rewards.compose import Reward, extra_info
from agent_rl.rewards.routing import compute_score, find_scorer, route, scorer
from agent_rl.rewards.scorers import SCORERS, Scorer, score_answer
from agent_rl.rewards.scorers.math.numeric import extract_number, numeric_match, parse_number

__all__ = [
    "SCORERS",
    "Component",
    "GroupComponent",
    "Reward",
    "Scorer",
    "Value",
    "compute_score",
    "extra_info",
    "extract_number",
    "find_scorer",
    "numeric_match",
    "parse_number",
    "route",
    "score_answer",
    "scorer",
]
