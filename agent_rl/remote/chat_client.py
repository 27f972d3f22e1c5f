"""`ChatClient`: one model behind an OpenAI-compatible endpoint (SGLang, vLLM, a gateway, a hosted service).

    async with ChatClient(EndpointConfig(url="http://localhost:8000", model="Qwen/Qwen3-8B"), "judge.config") as client:
        completion = await client.chat({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 64})

Judges, simulated users, reward models and evaluation use this client. The client checks the responses, and sends no
requests while the circuit is open; `Remote` retries and limits the requests. If an endpoint rejects the key or the
model at the first request, a `ConfigError` is raised; every other failure is a `RemoteError`, which leaves the
trajectory unscored. The `openai` package is not used, because it limits neither rate nor size and retries on its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import Field

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.remote.breaker import BreakerConfig, CircuitBreaker
from agent_rl.remote.http import SERVER_URL, Remote, RemoteLimits, bearer
from agent_rl.remote.responses import RemoteError, Response
from agent_rl.work.concurrency import PerLoop

T = TypeVar("T")
JsonMode = Literal["json_schema", "json_object", "none"]
JSON_MODES: tuple[JsonMode, ...] = ("json_schema", "json_object", "none")
_REFUSALS = {
    401: ("api_key_env", "the endpoint requires an API key", "Set api_key_env to the variable that contains the key"),
    403: ("api_key_env", "the endpoint rejects this API key", "Correct the key in the variable set as api_key_env"),
    404: ("url", "the endpoint has no such address or model", "Correct the endpoint's address or the model's name"),
}
_BAD_REQUEST = (400, 413, 422)
"""HTTP statuses that report an invalid request rather than a failure of the endpoint."""
_TOO_LONG = re.compile(r"context[ _]length|context window|maximum context|longer than the model|too many tokens", re.I)
"""Matches server errors about conversations that are too long, such as OpenAI's code context_length_exceeded."""


class EndpointConfig(RemoteLimits):
    """The address of a model's endpoint, and limits on requests to it."""

    url: str = Field(pattern=SERVER_URL, examples=["http://localhost:8000"])
    """The part of the address before `/chat/completions`; if it has no path, `/v1` is appended."""
    model: str = Field(min_length=1)
    """The model's name at the endpoint."""
    api_key_env: str | None = None
    """Name of the environment variable that contains the API key; if null, no key is sent."""
    breaker: BreakerConfig = BreakerConfig(failures=None)


class UnusableReplyError(RemoteError):
    """The endpoint responded, but the response has no usable content. A request with another seed may succeed."""


class TooLongError(RemoteError):
    """The conversation is longer than the endpoint's context."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply from the model."""

    message: Mapping[str, Any]
    """The message as the endpoint returned it: `content` is a string, null or missing."""
    finish: str | None = None
    matched_stop: Any = None
    """The stop string or token that ended the reply, if the server reports it (vLLM and SGLang do)."""
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Number of tokens in the prompt and the reply, or 0 if the server does not report it."""
        reported = self.usage.get("total_tokens")
        return reported if isinstance(reported, int) else 0

    @property
    def text(self) -> str:
        """The message's text."""
        return self.message.get("content") or ""


class ChatClient:
    """Sends requests to one endpoint; as an async context manager, it keeps connections open between requests.

    Args:
        config: the endpoint.
        key: the configuration key of `config`, for error messages; empty if the endpoint came from the command line.
        json_modes: JSON modes to try, in order of preference; a mode that the server rejects is not tried again.

    Raises:
        ConfigError: the API key is not in the environment.
    """

    def __init__(
        self,
        config: EndpointConfig,
        key: str = "",
        *,
        json_modes: Sequence[JsonMode] = JSON_MODES,
    ) -> None:
        self.config, self._key = config, key
        base = config.url.rstrip("/")
        self.url = base if "/" in base.partition("://")[2] else f"{base}/v1"
        self.host = self.url.split("/")[2].rpartition("@")[2]
        headers = bearer(config.api_key_env, self._setting("api_key_env"))
        self._remote = Remote(self.url, headers=headers, limits=config)
        self._slots = PerLoop(lambda: asyncio.Semaphore(config.max_concurrent))
        self._breaker = CircuitBreaker(config.breaker, self.host)
        self._json_modes, self._json_mode = tuple(json_modes), 0
        self._answered = False

    async def __aenter__(self) -> ChatClient:
        await self._remote.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._remote.__aexit__()

    async def check(self) -> None:
        """Check that the endpoint's list of models contains the model; an endpoint that lists no models passes.

        Raises:
            ConfigError: the endpoint does not answer or rejects the key, or its list does not contain the model.
        """
        response = await self.reach("/models")
        if response.status in (401, 403):
            raise self._refusal(response)
        try:
            names = [str(model["id"]) for model in response.json()["data"]] if response.ok else []
        except (RemoteError, TypeError, KeyError):
            names = []
        if names and self.config.model not in names:
            problem = f"{self.address} has no model {self.config.model!r}"
            raise ConfigError(self._setting("model"), problem, did_you_mean(self.config.model, names))

    async def reach(self, path: str) -> Response:
        """Send a GET request to test whether the endpoint responds, and return the response.

        Raises:
            ConfigError: the endpoint does not answer.
        """
        try:
            return await self._remote.request("GET", path)
        except RemoteError as error:
            problem = f"{self.address} does not answer ({error.problem})"
            raise ConfigError(self._setting("url"), problem, "Start the server") from None

    async def chat(self, body: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> Completion:
        """Request one reply from the model.

        Args:
            body: fields of the request; the model's name is added, and fields that are None are removed.
            schema: JSON schema of the reply, enforced as far as the server supports it.

        Raises:
            TooLongError: the conversation does not fit the model's context.
            UnusableReplyError: the response has no message.
            RemoteError: there was no response, or the circuit is open.
            ConfigError: the endpoint rejects the API key, or has no such address or model.
        """
        body = {"model": self.config.model, **body}
        async with self._slots.get():
            if schema is None:
                return await self._complete(body)
            mode = self._json_mode
            while True:
                try:
                    completion = await self._complete(
                        {"response_format": _response_format(self._json_modes[mode], schema), **body}
                    )
                except RemoteError as error:
                    refused = error.status in _BAD_REQUEST and not isinstance(error, TooLongError)
                    if not refused or mode + 1 == len(self._json_modes):
                        raise
                    mode += 1  # the server may have rejected the JSON mode
                else:
                    self._json_mode = max(self._json_mode, mode)
                    return completion

    async def post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T], missing: str) -> T:
        """Send a request other than a chat completion.

        Args:
            path: a path to append to the endpoint's address, or an absolute URL.
            body: the request body, sent as JSON.
            read: extracts the result from the response; it raises a LookupError, TypeError or AttributeError if the
                result is missing, and a ValueError that describes the problem if the result is unusable.
            missing: name of the result, for the error message if it is missing.

        Raises:
            RemoteError: see `chat`.
            ConfigError: see `chat`.
        """
        async with self._slots.get():
            return await self._send(path, body, read, missing)

    @property
    def address(self) -> str:
        """The endpoint's URL without its user name and password, so that messages can contain it."""
        return re.sub(r"//[^/@]*@", "//", self.url)

    def _setting(self, name: str) -> str:
        if self._key:
            return f"{self._key}.{name}"
        return "endpoint" if name == "url" else name

    async def _complete(self, body: Mapping[str, Any]) -> Completion:
        body = {name: value for name, value in body.items() if value is not None}
        return await self._send("/chat/completions", body, _completion, "message")

    async def _send(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T], missing: str) -> T:
        with self._breaker.watch():
            response = await self._remote.request("POST", path, json=body)
            if response.status in _REFUSALS and not self._answered:
                raise self._refusal(response)
            if response.ok:
                return self._read(response, read, missing)
            problem = self._remote.problem(response)
            if response.status not in _BAD_REQUEST:
                raise RemoteError(response.host, problem, response.status)
        failure = TooLongError if _TOO_LONG.search(response.text) else RemoteError
        raise failure(response.host, problem, response.status)

    def _read(self, response: Response, read: Callable[[Any], T], missing: str) -> T:
        try:
            result = read(response.json())
        except RemoteError as error:
            raise UnusableReplyError(error.host, error.problem, response.status) from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            problem = str(error) if type(error) is ValueError else f"the answer has no {missing}"
            raise UnusableReplyError(response.host, problem, response.status) from None
        self._answered = True
        return result

    def _refusal(self, response: Response) -> ConfigError:
        name, problem, remedy = _REFUSALS[response.status]
        return ConfigError(self._setting(name), f"{self.address}: {problem} ({self._remote.problem(response)})", remedy)


def _response_format(mode: JsonMode, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the request's `response_format` for a JSON mode."""
    if mode == "json_schema":
        return {"type": mode, "json_schema": {"name": "reply", "strict": True, "schema": schema}}
    return None if mode == "none" else {"type": mode}


def _completion(answer: Any) -> Completion:
    """Extract the first choice from the endpoint's response."""
    choice = answer["choices"][0]
    message, finish = choice["message"], choice.get("finish_reason")
    if not isinstance(message, dict) or not isinstance(message.get("content") or "", str):
        raise TypeError
    if finish in ("abort", "error"):
        raise ValueError(f"the endpoint stopped the reply with finish_reason {finish!r}")
    usage = answer.get("usage")
    matched = choice.get("matched_stop", choice.get("stop_reason"))
    return Completion(message, finish, matched, usage if isinstance(usage, dict) else {})
