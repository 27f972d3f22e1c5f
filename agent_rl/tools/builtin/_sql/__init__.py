"""Internals of the `sql` tool: a process that runs SQLite (`worker`), and its client (`pool`).

`worker` and its imports (`text`, `sqlite`) import no other module of agent_rl, so that a worker starts quickly.
"""
