"""Evaluation: the loops and rewards of training on any endpoint, on a checkpoint, or on what a run has stored.

`settings` says what is evaluated, `sources` finds the policy (where there is no endpoint, with `checkpoint` and
`server`), `runner` runs it, `ledger` keeps the finished episodes, `summary` counts them with `statistics`. `dumps`
reads verl's dumps of rollouts, `audit` compares tokens, masks and log-probs. Nothing here needs verl or torch, unless
the policy does.
"""
