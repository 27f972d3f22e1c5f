"""The command `agent-rl`, one file a command: it owns the parsing of arguments and the printing of results.

It must hold no logic of its own: a command calls the other folders, and imports them when it runs.
"""
