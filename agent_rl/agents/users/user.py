"""Simulated users: the `User` interface, and a user that follows a script.

    class Haggler(User):
        async def respond(self, message, trajectory):
            if "$" not in message:
                return Reply("How much is it?")
            self.bought = float(message.partition("$")[2].split()[0]) <= self.row["budget"]
            return Reply("Deal." if self.bought else "Too much.", done=True)

        async def score(self, trajectory):
            return float(self.bought)

Each episode has its own instance. Set `agent_rl.user_sim.user` to your class, or to `scripted` or `llm` for the
package's own `ScriptedUser` or `LLMUser`. If a user raises an error, the trajectory is unscored, because the policy is
not at fault.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_class
from agent_rl.trajectory import Trajectory

KEY = "agent_rl.user_sim.user"
ROW_KEY = "extra_info.user"
SHORT_NAMES = {"scripted": "agent_rl.agents.users.user.ScriptedUser", "llm": "agent_rl.agents.users.llm_user.LLMUser"}


@dataclass(slots=True)
class Reply:
    """A message from the user."""

    text: str
    done: bool = False
    """Whether the conversation is over; if it is, the policy does not see the text."""
    reward: float | None = None
    """Reward for the agent's message, which becomes `Turn.notes["reward"]` and part of verl's `turn_scores`."""


class User(ABC):
    """The user of one episode.

    Args:
        config: the read-only `agent_rl.user_sim.config` section, which is the same for all episodes.
        row: the row's `extra_info.user`: the hidden goal, a script, or other data for the class.
    """

    def __init__(self, config: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        self.config = config
        self.row = row

    @property
    def done(self) -> bool:
        """Whether the episode is over after the calls of a turn; if it is, the policy does not see their results."""
        return False

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ValueError if `config` cannot be used; called once per process."""
        return None

    async def start(self, opening: str) -> str:
        """Return the user's first message, which replaces `opening`, the last message of the row's prompt."""
        return opening

    async def resume(self, opening: str, exchanges: Sequence[tuple[str, Reply]]) -> None:
        """Continue a recorded conversation; `agent-rl fork` calls this method instead of `start`.

        `opening` is the first message; `exchanges` contains each message of the agent with the user's reply. A class
        of your own must define this method to continue from recorded replies.
        """
        if exchanges:
            remedy = "Define resume(opening, exchanges) in the class"
            raise ConfigError(KEY, f"{type(self).__name__} cannot continue a recorded conversation", remedy)
        await self.start(opening)

    @abstractmethod
    async def respond(self, message: str, trajectory: Trajectory) -> Reply:
        """Answer the agent's message; the trajectory contains all events so far, including tool calls."""

    async def score(self, trajectory: Trajectory) -> float | None:
        """Return the user's verdict on the episode, for `Trajectory.verdict`; if None, the reward compares answers."""
        return None

    async def finish(self) -> None:
        """Release the resources that `start` acquired; awaited once, regardless of how the episode ends."""
        return None


class ScriptedUser(User):
    """Sends the row's `replies` one after another, regardless of the messages, then ends the conversation.

    Raises:
        ConfigError: the row has no replies.
    """

    def __init__(self, config: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        super().__init__(config, row)
        replies = row.get("replies")
        if replies is None or isinstance(replies, str):
            raise ConfigError(f"{ROW_KEY}.replies", f"expected a list of strings, got {replies!r}", "Correct the row")
        self._replies = iter([str(reply) for reply in replies])

    async def resume(self, opening: str, exchanges: Sequence[tuple[str, Reply]]) -> None:
        """Skip the replies that the recorded conversation contains."""
        for _ in exchanges:
            next(self._replies, None)

    async def respond(self, message: str, trajectory: Trajectory) -> Reply:
        """Return the next reply."""
        text = next(self._replies, None)
        return Reply("", done=True) if text is None else Reply(text)


async def opened(messages: Sequence[dict[str, Any]], user: User | None) -> list[dict[str, Any]]:
    """Return the row's messages, with the user's opening as the last message."""
    if user is None:
        return list(messages)
    return [*messages[:-1], {**messages[-1], "content": await user.start(messages[-1]["content"])}]


def gives_verdict(cls: type[User], row: Mapping[str, Any]) -> bool:
    """Whether an environment, a program (`style: environment`) or a user of this class judges the row."""
    if (row.get("reward_model") or {}).get("style") == "environment":
        return True
    return cls.score is not User.score and (row.get("extra_info") or {}).get("user") is not None


def load_user(name: str, config: Mapping[str, Any]) -> type[User]:
    """Load the class that `agent_rl.user_sim.user` names, and let the class check its config.

    Args:
        name: `scripted`, `llm`, `package.module.Class`, or `path/to/file.py:Class`.
        config: the `agent_rl.user_sim.config` section.

    Raises:
        ConfigError: the class does not exist, or rejects the config.
    """
    cls: type[User] = find_class(SHORT_NAMES.get(name, name), User, Place(KEY), known=SHORT_NAMES)
    with Place("agent_rl.user_sim.config").around():
        cls.check_config(config)
    return cls
