"""The built-in tools, one file or folder a tool; they use the contract like anybody's own."""
