"""The `agent-rl` commands, each in its own file; a command parses arguments and prints results.

A command contains no other logic: it calls code in other folders, and imports that code only when it runs.
"""
