"""Evaluation: the loops and rewards of training on any endpoint, on a checkpoint, or on what a run has stored.

`settings` says what is evaluated, `sources` opens the policy and starts a server for it if there is none, `runner` runs
the episodes, `ledger` keeps the finished ones, `summary` counts them. `audit` compares tokens, masks and log-probs.
Nothing here needs verl or torch, unless the policy does.
"""
