"""vLLM's completions endpoint with token ids in both directions (`return_token_ids`, since vLLM 0.10.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_rl.errors import EngineError
from agent_rl.policies.source import ClientOptions, Sampling, open_client
from agent_rl.policies.tokens import ChatTokenizer, Sampled, TokenSource
from agent_rl.remote import ChatClient, RemoteError

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["VLLMTokens"]


class VLLMTokens(TokenSource):
    """A model behind a vLLM server; the arguments are those of `ChatEndpoint` and `TokenSource`."""

    client: ChatClient

    def __init__(
        self, url: str, model: str, chat: ChatTokenizer, sampling: Sampling, **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(chat, sampling)
        self.client = open_client(url, model, **options)

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

        try:
            return await self.client.post("/completions", body, read, "token ids: is this vLLM 0.10.2 or later?")
        except RemoteError as error:
            raise EngineError(str(error)) from error
