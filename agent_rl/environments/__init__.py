"""Defines a task as one class, with its rows, its tools, the state of each episode, and the reward.

    class Lockers(Environment):
        def rows(self, split, seed): ...
        def reset(self, number, code, **row): ...
        def look_up(self, number: int) -> str: ...
        def get_reward(self): ...

`agent_rl.environments` maps the names of a run's environments to classes such as `file.py:Class`; a row's
`extra_info.environment` contains one of the names.
"""

from agent_rl.environments.environment import Environment
from agent_rl.environments.kind import EnvironmentType
from agent_rl.environments.loading import load_environment, open_environment, open_session
from agent_rl.environments.session import EnvironmentSession

__all__ = [
    "Environment",
    "EnvironmentSession",
    "EnvironmentType",
    "load_environment",
    "open_environment",
    "open_session",
]
