"""Agents: each has a file with its record `AGENT`; `episode` runs them, and `registry` finds them and the user's.

Nothing here may depend on an engine, an endpoint or verl: an episode uses only the `Policy` interface.
"""
