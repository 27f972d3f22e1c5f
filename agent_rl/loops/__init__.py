"""Agent loops: one shared episode core that knows no engine, and one file for each kind of agent.

`episode` is the core (`budget`, `hooks`, `repeats` and `thinking` are its parts), `policy` and `format` are what it
talks to, `react` is a text format and `token_policy` the policy of training; `verl_loop` puts them behind verl's
`AgentLoopBase` and `react_agent` is the loop of that name. Only `verl_loop`, `verl_tools` and the `*_agent` files
import verl.
"""
