"""`JudgeClient`: one model behind an OpenAI-compatible endpoint, told to write JSON where the server knows how.

Retries, Retry-After, rate and concurrency are `agent_rl.remote`'s. A server that keeps failing is left alone for a
while (`breaker`), and what is asked is counted and may be limited (`budget`). Every failure is an `UnscoredError`;
a refused key or an unknown model is a `ConfigError` as long as the endpoint has never answered.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ConfigDict, Field

from agent_rl.concurrency import PerLoop
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.remote import Remote, RemoteError, RemoteLimits, Response
from agent_rl.rewards.judge.breaker import BreakerConfig, CircuitBreaker, LeftAloneError
from agent_rl.rewards.judge.budget import Budget, BudgetConfig, Usage
from agent_rl.secrets import Secrets, secret

__all__ = ["EndpointConfig", "JudgeClient", "Reply", "UnusableReplyError"]

JsonMode = Literal["json_schema", "json_object", "none"]
_MODES: tuple[JsonMode, ...] = ("json_schema", "json_object", "none")
_REFUSED = {
    401: ("api_key_env", "the endpoint wants an API key", "Name the environment variable that holds it"),
    403: ("api_key_env", "the endpoint refuses this API key", "Mend the key, or name another variable"),
    404: ("url", "the endpoint has no such address or model", "Mend url and model"),
}
_BAD_REQUEST = (400, 422)
_CHARACTERS_OF_A_TOKEN = 4  # where the server does not count
_MAX_EXCERPT = 200  # characters of a refusal's body that an error repeats


class EndpointConfig(RemoteLimits):
    """The endpoint of a judge, and the keys of `agent_rl.remote.http.RemoteLimits`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    url: str = Field(pattern="^https?://.")
    """The address before `/chat/completions`; `/v1` is added where it has no path."""
    model: str
    """Its name there."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the API key; null: none is sent."""
    temperature: float | None = Field(default=0.6, ge=0)
    """null: the server's. At 0 another seed gives the same reply, and so no other verdict."""
    max_tokens: int = Field(default=1024, ge=1)
    """Of one reply, with its thoughts."""
    seed: int = Field(default=0, ge=0)
    """Of the first vote."""
    json_mode: Literal["auto"] | JsonMode = "auto"
    """How the server is told to write JSON. auto: by the schema, or else as any object, or else not at all; what it
    refuses is found out once."""
    body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request; null removes one that would be sent."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Seconds of one attempt of a request."""
    total_s: float = Field(default=180.0, gt=0)
    """Seconds of all attempts of a request and the delays between them."""
    breaker: BreakerConfig = BreakerConfig()
    budget: BudgetConfig = BudgetConfig()


class UnusableReplyError(UnscoredError):
    """The server answered, and there is no message in its answer."""


class _BadRequestError(Exception):
    """A request that the server finds wrong; says nothing about the server. Its arguments are a `RemoteError`'s."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the judge said."""

    text: str
    tokens: int
    """Of prompt and reply."""


class JudgeClient:
    """To be shared by all that ask this judge in a process; use it as an async context manager to keep connections.

    Args:
        config: the endpoint.
        key: the configuration key of `config`, for errors.

    Raises:
        ConfigError: the API key is not in the environment.
    """

    def __init__(self, config: EndpointConfig, key: str) -> None:
        self.config, self._key = config, key
        base = config.url.rstrip("/")
        self.url = base if "/" in base.partition("://")[2] else f"{base}/v1"
        token = None if config.api_key_env is None else secret(config.api_key_env, key=f"{key}.api_key_env")
        self._secrets = Secrets([token] if token else [])
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._remote = Remote(self.url, headers=headers, limits=config)
        self._slots = PerLoop(lambda: asyncio.Semaphore(config.max_concurrent))
        self._breaker = CircuitBreaker(config.breaker, f"the judge at {self.url.split('/')[2].rpartition('@')[2]}")
        self._budget = Budget(config.budget, key)
        self._mode = 0 if config.json_mode == "auto" else _MODES.index(config.json_mode)
        self._answered = False

    @property
    def usage(self) -> Usage:
        """What has been asked so far, in this process."""
        return self._budget.usage

    async def __aenter__(self) -> JudgeClient:
        await self._remote.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._remote.__aexit__()

    async def ask(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any], seed: int) -> Reply:
        """The judge's reply to a conversation.

        Raises:
            UnusableReplyError: the answer has no message; asked again it may have one.
            UnscoredError: no answer, the budget is spent, or the server is left alone for now.
            ConfigError: no request will be answered.
        """
        async with self._slots.get():
            mode = self._mode
            last = mode if self.config.json_mode != "auto" else len(_MODES) - 1
            while True:
                try:
                    reply = await self._send(self._body(messages, schema, seed, _MODES[mode]))
                except _BadRequestError as refusal:
                    if mode == last:
                        self._budget.count(failures=1)
                        raise RemoteError(*refusal.args) from None
                    mode += 1  # it may be the way in which JSON is asked for that is refused
                else:
                    self._mode = max(self._mode, mode)
                    return reply

    def _body(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any], seed: int, mode: JsonMode
    ) -> dict[str, Any]:
        asked = {
            "json_schema": {"type": mode, "json_schema": {"name": "verdict", "strict": True, "schema": schema}},
            "json_object": {"type": mode},
            "none": None,
        }
        body = {
            "model": self.config.model,
            "messages": list(messages),
            "temperature": self.config.temperature,
            "max_tokens": self.config.max_tokens,
            "seed": seed,
            "response_format": asked[mode],
            **self.config.body,
        }
        return {key: value for key, value in body.items() if value is not None}

    async def _send(self, body: Mapping[str, Any]) -> Reply:
        self._budget.require()
        try:
            with self._breaker.watch():
                return await self._requested(body)
        except LeftAloneError:
            self._budget.count(refused=1)
            raise

    async def _requested(self, body: Mapping[str, Any]) -> Reply:
        """One request, counted; an `UnscoredError` is the server's failure."""
        self._budget.count(calls=1)
        try:
            response = await self._remote.request("POST", "/chat/completions", json=body)
        except RemoteError as error:
            self._budget.count(attempts=error.attempts, failures=1)
            raise
        self._budget.count(attempts=response.attempts)
        if response.status in _BAD_REQUEST:
            raise _BadRequestError(response.host, self._problem(response), response.status)
        if response.status in _REFUSED and not self._answered:
            name, problem, remedy = _REFUSED[response.status]
            raise ConfigError(f"{self._key}.{name}", f"{self.url}: {problem} ({self._problem(response)})", remedy)
        try:
            reply = self._reply(response, body)
        except UnscoredError:
            self._budget.count(failures=1)
            raise
        self._answered = True
        self._budget.count(tokens=reply.tokens)
        return reply

    def _reply(self, response: Response, body: Mapping[str, Any]) -> Reply:
        """The first choice's message; a message without text is an empty text."""
        if not response.ok:
            raise RemoteError(response.host, self._problem(response), response.status)
        try:
            answer = response.json()
            text = answer["choices"][0]["message"]["content"] or ""
            if not isinstance(text, str):
                raise TypeError
        except RemoteError as error:
            raise UnusableReplyError(str(error)) from None
        except (KeyError, IndexError, TypeError):
            raise UnusableReplyError(f"{response.host}: the answer has no message") from None
        try:
            tokens = int(answer["usage"]["total_tokens"])
        except (KeyError, TypeError, ValueError):
            said = text + "".join(message["content"] for message in body["messages"])
            tokens = math.ceil(len(said) / _CHARACTERS_OF_A_TOKEN)
        return Reply(text, tokens)

    def _problem(self, response: Response) -> str:
        return f"status {response.status}: {self._secrets.hide(response.text)[:_MAX_EXCERPT]}"
