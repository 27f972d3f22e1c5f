"""Adapts agent_rl to verl: agent loops, reward manager, algorithms, served models, patches and the plugin.

Only this folder and `agent_rl/cpu` import verl; neither may decide what an agent, a tool or a reward does. verl loads
the module `plugin` in every process; `patches.hooks` lists agent_rl's registrations and patches.
"""
