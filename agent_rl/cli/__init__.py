"""The command `agent-rl`, one file a command: it owns the parsing of arguments and the printing of results.

It must not know how anything is done: a command calls the folders below, and imports them when it runs.
"""
