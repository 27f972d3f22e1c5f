"""An evaluation uses the agent loops and rewards of training, with any endpoint, a checkpoint, or stored trajectories.

`settings` defines what is evaluated, `sources` opens the policy and starts a server for it if needed, `runner` runs the
episodes, `ledger` stores finished episodes, and `summary` averages them. `audit` checks tokens, masks and log-probs.
No module of this package needs verl or torch, unless the policy needs them.
"""
