"""`Panel`: several votes on one question, each a verdict that could be read, and a quorum.

A reply without a verdict that can be used is asked for again with another seed, some times; then the vote is missing.
Where fewer votes than the quorum are left, the question is unscored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import Field, model_validator

from agent_rl.errors import UnscoredError
from agent_rl.rewards.judge.client import EndpointConfig, JudgeClient, UnusableReplyError
from agent_rl.rewards.judge.fence import Fence
from agent_rl.rewards.judge.memory import VerdictMemory, memory_key
from agent_rl.rewards.judge.template import Template
from agent_rl.rewards.judge.verdict import MAX_REASON, Verdict, VerdictError, VerdictForm

__all__ = ["Ballot", "Panel", "PanelConfig", "Question"]

Message = dict[str, str]


class PanelConfig(EndpointConfig):
    """How often a judge is asked, beside where it is."""

    votes: int = Field(default=1, ge=1, le=99)
    """Verdicts on each question, with a seed each."""
    quorum: int | None = Field(default=None, ge=1)
    """Votes without which nothing is said; null: more than half."""
    verdict_attempts: int = Field(default=3, ge=1)
    """Replies that are asked for, with other seeds, until one has a verdict."""
    cache: bool = True
    """Whether a question that was asked before is answered from memory."""
    cache_path: str | None = None
    """SQLite file on a local disk that keeps verdicts for other processes and runs; null: memory only."""
    max_reason: int = Field(default=MAX_REASON, ge=0, le=MAX_REASON)
    """Characters of a verdict's reason, where the server keeps to a schema."""
    template: str | None = None
    """File of the prompt; null: the built-in one of the mode."""
    max_chars: int = Field(default=8_000, ge=200)
    """Of each of question, answer, reference and transcript that the judge is shown; what is in the middle goes."""

    @model_validator(mode="after")
    def _quorum_can_be_met(self) -> PanelConfig:
        if self.quorum is not None and self.quorum > self.votes:
            raise ValueError(f"quorum={self.quorum} cannot be met by votes={self.votes}")
        if self.votes > 1 and self.temperature == 0:
            raise ValueError("at temperature=0 all votes are the same: use one, or a higher temperature")
        return self


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked once for each vote."""

    template: Template
    values: Callable[[Fence], dict[str, str]]
    """The placeholders' values, with what is judged inside the fence."""
    form: VerdictForm

    @property
    def shown(self) -> str:
        """All that the judge may quote."""
        return "\n".join(self.values(Fence("")).values())

    def messages(self, fence: Fence) -> list[Message]:
        """The conversation."""
        system, user = self.template.fill(self.values(fence))
        system = "\n\n".join(part for part in (system, fence.guard) if part)
        user = f"{user}\n\n{self.form.instructions}"
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]


@dataclass(slots=True)
class Ballot:
    """The votes on one question or several, and what they cost."""

    verdicts: list[Verdict] = field(default_factory=list)
    failures: int = 0
    """Replies without a verdict, and votes that got no reply."""
    calls: int = 0
    """Replies that were asked for."""
    tokens: int = 0
    cache_hits: int = 0

    def add(self, other: Ballot) -> None:
        """Count the other in."""
        self.verdicts += other.verdicts
        self.failures += other.failures
        self.calls += other.calls
        self.tokens += other.tokens
        self.cache_hits += other.cache_hits


class Panel:
    """Asks one judge.

    Args:
        config: see `PanelConfig`.
        key: its configuration key, for errors.

    Raises:
        ConfigError: the API key or the cache's file cannot be had.
    """

    def __init__(self, config: PanelConfig, key: str) -> None:
        self.config = config
        self.client = JudgeClient(config, key)
        self._memory = VerdictMemory(config.cache_path, f"{key}.cache_path") if config.cache else None
        self._quorum = config.quorum or config.votes // 2 + 1

    async def ask(self, question: Question, ballot: Ballot | None = None) -> Ballot:
        """Collect the votes on a question.

        Args:
            question: what is asked.
            ballot: is counted in, beside the result.

        Raises:
            UnscoredError: fewer votes than the quorum.
            ConfigError: see `JudgeClient.ask`.
        """
        own = Ballot()
        async with self.client:
            votes = await asyncio.gather(
                *(self._vote(question, number, own) for number in range(self.config.votes)), return_exceptions=True
            )
        problems = [vote for vote in votes if isinstance(vote, BaseException)]
        own.verdicts = [vote for vote in votes if isinstance(vote, Verdict)]
        if ballot is not None:
            ballot.add(own)
        for problem in problems:
            if not isinstance(problem, UnscoredError):
                raise problem
        if len(own.verdicts) < self._quorum:
            asked = f"{len(own.verdicts)} of {self.config.votes} votes, {self._quorum} are needed"
            raise UnscoredError(f"{asked}: {problems[-1]}")
        return own

    async def _vote(self, question: Question, number: int, ballot: Ballot) -> Verdict:
        if self._memory is None:
            return await self._asked(question, number, ballot)
        config = self.config
        sampling = (config.model, config.temperature, config.max_tokens, config.seed, config.body)
        key = memory_key(question.messages(Fence("")), sampling, number)
        async with self._memory.turn(key):
            kept = await self._memory.get(key)
            if kept is not None:
                ballot.cache_hits += 1
                return question.form.model.model_validate_json(kept)
            verdict = await self._asked(question, number, ballot)
            await self._memory.put(key, verdict.model_dump_json(by_alias=True))
            return verdict

    async def _asked(self, question: Question, number: int, ballot: Ballot) -> Verdict:
        problem: Exception | None = None
        schema = question.form.schema_for(self.config.max_reason)
        for attempt in range(self.config.verdict_attempts):
            seed = self.config.seed + number + attempt * self.config.votes
            try:
                ballot.calls += 1
                reply = await self.client.ask(question.messages(Fence()), schema, seed)
                ballot.tokens += reply.tokens
                return question.form.read(reply.text, question.shown)
            except (VerdictError, UnusableReplyError) as error:
                ballot.failures += 1
                problem = error
            except UnscoredError:
                ballot.failures += 1
                raise
        raise UnscoredError(f"no verdict in {self.config.verdict_attempts} replies, the last: {problem}")

    def close(self) -> None:
        """Let go of the cache's file."""
        if self._memory is not None:
            self._memory.close()
