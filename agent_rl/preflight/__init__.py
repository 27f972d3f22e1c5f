"""The checks that refuse a configuration, and what runs them: see `check`.

A check stands where what it needs is at hand: here if it needs the configuration alone, in `verl_adapter` if it needs
verl, in `launch` if it needs the environment of a run, in `doctor` if only `agent-rl doctor` makes it.
"""
