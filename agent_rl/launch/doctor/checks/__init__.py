"""The checks, one file per topic: functions with `@check`, which register when the folder's modules are imported.

They read the `Case` and return findings; they use verl through `agent_rl.verl_adapter.inspection` only.
"""
