"""`reward_api`: a component that requests its value from `agent-rl reward serve` or a service with the same protocol.

    components:
      helpful:
        kind: reward_api
        config: {url: "http://host:8080/get_reward2", token_env: REWARD_TOKEN, logs: [correctness, helpful]}

The component sends `{"trajectory": ...}`, and the service answers `{"score": 0.5, "components": {...}, "logged":
{...}}` or `{"unscored": true, "error": "why"}`. Requests are retried while the service is down, so the service may be
restarted during a run. A retry may make the service measure a trajectory twice; only one of the values is used.
"""

from __future__ import annotations

import asyncio
import os
import reprlib
import sys
from collections.abc import Mapping
from typing import Any, TypeGuard

import httpx
from pydantic import Field, HttpUrl

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.remote import Remote, RemoteError, RemoteLimits, Response
from agent_rl.remote.breaker import BreakerConfig, CircuitBreaker
from agent_rl.remote.http import bearer
from agent_rl.remote.responses import host_of
from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.trajectory import Trajectory
from agent_rl.work.concurrency import PerLoop

TOKEN_ENV = "AGENT_RL_REWARD_TOKEN"
_WRONG_SETTINGS = (401, 403, 404, 405)
"""HTTP statuses that indicate a wrong token or path, until the service has answered a request."""
_MAX_EXCERPT = 500  # maximum number of characters of a service's error that a message quotes
_ANY_NUMBER = 10_000  # practically unlimited, because the timeouts limit the attempts
_BREAKER = BreakerConfig(failures=3, cooldown_s=1.0)
"""The circuit opens only after several failures, so that one trajectory that the service cannot measure does not block
the other trajectories."""


class RewardApiConfig(ComponentConfig):
    """The service's address, and limits on requests."""

    url: HttpUrl
    """Address of the service's endpoint, for example `http://host:8080/get_reward2`."""
    token_env: str | None = None
    """Environment variable, set on every worker, with the service's token; null means AGENT_RL_REWARD_TOKEN, if set."""
    logs: tuple[str, ...] = ()
    """Names of the numbers to log, which every answer must contain. The trace stores all numbers in an answer."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Timeout of one attempt, in seconds."""
    patience_s: float = Field(default=60.0, ge=0)
    """Seconds, in addition to `timeout_s`, for retrying a request; after that, the trajectory is unscored. After three
    failed requests in a row, no requests are sent, and no trajectories scored, until a probe succeeds."""
    max_concurrent: int = Field(default=64, ge=1)
    """Maximum number of concurrent requests per process."""
    rate_per_s: float | None = Field(default=None, gt=0)
    """Maximum number of requests per second from all processes of a node; null means no limit."""


class RewardApi(Component, kind="reward_api"):
    """Requests the value of each trajectory from the reward service.

    If the service rejects the path or the token before its first answer, a configuration error stops the run.
    """

    Config = RewardApiConfig

    def __init__(self, name: str, config: RewardApiConfig) -> None:
        super().__init__(name, config)
        self.logs = config.logs
        token_env = config.token_env or (TOKEN_ENV if os.environ.get(TOKEN_ENV) else None)
        limits = RemoteLimits(
            timeout_s=config.timeout_s,
            total_s=config.timeout_s + config.patience_s,
            attempts=_ANY_NUMBER,
            max_concurrent=config.max_concurrent,
            rate_per_s=config.rate_per_s,
        )
        headers = {"content-type": "application/json", **bearer(token_env, "token_env")}
        self._remote = Remote(headers=headers, limits=limits)
        self._url = str(config.url)
        self._host = host_of(httpx.URL(self._url))
        self._breaker = CircuitBreaker(_BREAKER, self._host)
        self._slots = PerLoop(lambda: asyncio.Semaphore(config.max_concurrent))
        self._answered = False

    async def reach(self) -> None:
        """Check that the service answers a request, with any HTTP status."""
        try:
            await self._remote.request("GET", self._url)
        except RemoteError as error:
            key = f"agent_rl.reward ({self.name}): url"
            raise ConfigError(key, f"{self._host} does not answer ({error.problem})", "Start the service") from None

    async def measure(self, trajectory: Trajectory) -> Value:
        """Request the trajectory's value from the service.

        Raises:
            UnscoredError: the service did not answer, could not score the trajectory, or sent no usable score.
            ConfigError: the service rejects the token or the path.
        """
        try:
            body = f'{{"trajectory": {trajectory.to_json()}}}'
        except ValueError as error:
            raise UnscoredError(f"the trajectory cannot be sent: {error}") from error
        async with self._slots.get():
            with self._breaker.watch():
                response = await self._remote.request("POST", self._url, content=body)
        if not response.ok:
            self._refused(response)
        self._answered = True
        try:
            return self._value(response.json())
        except ValueError as error:
            raise RemoteError(response.host, str(error), response.status) from None

    def _refused(self, response: Response) -> None:
        problem = f"{response.host} answered with {self._remote.problem(response)}"
        if response.status in _WRONG_SETTINGS and not self._answered:
            key = "token_env" if response.status in (401, 403) else "url"
            raise ConfigError(f"agent_rl.reward ({self.name}): {key}", problem, "Correct the key, or fix the service")
        raise UnscoredError(problem)

    def _value(self, answer: Any) -> Value:
        """Extract the value from the service's answer.

        Raises:
            UnscoredError: the service could not score the trajectory.
            ValueError: the answer does not follow the protocol.
        """
        if not isinstance(answer, Mapping):
            raise ValueError("the answer is not a JSON object")
        if answer.get("unscored"):
            raise UnscoredError(
                f"{self._host} could not score the trajectory: {str(answer.get('error'))[:_MAX_EXCERPT]}"
            )
        score = answer.get("score")
        if not _is_number(score):
            raise ValueError(f"the answer's score is not a number: {reprlib.repr(score)}")
        fields = {**_mapping(answer.get("logged")), **_mapping(answer.get("components"))}
        numbers = {name: float(value) for name, value in fields.items() if _is_number(value)}
        if missing := [name for name in self.logs if name not in numbers]:
            available = ", ".join(numbers) or "none"
            raise ValueError(f"the answer lacks {', '.join(missing)} (set in logs); it has the numbers {available}")
        notes = {**_mapping(answer.get("notes")), "numbers": numbers}
        return Value(float(score), {name: numbers[name] for name in self.logs}, notes)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a number that a float can represent."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
