"""The checks that reject a configuration, and the functions that run them: see `check`.

A check is defined where its dependencies are: here if it needs only the configuration, in `verl_adapter` if it needs
verl, in `launch` if it needs the environment of a run, in `doctor` if only `agent-rl doctor` runs it.
"""
