"""The `agent-rl` commands, one file each, which parse arguments and print results.

A command contains no other logic: it calls code in other folders, and imports that code only when it runs.
"""
