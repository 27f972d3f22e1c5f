"""`Panel`: requests several votes on a question from one LLM judge, and checks whether they reach the quorum.

If a reply has no usable verdict, another reply is requested with another seed, up to `verdict_attempts` in total; if
all fail, the vote is missing. A question with fewer votes than the quorum is unscored. Votes in the cache are not
requested again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, model_validator

from agent_rl.errors import UnscoredError
from agent_rl.remote.breaker import BreakerConfig
from agent_rl.remote.chat_client import JSON_MODES, ChatClient, EndpointConfig, JsonMode, UnusableReplyError
from agent_rl.rewards.judge.fence import Fence
from agent_rl.rewards.judge.prompt import Question, load_template
from agent_rl.rewards.judge.verdict import MAX_REASON, VerdictError
from agent_rl.work.store import Cache, reply_key


class PanelConfig(EndpointConfig):
    """A judge's endpoint, and the number of votes and attempts."""

    temperature: float | None = Field(default=0.6, ge=0)
    """Sampling temperature; null means the server's default. At 0, every seed yields the same reply and verdict."""
    max_tokens: int = Field(default=1024, ge=1)
    """Maximum number of tokens per reply, including thoughts."""
    seed: int = Field(default=0, ge=0)
    """Seed of the first vote."""
    json_mode: Literal["auto"] | JsonMode = "auto"
    """How JSON is requested. `auto` tries the schema, then any JSON object, and finally only the prompt's instruction;
    a mode that the server rejects is not tried again."""
    body: dict[str, Any] = Field(default_factory=dict)
    """Additional fields of the request; null removes a default field."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Timeout for each attempt at a request, in seconds."""
    total_s: float = Field(default=180.0, gt=0)
    """Timeout for all attempts at a request together, including the delays between them, in seconds."""
    breaker: BreakerConfig = BreakerConfig()
    votes: int = Field(default=1, ge=1, le=99)
    """Number of votes per question, each with a different seed."""
    quorum: int | None = Field(default=None, ge=1)
    """Minimum number of successful votes per question; null means more than half of `votes`."""
    verdict_attempts: int = Field(default=3, ge=1)
    """Maximum number of replies to request per vote, each with another seed, until a reply contains a verdict."""
    cache: bool = True
    """Whether verdicts are cached, so that a repeated question needs no request."""
    cache_path: str | None = None
    """File on a local disk that keeps the cached verdicts for other processes and runs; null keeps them in memory."""
    max_reason: int = Field(default=MAX_REASON, ge=0, le=MAX_REASON)
    """Maximum number of characters in a verdict's reason, if the server enforces the schema."""
    template: str | None = None
    """File with the prompt, or the class `file.py:Name` that wrote the judge's training prompts
    (`agent_rl.rewards.judge.kinds`); null means the built-in file for the mode."""
    max_chars: int = Field(default=8_000, ge=200)
    """Maximum number of characters per question, answer, reference or transcript; the middle of a longer one is cut."""

    @model_validator(mode="after")
    def _can_vote(self) -> PanelConfig:
        if self.quorum is not None and self.quorum > self.votes:
            raise ValueError(f"quorum={self.quorum} is greater than votes={self.votes}")
        if self.votes > 1 and self.temperature == 0:
            raise ValueError("at temperature=0 all votes are the same; set votes=1, or a higher temperature")
        return self


@dataclass(slots=True)
class Ballot:
    """Collects the votes on one or more questions, and their cost."""

    verdicts: list[Any] = field(default_factory=list)
    failures: int = 0
    """Number of replies without a verdict, plus votes without a reply."""
    calls: int = 0
    """Number of requested replies."""
    tokens: int = 0
    cache_hits: int = 0


class Panel:
    """Requests votes from one judge model.

    Args:
        config: see `PanelConfig`.
        key: the configuration key of `config`, used in error messages.
        mode: see `load_template`.

    Raises:
        ConfigError: the API key is missing, or the template or the cache file cannot be used.
    """

    def __init__(self, config: PanelConfig, key: str, mode: str) -> None:
        self.config = config
        self.template = load_template(config.template, mode, f"{key}.template", config.body)
        modes = JSON_MODES if config.json_mode == "auto" else (config.json_mode,)
        self.client = ChatClient(config, key, json_modes=modes)
        self._cache = Cache(config.cache_path if config.cache else None, f"{key}.cache_path", "verdicts")
        self._quorum = config.quorum or config.votes // 2 + 1

    async def ask(self, question: Question, ballot: Ballot) -> list[Any]:
        """Return the verdicts on a question.

        Args:
            question: the material to judge, and the form of the verdict.
            ballot: the object to which the votes and their cost are added.

        Raises:
            UnscoredError: there are fewer votes than the quorum.
            ConfigError: the endpoint rejects the API key, or has no such address or model.
        """
        async with self.client:
            votes = (self._vote(question, number, ballot) for number in range(self.config.votes))
            results = await asyncio.gather(*votes, return_exceptions=True)
        problems = [result for result in results if isinstance(result, BaseException)]
        verdicts = [result for result in results if not isinstance(result, BaseException)]
        ballot.verdicts += verdicts
        for problem in problems:
            if not isinstance(problem, UnscoredError):
                raise problem
        if len(verdicts) < self._quorum:
            shortage = f"{len(verdicts)} of {self.config.votes} votes succeeded, but {self._quorum} are needed"
            raise UnscoredError(f"{shortage}: {problems[-1]}")
        return verdicts

    async def _vote(self, question: Question, number: int, ballot: Ballot) -> Any:
        config, kept = self.config, False
        if config.cache:
            sampling = (config.model, config.temperature, config.max_tokens, config.seed, config.body)
            key = reply_key(self.template.render(question, Fence("")), sampling, number)
            verdict, kept = await self._cache.get(key, lambda: self._requested(question, number, ballot))
        else:
            verdict = await self._requested(question, number, ballot)
        ballot.cache_hits += kept
        return question.form.model.model_validate_json(verdict)

    async def _requested(self, question: Question, number: int, ballot: Ballot) -> str:
        """Request replies until a reply contains a verdict, and return the verdict as JSON."""
        config = self.config
        problem: Exception | None = None
        sampling = {"temperature": config.temperature, "max_tokens": config.max_tokens}
        schema = question.form.schema(config.max_reason) if self.template.in_json else None
        for attempt in range(config.verdict_attempts):
            seed = config.seed + number + attempt * config.votes
            fence = Fence()
            body = {"messages": self.template.render(question, fence), **sampling, "seed": seed, **config.body}
            try:
                ballot.calls += 1
                completion = await self.client.chat(body, schema)
                ballot.tokens += completion.tokens
                return str(self.template.parse(completion.text, question, fence).model_dump_json())
            except (VerdictError, UnusableReplyError) as error:
                ballot.failures += 1
                problem = error
            except UnscoredError:
                ballot.failures += 1
                raise
        raise UnscoredError(f"no verdict in {config.verdict_attempts} replies; the last problem was: {problem}")
