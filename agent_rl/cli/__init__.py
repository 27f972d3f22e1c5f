"""The `agent-rl` command, one file per command: parses arguments and prints results.

It has no logic of its own: each command calls code in the other folders, which it imports when it runs.
"""
