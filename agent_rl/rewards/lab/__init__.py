"""The reward lab scores stored trajectories, and tries out reward hacks on them.

- `attack` changes stored trajectories with the attacks in `mutations`, and reports the attacks that raise the reward.
- `groups` reads a file of trajectories, groups them by prompt and scores them.

This package must not depend on verl. The `agent-rl reward score` and `agent-rl reward attack` commands print the
lab's results.
"""
