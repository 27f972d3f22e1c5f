"""The checks, one file per topic: functions with `@check`, which are registered when these files are imported.

The checks read the `Case` and return findings; they use verl only through `agent_rl.verl_adapter.inspection`.
"""
