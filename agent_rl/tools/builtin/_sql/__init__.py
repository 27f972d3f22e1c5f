"""Inside of the tool `sql`: a process that runs the engines (`worker`), and the side that starts it (`pool`).

`worker` and what it imports (`text`, `sqlite`, `duckdb`) import nothing else of agent_rl, so that it starts quickly.
"""
