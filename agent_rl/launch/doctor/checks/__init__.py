"""The checks, a file a topic: each is a function under `@check`, which is found by being in this folder.

They read the `Case` and return findings; they use verl through `agent_rl.verl_adapter.inspection` only.
"""
