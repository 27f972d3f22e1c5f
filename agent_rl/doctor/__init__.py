"""`agent-rl doctor`: finds what would stop a run before a GPU is used for it.

It owns the checks (`checks/`, a function each) and what they look at (`Case`); it must not import verl, which a child
process asks through `agent_rl.verl_adapter.inspection`, because importing verl takes seconds and may be what is broken.

The doctor uses no network and no GPU, except that it connects to the Ray cluster's port in `RAY_ADDRESS` and that tool
files are read as in training, which asks an MCP server for its tools. A run that passes can still fail: memory is
estimated, and other machines of a cluster are not checked.
"""
