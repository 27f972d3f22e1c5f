"""SGLang's native endpoint `/generate`, with token ids in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_rl.errors import ConfigError, EngineError
from agent_rl.policies.source import ClientOptions, Sampling, open_client
from agent_rl.policies.tokens import ChatTokenizer, Sampled, TokenSource
from agent_rl.remote import ChatClient, RemoteError

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["SGLangTokens"]


class SGLangTokens(TokenSource):
    """A model behind an SGLang server; the arguments are those of `ChatEndpoint` and `TokenSource`."""

    client: ChatClient

    def __init__(self, url: str, chat: ChatTokenizer, sampling: Sampling, **options: Unpack[ClientOptions]) -> None:
        super().__init__(chat, sampling)
        self.url = url.rstrip("/").removesuffix("/v1")
        self.client = open_client(self.url, "default", **options)

    async def check(self) -> None:
        """Check that the server answers and is SGLang.

        Raises:
            ConfigError: it is not there, or not SGLang.
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

        try:
            return await self.client.post(f"{self.url}/generate", body, read, "tokens")
        except RemoteError as error:
            raise EngineError(str(error)) from error
