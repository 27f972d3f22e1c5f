"""`agent-rl doctor`: finds problems that would stop a run, before it uses a GPU.

The package contains the checks (functions in `checks/`) and their input (`Case`); it must not import verl. A child
process imports verl, through `agent_rl.verl_adapter.inspection`, because the import takes seconds and can fail.

The doctor uses no GPU. The network is used only to reach a running Ray cluster, the judges and services of the reward,
MCP servers and other services of the tools, and the Hub if the model is missing. A run that passes can still fail,
because memory is estimated and other machines of a cluster are not checked.
"""
