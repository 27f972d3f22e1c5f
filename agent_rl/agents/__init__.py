"""Agents: one shared episode core that knows no engine, and one file for each kind of agent.

`react`, `tool_call` (`syntaxes` reads native calls), `search`, `code_act`, `plan_act` and `user_sim` are formats,
`users` simulated users, `folding` stands around a policy; `agents` makes an agent of them by its name. Nothing here
knows verl.
"""
