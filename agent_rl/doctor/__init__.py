"""`agent-rl doctor`: finds what would stop a run before a GPU is used for it.

A check is a function that takes a `Case` (what is to be run, and where) and yields `Finding`s; `checks.CHECKS` lists
them all. Most look at files, versions and the machine, and need no second. Those that ask verl itself, or the model's
tokenizer, run in one child process, because importing verl takes seconds and may be what is broken.

The doctor uses no network and no GPU, except that it connects to the Ray cluster's port in `RAY_ADDRESS` and that tool
files are read as in training, which asks an MCP server for its tools. What passes can still fail: memory is estimated,
and other machines of a cluster are not looked at.
"""
