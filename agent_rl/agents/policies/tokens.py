"""Policies that send token ids to SGLang or vLLM, and receive token ids.

The conversation is the same as in training (`agents.policies.token_policy`) except for the server, so an episode has
exactly the tokens that it would have in training. The text around turns comes from the same builder, which the caller
passes in, because policies must not depend on verl.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent_rl.agents.episode.budget import UNLIMITED
from agent_rl.agents.episode.format import Format
from agent_rl.agents.policies.source import PolicySource, PolicyUsage, Sampling
from agent_rl.agents.policies.token_policy import TokenPolicy
from agent_rl.errors import ConfigError
from agent_rl.remote import ChatClient


class ChatTokenizer(NamedTuple):
    """A model's tokenizer, and the builder that derives the tokens around its turns."""

    tokenizer: Any
    builder: Any
    """The builder for `TokenPolicy`."""


@dataclass(slots=True)
class Sampled:
    """Sampled tokens, with the attributes of verl's `TokenOutput`."""

    token_ids: list[int]
    log_probs: list[float] | None = None
    stop_reason: str | None = None
    """`length` if the token limit ended the sample, `abort` if the server aborted it."""
    num_preempted: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)


class TokenSource(PolicySource):
    """A token server with its model's tokenizer.

    Args:
        chat: the model's tokenizer, and the builder that derives the tokens around turns.
        sampling: the sampling parameters.
    """

    engine_stops = True
    """Whether the server stops at stop strings; either way, the turn is cut at its first stop string."""

    logprobs = False
    """Whether to request the log-probability of every sampled token."""
    drop_thoughts = False
    """Whether to drop the thoughts of earlier turns from the context if the chat template drops them."""

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
            RemoteError: the server failed.
        """

    def policy(self, usage: PolicyUsage, seed: int | None = None, format: Format | None = None) -> TokenPolicy:
        """Start a new conversation."""
        sampling = self.sampling
        optional = {"top_k": sampling.top_k, "seed": seed, "logprobs": self.logprobs or None}
        params = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        params |= {name: value for name, value in optional.items() if value is not None}
        return TokenPolicy(
            _Server(self, usage),
            self.builder,
            self.tokenizer,
            params,
            prompt_length=sampling.max_prompt_tokens or UNLIMITED,
            response_length=sampling.max_response_tokens,
            engine_stops=self.engine_stops,
            format=format,
            drop_thoughts=self.drop_thoughts,
        )


class SGLangTokens(TokenSource):
    """A model behind an SGLang server; `ChatEndpoint` and `TokenSource` describe the arguments."""

    client: ChatClient

    def __init__(self, client: ChatClient, chat: ChatTokenizer, sampling: Sampling) -> None:
        super().__init__(chat, sampling)
        self.client, self.url = client, client.config.url.rstrip("/").removesuffix("/v1")

    async def check(self) -> None:
        """Check that an SGLang server answers.

        Raises:
            ConfigError: the server does not answer, or is not an SGLang server.
        """
        answer = await self.client.reach(f"{self.url}/get_server_info")
        if not answer.ok:
            problem = f"{self.url} is not an SGLang server (status {answer.status})"
            raise ConfigError("endpoint", problem, "Correct the address, or use policy=chat")

    async def sample(self, prompt_ids: list[int], params: dict[str, Any]) -> Sampled:
        """See `TokenSource.sample`."""
        params = dict(params)
        logprobs, seed = bool(params.pop("logprobs", False)), params.pop("seed", None)
        params |= {} if seed is None else {"sampling_seed": seed}
        body = {"input_ids": prompt_ids, "sampling_params": params, "return_logprob": logprobs}

        def read(answer: Any) -> Sampled:
            info = answer["meta_info"]
            pairs = info["output_token_logprobs"] if logprobs else None
            reason = (info["finish_reason"] or {}).get("type")
            return Sampled(answer["output_ids"], [pair[0] for pair in pairs] if pairs else None, reason)

        return await self.client.post(f"{self.url}/generate", body, read, "tokens")


class VLLMTokens(TokenSource):
    """A model behind a vLLM server; `ChatEndpoint` and `TokenSource` describe the arguments."""

    client: ChatClient

    def __init__(self, client: ChatClient, chat: ChatTokenizer, sampling: Sampling) -> None:
        super().__init__(chat, sampling)
        self.client = client

    async def sample(self, prompt_ids: list[int], params: dict[str, Any]) -> Sampled:
        """See `TokenSource.sample`."""
        params = dict(params)
        logprobs = bool(params.pop("logprobs", False))
        body = {
            "model": self.client.config.model,
            "prompt": prompt_ids,
            "max_tokens": params.pop("max_new_tokens"),
            "return_token_ids": True,
            **({"logprobs": 0} if logprobs else {}),
            **params,
        }

        def read(answer: Any) -> Sampled:
            choice = answer["choices"][0]
            values = choice["logprobs"]["token_logprobs"] if logprobs else None
            return Sampled(list(choice["token_ids"]), values, choice["finish_reason"])

        return await self.client.post("/completions", body, read, "token ids: is this vLLM 0.10.2 or later?")


class _Server:
    """Adapts a source to the interface of verl's token server, for one conversation."""

    def __init__(self, source: TokenSource, usage: PolicyUsage) -> None:
        self._source, self._usage = source, usage

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Sampled:
        sampled = await self._source.sample(prompt_ids, sampling_params)
        self._usage.requests += 1
        self._usage.input_tokens += len(prompt_ids)
        return sampled
