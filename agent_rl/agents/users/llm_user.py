"""`LLMUser`: a model behind an OpenAI-compatible endpoint plays the user.

    agent_rl:
      user_sim:
        user: llm
        config:
          url: http://localhost:8000/v1
          model: Qwen/Qwen3-8B
          api_key_env: USER_API_KEY   # optional: environment variable with a bearer token
          temperature: 0.7            # and the keys of agent_rl.remote.chat_client.EndpointConfig

The row's `extra_info.user.goal` is the user's goal. Only the model that plays the user sees the goal; that model sees
the agent's messages, but not the agent's tools. The model ends the conversation by writing `stop_word`. If the endpoint
fails, the trajectory is unscored; if the endpoint rejects the API key or the model at the first request, the run stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Any

from pydantic import Field

from agent_rl.agents.episode.format import spoken
from agent_rl.agents.users.user import ROW_KEY, Reply, User
from agent_rl.errors import ConfigError
from agent_rl.remote import ChatClient, EndpointConfig, RemoteError
from agent_rl.settings.errors import validated
from agent_rl.tools.truncation import encodable
from agent_rl.trajectory import Trajectory

DEFAULT_INSTRUCTIONS = """\
You play a user who talks with an assistant. What you want from it:

{goal}

Write one message of the user at a time, short and in your own words. Tell what you want bit by bit, as you are asked,
and invent nothing beyond it. Do not repeat these instructions. When you have got what you want, or it is clear that you
will not, write only {stop_word}"""

GREETING = "Hello! How can I help you?"
"""The assistant's first message, which the model that plays the user answers."""


class LLMUserConfig(EndpointConfig):
    """The `agent_rl.user_sim.config` section."""

    instructions: str | None = None
    """The model's system text, with the placeholders `{goal}` and `{stop_word}`; null means the default text."""
    opens: bool = False
    """Whether the model also writes the first message, which then replaces the last message of the row's prompt."""
    temperature: float = Field(default=1.0, ge=0)
    max_tokens: int = Field(default=512, ge=1)
    """Maximum number of tokens in one message, including thoughts."""
    stop_word: str = Field(default="###STOP###", min_length=1)


class LLMUser(User):
    """The user of one episode, played by a model.

    Raises:
        ConfigError: the row has no goal.
    """

    def __init__(self, config: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        super().__init__(config, row)
        self.settings = settings = validated(LLMUserConfig, config)
        goal = row.get("goal")
        if not isinstance(goal, str) or not goal.strip():
            raise ConfigError(f"{ROW_KEY}.goal", f"expected text, got {goal!r}", "Write the user's goal into the row")
        text = DEFAULT_INSTRUCTIONS if settings.instructions is None else settings.instructions
        text = text.replace("{stop_word}", settings.stop_word).replace("{goal}", goal)
        self._messages = [{"role": "system", "content": text}, {"role": "user", "content": GREETING}]
        self._client = _client(settings)
        self._connection = AsyncExitStack()

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Reject unknown keys, out-of-range values, and an API key that is not in the environment."""
        _client(validated(LLMUserConfig, config))

    async def start(self, opening: str) -> str:
        """Return the first message, from the row or from the model."""
        await self._connection.enter_async_context(self._client)
        if not self.settings.opens:
            self._messages.append({"role": "assistant", "content": opening})
            return opening
        return (await self._say()).replace(self.settings.stop_word, "").strip() or opening

    async def resume(self, opening: str, exchanges: Sequence[tuple[str, Reply]]) -> None:
        """Show the model the recorded messages as if it had written the user's part."""
        await self._connection.enter_async_context(self._client)
        self._messages.append({"role": "assistant", "content": opening})
        for message, reply in exchanges:
            self._messages += [{"role": "user", "content": message}, {"role": "assistant", "content": reply.text}]

    async def respond(self, message: str, trajectory: Trajectory) -> Reply:
        """Return the model's answer."""
        self._messages.append({"role": "user", "content": message})
        before, stopped, _ = (await self._say()).partition(self.settings.stop_word)
        return Reply(before.strip(), done=bool(stopped))

    async def finish(self) -> None:
        """Release the connection."""
        await self._connection.aclose()

    async def _say(self) -> str:
        settings = self.settings
        body = {"messages": self._messages, "temperature": settings.temperature, "max_tokens": settings.max_tokens}
        text = encodable(spoken((await self._client.chat(body)).text).strip())
        if not text:
            raise RemoteError(self._client.host, "the simulated user's message is empty")
        self._messages.append({"role": "assistant", "content": text})
        return text


@cache
def _client(settings: LLMUserConfig) -> ChatClient:
    """Return the client that all episodes of a process share.

    Raises:
        ConfigError: the API key is not in the environment.
    """
    return ChatClient(settings, "agent_rl.user_sim.config")
