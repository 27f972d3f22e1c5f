"""`agent-rl doctor`: finds problems that would stop a run, before it uses a GPU.

The package contains the checks (functions in `checks/`) and their input (`Case`); it must not import verl. A child
process imports verl, through `agent_rl.verl_adapter.inspection`, because that takes seconds and can fail.

The doctor uses no network and no GPU, except that it connects to the Ray cluster's port in `RAY_ADDRESS`, and reads
tool files as in training, which lists the tools of MCP servers. A run that passes can still fail, because memory is
estimated and other machines of a cluster are not checked.
"""
