"""The command `agent-rl`, one file a command: parse, call, print; what is done stands in the floors below."""
