"""`EnvironmentUser`: an environment that answers turns without a call, and judges the episode."""

from __future__ import annotations

from typing import Any

from agent_rl.agents.users.user import Reply, User
from agent_rl.environments import EnvironmentSession
from agent_rl.environments.session import MESSAGE
from agent_rl.errors import ConfigError
from agent_rl.trajectory import Trajectory


class EnvironmentUser(User):
    """Starts the environment, passes messages to its `step`, and reads its reward.

    Args:
        session: the trajectory's environment.
        user: a simulated user, who answers messages instead of `step`; None means that `step` answers.

    Raises:
        ConfigError: there is both a simulated user and a `step` method.
    """

    def __init__(self, session: EnvironmentSession, user: User | None) -> None:
        super().__init__({}, {})
        self._session, self._user = session, user
        if user is not None and session.kind.has("step"):
            problem = f"{session.kind.name} defines step, and the agent has a simulated user: both would answer"
            raise ConfigError("agent_rl.user_sim.user", problem, "Remove step, or choose another agent")

    @property
    def done(self) -> bool:
        """Whether the environment has ended the episode."""
        return self._session.done

    async def start(self, opening: str) -> Any:
        """Reset the environment; the message that the environment returns follows the opening."""
        if self._user is not None:
            opening = await self._user.start(opening)
        return await self._session.opened(opening)

    async def respond(self, message: str, trajectory: Trajectory) -> Reply:
        """Return the answer from `step` or the simulated user; if there is neither, the message ends the episode."""
        text, reward = await self._session.step(message)
        if self._user is not None:
            trajectory.turns[-1].notes[MESSAGE] = message
            return await self._user.respond(message, trajectory)
        return Reply(text or "", done=text is None, reward=reward)

    async def score(self, trajectory: Trajectory) -> float | None:
        """Return the reward; if it has named parts, store them in `Trajectory.rewards`, and return None."""
        reward = await self._session.reward()
        if isinstance(reward, dict):
            trajectory.rewards = reward
            return None
        return reward

    async def finish(self) -> None:
        """Release the environment."""
        await self._session.close()
        if self._user is not None:
            await self._user.finish()
