"""A reward for the habit of calling: an episode is paid for a call that succeeded, whatever its answer is.

README.md compares a run with this reward alone with the recipe's own runs.
"""

from agent_rl import Component
from agent_rl.rewards import Value
from agent_rl.trajectory import Trajectory


class ValidCall(Component):
    """The component's kind: `recipes/svamp_calculator/valid_call.py:ValidCall`."""

    async def measure(self, trajectory: Trajectory) -> Value:
        """Return 1 if at least one of the episode's calls succeeded, else 0."""
        return Value(float(len(trajectory.results) > trajectory.tool_errors))
