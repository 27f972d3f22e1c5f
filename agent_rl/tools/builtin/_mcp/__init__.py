"""Inside of the toolset `mcp`: the declared server, and a session."""
