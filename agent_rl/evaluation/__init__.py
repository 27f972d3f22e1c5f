"""Evaluation: the loops and rewards of training on any endpoint, on a checkpoint, or on what verl has dumped.

`settings` says what is evaluated, `ledger` keeps what is done, `runner` does the rest, `summary` counts it with
`statistics`. Nothing here needs verl or torch, unless the policy does.
"""
