"""The command `agent-rl`, one file per command: parses arguments and prints results.

It has no logic of its own: a command calls the other folders, and imports them when it runs.
"""
