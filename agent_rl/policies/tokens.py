"""Policies over tokens: token ids in, token ids out.

The conversation is the one of training (`agent_rl.policies.token_policy`) with another server behind it, so that an
episode is token for token what the trainer would have sampled. The text around turns comes from verl's builder for
the model, which is given to these sources: they do not know verl.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent_rl.agents.episode.budget import UNLIMITED
from agent_rl.agents.episode.format import Format
from agent_rl.policies.source import PolicySource, PolicyUsage, Sampling
from agent_rl.policies.token_policy import TokenPolicy

__all__ = ["ChatTokenizer", "Sampled", "TokenSource"]


class ChatTokenizer(NamedTuple):
    """A model's tokenizer, and what makes the tokens around its turns."""

    tokenizer: Any
    builder: Any
    """verl's continuous-token builder for the model."""


@dataclass(slots=True)
class Sampled:
    """What was sampled; the attributes are those of verl's `TokenOutput`."""

    token_ids: list[int]
    log_probs: list[float] | None = None
    stop_reason: str | None = None
    """`length` when the limit on tokens ended it, `abort` when the server did."""
    num_preempted: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)


class TokenSource(PolicySource):
    """A server of tokens with the tokenizer of its model.

    Args:
        chat: the tokenizer and the template's tokens.
        sampling: how turns are sampled.
    """

    engine_stops = True
    """Whether the server stops at stop strings; a turn is cut there in any case."""

    logprobs = False
    """Whether to request the log-probability of every sampled token."""
    drop_thoughts = False
    """Whether the context drops thoughts of earlier turns where the chat template does."""

    def __init__(self, chat: ChatTokenizer, sampling: Sampling) -> None:
        self.tokenizer, self.builder = chat
        self.sampling = sampling

    @abstractmethod
    async def sample(self, prompt_ids: list[int], params: dict[str, Any]) -> Sampled:
        """Sample tokens after the prompt.

        Args:
            prompt_ids: the whole conversation so far.
            params: `temperature`, `top_p`, `max_new_tokens`, and optionally `top_k`, `seed`, `stop`,
                `stop_token_ids` and `logprobs`.

        Raises:
            EngineError: the server fails.
        """

    def policy(self, usage: PolicyUsage, seed: int | None = None, format: Format | None = None) -> TokenPolicy:
        """A fresh conversation."""
        sampling = self.sampling
        params: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        params |= {} if sampling.top_k is None else {"top_k": sampling.top_k}
        params |= {} if seed is None else {"seed": seed}
        params |= {"logprobs": True} if self.logprobs else {}
        return TokenPolicy(
            _Server(self, usage),
            self.builder,
            self.tokenizer,
            params,
            prompt_length=UNLIMITED,
            response_length=sampling.max_response_tokens,
            engine_stops=self.engine_stops,
            format=format,
            drop_thoughts=self.drop_thoughts,
        )


class _Server:
    """The source as verl's token server looks to one conversation."""

    def __init__(self, source: TokenSource, usage: PolicyUsage) -> None:
        self._source, self._usage = source, usage

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Sampled:
        sampled = await self._source.sample(prompt_ids, sampling_params)
        self._usage.requests += 1
        self._usage.input_tokens += len(prompt_ids)
        return sampled
