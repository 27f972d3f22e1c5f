"""The reward lab: scores stored trajectories, and finds reward hacks in them.

- `attack` mutates stored trajectories by the attacks in `mutations` and reports every one that raises the reward.
- `groups` reads a file of trajectories, groups them by prompt and scores them.

It must not know verl; the commands `agent-rl reward score` and `attack` print its results.
"""
