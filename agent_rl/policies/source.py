"""`PolicySource`: where the episodes of one evaluation get their policies from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.policy import Policy
from agent_rl.errors import ConfigError
from agent_rl.remote import Remote, RemoteError, RemoteLimits, Response
from agent_rl.secrets import secret

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PolicySource", "PolicyUsage", "Sampling", "open_remote", "reach"]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Sampling(BaseModel):
    """How turns are sampled; the names are those of verl's `val_kwargs`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    temperature: float = Field(default=1.0, ge=0)
    """0: greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    """Not part of OpenAI's interface; SGLang, vLLM and transformers have it."""
    max_response_tokens: int = Field(default=2048, ge=1)
    """Tokens of one episode after the prompt, observations included, as `data.max_response_length`."""
    body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of a chat endpoint's request; null removes one that would be sent."""


@dataclass(slots=True)
class PolicyUsage:
    """What one episode has cost."""

    requests: int = 0
    input_tokens: int = 0
    """Tokens of the prompts of all requests together, each of which holds the whole conversation so far."""


class PolicySource(ABC):
    """A model that answers many episodes at once; use it as an async context manager."""

    remote: Remote | None = None
    """The client of its server; None: it has none."""

    async def __aenter__(self) -> Self:
        if self.remote is not None:
            await self.remote.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.remote is not None:
            await self.remote.__aexit__()

    async def check(self) -> None:
        """Refuse what cannot work, before the first episode.

        Raises:
            ConfigError: the model cannot be reached, or has another name.
        """
        return None

    @abstractmethod
    def policy(self, usage: PolicyUsage, seed: int | None = None, format: Format | None = None) -> Policy:
        """A fresh conversation.

        Args:
            usage: is kept up to date by the policy.
            seed: of its sampling, where the model takes one; None: the model's own.
            format: says which special tokens end a turn and belong to its text; None: only the model's configuration.
        """


async def reach(remote: Remote, url: str, path: str) -> Response:
    """What the server answers to a first question.

    Args:
        remote: its client, open.
        url: its address, for the error.
        path: what is asked for.

    Raises:
        ConfigError: it does not answer.
    """
    try:
        return await remote.request("GET", path)
    except RemoteError as error:
        raise ConfigError("endpoint", f"{url} does not answer ({error.problem})", "Start the server") from None


def open_remote(url: str, *, api_key_env: str | None, concurrency: int, timeout_s: float) -> Remote:
    """A client for a model's server, which may take `timeout_s` seconds to answer one request.

    Raises:
        ConfigError: for what is no address, or a key that is not in the environment.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError("endpoint", f"{url!r} is not an address", "Write it as http://127.0.0.1:8000")
    headers = {} if api_key_env is None else {"Authorization": f"Bearer {secret(api_key_env)}"}
    limits = RemoteLimits(timeout_s=timeout_s, total_s=3 * timeout_s, max_concurrent=concurrency)
    own = url.split("://", 1)[1].startswith(LOOPBACK)
    return Remote(url, headers=headers, limits=limits, trust_env=not own)
