"""SGLang's native endpoint `/generate`, with token ids in both directions."""

from __future__ import annotations

from typing import Any

from agent_rl.errors import ConfigError, EngineError
from agent_rl.policies.source import Sampling, open_remote, reach
from agent_rl.policies.tokens import ChatTokenizer, Sampled, TokenSource
from agent_rl.remote import Remote, RemoteError

__all__ = ["SGLangTokens"]


class SGLangTokens(TokenSource):
    """A model behind an SGLang server; the arguments are those of `ChatEndpoint` and `TokenSource`."""

    remote: Remote

    def __init__(
        self,
        url: str,
        chat: ChatTokenizer,
        sampling: Sampling,
        *,
        api_key_env: str | None = None,
        concurrency: int = 64,
        timeout_s: float = 600,
    ) -> None:
        super().__init__(chat, sampling)
        self.url = url.rstrip("/").removesuffix("/v1")
        self.remote = open_remote(self.url, api_key_env=api_key_env, concurrency=concurrency, timeout_s=timeout_s)

    async def check(self) -> None:
        """Ask whether the server is well.

        Raises:
            ConfigError: it is not there, or not SGLang.
        """
        answer = await reach(self.remote, self.url, "/get_server_info")
        if not answer.ok:
            problem = f"{self.url} is not an SGLang server (status {answer.status})"
            raise ConfigError("endpoint", problem, "Mend the address, or use policy=chat")

    async def sample(self, prompt_ids: list[int], params: dict[str, Any]) -> Sampled:
        """See `TokenSource.sample`."""
        params = dict(params)
        logprobs, seed = bool(params.pop("logprobs", False)), params.pop("seed", None)
        params |= {} if seed is None else {"sampling_seed": seed}
        body = {"input_ids": prompt_ids, "sampling_params": params, "return_logprob": logprobs}
        try:
            answer = await self.remote.post_json("/generate", body)
        except RemoteError as error:
            raise EngineError(str(error)) from error
        try:
            info = answer["meta_info"]
            pairs = info["output_token_logprobs"] if logprobs else None
            reason = (info["finish_reason"] or {}).get("type")
            return Sampled(answer["output_ids"], [pair[0] for pair in pairs] if pairs else None, reason)
        except (KeyError, TypeError, IndexError, AttributeError):
            raise EngineError(f"{self.url}: the answer has no tokens") from None
