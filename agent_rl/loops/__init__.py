"""Agent loops: one shared episode core that knows no engine, and one file for each kind of agent.

`episode` is the core (`budget`, `hooks`, `repeats` and `thinking` are its parts), `policy` and `format` are what it
talks to. `react`, `tool_call` (`syntaxes` reads native calls), `search`, `code_act`, `plan_act` and `user_sim` are
formats, `user` and `llm_user` simulated users, `folding` stands around a policy; `agents` makes an agent of them by its
name. `token_policy` is the policy of training; `verl_loop` puts them behind verl's `AgentLoopBase` and the `*_agent`
files are the loops of those names. Only `verl_loop`, `verl_tools`, `rendering` and the `*_agent` files import verl.
"""
