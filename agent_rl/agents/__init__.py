"""Agents. The module of an agent defines the `AGENT` record; `registry` finds agents, and `episode` runs them.

Nothing here may depend on an engine, an endpoint or verl, because an episode uses only the `Policy` interface.
"""
