"""Internals of the toolset `mcp`: the declared server, and its sessions."""
