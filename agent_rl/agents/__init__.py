"""Agents. Each agent's module defines an `AGENT` record; `registry` finds agents, and `episode` runs them.

Agent modules must not depend on an engine, an endpoint or verl, which are hidden behind the `Policy` interface.
"""
