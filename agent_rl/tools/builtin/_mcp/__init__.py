"""Internals of the `mcp` toolset: the declared server, and its sessions."""
