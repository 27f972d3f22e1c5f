"""The checks that reject a configuration, and the functions that run them (see `check`).

A check is defined next to its dependencies: in this package if it needs only the configuration, in `verl_adapter` if it
needs verl, in `launch` if it needs a run's environment, and in `doctor` if only `agent-rl doctor` runs it.
"""
