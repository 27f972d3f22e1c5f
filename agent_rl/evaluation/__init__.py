"""Evaluates an endpoint, a checkpoint or stored trajectories with the same agent loops and rewards as in training.

`settings` defines what is evaluated, `sources` opens the policy and starts a server for it if needed, `runner` runs the
episodes, `ledger` stores finished episodes, and `summary` averages them. `audit` checks tokens, masks and log-probs.
Verl and torch are imported only when they are needed.
"""
