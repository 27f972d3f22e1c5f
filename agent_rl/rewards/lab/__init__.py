"""The reward lab: finds reward hacks in stored trajectories, and shows how other weights change the advantages.

- `attack` mutates stored trajectories by the attacks in `mutations` and reports every one that raises the reward.
- `what_if` recomputes the rewards of stored groups and reports how their advantages change.
- `groups` reads a file of trajectories, groups them by prompt and scores them.

It must not know verl; the commands `agent-rl reward score`, `attack` and `what-if` print its results.
"""
