"""Inside of the toolset `mcp`: the declared server, the process of a stdio server, and a session."""
