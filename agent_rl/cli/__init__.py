"""The `agent-rl` command, one file per command: parses arguments and prints results.

A command has no other logic; it calls code in the other folders, which it imports when it runs.
"""
