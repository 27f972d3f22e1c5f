"""Evaluation: the loops and rewards of training on any endpoint, on a checkpoint, or on what a run has stored.

`settings` says what is evaluated, `sources` finds the policy (where there is no endpoint, with `checkpoint` and
`server`), `runner` runs it, `ledger` keeps what is done, `summary` counts it with `statistics`. `dumps` reads what verl
has dumped, `audit` compares tokens, masks and log-probs. Nothing here needs verl or torch, unless the policy does.
"""
