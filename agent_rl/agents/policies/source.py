"""`PolicySource`: supplies the policies for the episodes of an evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.policy import Policy
from agent_rl.errors import ConfigError
from agent_rl.remote import ChatClient, EndpointConfig

if TYPE_CHECKING:
    from typing_extensions import Self


class Sampling(BaseModel):
    """Sampling parameters, named as in verl's `val_kwargs`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature; 0 means greedy sampling."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Tokens are sampled from the most likely tokens up to this cumulative probability; 1 means all tokens."""
    top_k: int | None = Field(default=None, ge=1)
    """Number of most likely tokens from which each token is sampled; all endpoints except OpenAI's accept this key."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of prompt tokens (`data.max_prompt_length`) or null; episodes with longer prompts are unscored."""
    max_response_tokens: int = Field(default=2048, ge=1)
    """Maximum number of tokens per episode after the prompt, observations included, like `data.max_response_length`."""
    body: dict[str, Any] = Field(default_factory=dict)
    """Additional fields for requests to a chat endpoint; null removes a field that would be sent."""


@dataclass(slots=True)
class PolicyUsage:
    """The cost of one episode."""

    requests: int = 0
    input_tokens: int = 0
    """Total number of prompt tokens in all requests, each of which contains the whole conversation so far."""


class PolicySource(ABC):
    """A model that serves many episodes concurrently; use the object as an async context manager."""

    client: ChatClient | None = None
    """The client for the model's server, or None if there is no server."""

    async def __aenter__(self) -> Self:
        if self.client is not None:
            await self.client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.client is not None:
            await self.client.__aexit__()

    async def check(self) -> None:
        """Check, before the first episode, that the model can be used.

        Raises:
            ConfigError: the model cannot be reached, or has a different name.
        """
        if self.client is not None:
            await self.client.check()

    @abstractmethod
    def policy(self, usage: PolicyUsage, seed: int | None = None, format: Format | None = None) -> Policy:
        """Start a new conversation.

        Args:
            usage: the counts that the policy updates.
            seed: the sampling seed, if the model accepts one; None means the model's own seed.
            format: the agent's format, which may add stop tokens and keep special tokens; None means no format.
        """


def open_client(
    url: str, model: str, *, api_key_env: str | None = None, concurrency: int = 64, timeout_s: float = 600
) -> ChatClient:
    """Open a client for a model's server.

    Args:
        url: the server's URL; `/v1` is added to a URL without a path.
        model: the model's name on the server.
        api_key_env: environment variable that contains the API key; if None, no key is sent.
        concurrency: maximum number of concurrent requests.
        timeout_s: time limit in seconds for one attempt at a request; all attempts together get three times that limit.

    Raises:
        ConfigError: the URL is invalid, or the API key is not in the environment.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError("endpoint", f"{url!r} is not an address", "Write a URL such as http://127.0.0.1:8000")
    limits = {"max_concurrent": concurrency, "timeout_s": timeout_s, "total_s": 3 * timeout_s}
    config = EndpointConfig.model_validate({"url": url, "model": model, "api_key_env": api_key_env, **limits})
    return ChatClient(config)
