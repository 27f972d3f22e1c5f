"""vLLM's completions endpoint with token ids in both directions (`return_token_ids`, since vLLM 0.10.2)."""

from __future__ import annotations

from typing import Any

from agent_rl.errors import EngineError
from agent_rl.policies.chat import ChatEndpoint
from agent_rl.policies.source import Sampling
from agent_rl.policies.tokens import ChatTokenizer, Sampled, TokenSource
from agent_rl.remote import Remote, RemoteError

__all__ = ["VLLMTokens"]


class VLLMTokens(TokenSource):
    """A model behind a vLLM server; the arguments are those of `ChatEndpoint` and `TokenSource`."""

    def __init__(
        self,
        url: str,
        model: str,
        chat: ChatTokenizer,
        sampling: Sampling,
        *,
        api_key_env: str | None = None,
        concurrency: int = 64,
        timeout_s: float = 600,
    ) -> None:
        super().__init__(chat, sampling)
        self._endpoint = ChatEndpoint(
            url, model, sampling, api_key_env=api_key_env, concurrency=concurrency, timeout_s=timeout_s
        )
        self.remote: Remote = self._endpoint.remote

    async def check(self) -> None:
        """As `ChatEndpoint.check`."""
        await self._endpoint.check()

    async def sample(self, prompt_ids: list[int], params: dict[str, Any]) -> Sampled:
        """See `TokenSource.sample`."""
        params = dict(params)
        logprobs = bool(params.pop("logprobs", False))
        body = {
            "model": self._endpoint.model,
            "prompt": prompt_ids,
            "max_tokens": params.pop("max_new_tokens"),
            "return_token_ids": True,
            **({"logprobs": 0} if logprobs else {}),
            **params,
        }
        try:
            answer = await self.remote.post_json("/completions", body)
        except RemoteError as error:
            raise EngineError(str(error)) from error
        try:
            choice = answer["choices"][0]
            values = choice["logprobs"]["token_logprobs"] if logprobs else None
            return Sampled(list(choice["token_ids"]), values, choice["finish_reason"])
        except (KeyError, TypeError, IndexError):
            problem = "the answer has no token ids: is this vLLM 0.10.2 or later?"
            raise EngineError(f"{self._endpoint.url}: {problem}") from None
