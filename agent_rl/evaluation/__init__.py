"""An evaluation runs the loops and rewards of training with any endpoint, a checkpoint, or a run's stored trajectories.

`settings` defines what is evaluated, `sources` opens the policy and starts a server for it if needed, `runner` runs the
episodes, `ledger` stores finished episodes, and `summary` averages them. `audit` compares tokens, masks and log-probs.
No module here needs verl or torch, unless the policy needs them.
"""
