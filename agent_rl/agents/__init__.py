"""Agents: one file each, with the record `AGENT`; `episode` runs them, `registry` finds them and the user's own.

Nothing here may depend on an engine, an endpoint or verl: an episode talks to the `Policy` interface.
"""
