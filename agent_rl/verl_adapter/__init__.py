"""Adapts agent_rl to verl: agent loops, reward manager, algorithms, served models, patches and the plugin.

Only this folder and cpu/ import verl; they must not decide what an agent, a tool or a reward does. verl loads `plugin`
in every process; `hooks` lists its registrations and patches.
"""
