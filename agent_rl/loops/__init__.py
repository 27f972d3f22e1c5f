"""Agent loops: one shared episode core that knows no engine, and one file for each kind of agent.

`episode` is the core, `policy` what it talks to, `react` a text format; `verl_loop` puts both behind verl's
`AgentLoopBase` and `react_agent` is the loop of that name. Only `verl_loop` and the `*_agent` files import verl.
"""
