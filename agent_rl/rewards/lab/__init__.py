"""The reward lab: finds reward hacks in stored trajectories, and shows how other weights change the advantages.

- `attack` mutates stored trajectories by the attacks in `mutations` and reports every one that raises the reward.
- `what_if` recomputes the rewards of stored groups and reports how their advantages change.
- `groups` reads a file of trajectories, groups them by prompt and scores them.

It must not know verl; the commands `agent-rl reward score`, `attack` and `what-if` print its results.
"""

from agent_rl.rewards.lab.attack import AttackReport, run_attacks
from agent_rl.rewards.lab.groups import GroupScorer, group_key, score_groups
from agent_rl.rewards.lab.mutations import ATTACKS, Attack, attack
from agent_rl.rewards.lab.what_if import WhatIf, what_if

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackReport",
    "GroupScorer",
    "WhatIf",
    "attack",
    "group_key",
    "run_attacks",
    "score_groups",
    "what_if",
]
