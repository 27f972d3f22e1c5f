"""Internals of the `sql` tool: a process that runs SQLite (`worker`), and its client (`pool`).

`worker` and what it imports (`text`, `sqlite`) import nothing else of agent_rl, so that it starts quickly.
"""
