"""Opens the policy source that the settings name, and starts a server if they name none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.evaluation.settings import EvaluationSettings
from agent_rl.policies import PolicySource
from agent_rl.policies.tokens import TokenSource
from agent_rl.verl_adapter.chat_tokenizer import load_chat_tokenizer

__all__ = ["open_source"]


@asynccontextmanager
async def open_source(settings: EvaluationSettings, folder: Path) -> AsyncIterator[PolicySource]:
    """The source, open and checked.

    Args:
        settings: what is evaluated.
        folder: gets the log of a server that is started.

    Raises:
        ConfigError: the model cannot be reached.
    """
    async with AsyncExitStack() as stack:
        url, tokenizer = settings.endpoint, settings.tokenizer or settings.model
        if url is None and settings.policy == "vllm":
            raise ConfigError("endpoint", "no server of vLLM is started here", "Name one: --endpoint http://host:8000")
        if url is None:
            from agent_rl.evaluation.checkpoint import model_folder

            model = await asyncio.to_thread(model_folder, settings.model, folder / "model")
            tokenizer = settings.tokenizer or str(model)
            if settings.policy != "local":
                from agent_rl.evaluation.server import serve

                url = await stack.enter_async_context(serve(model, settings.model, folder / "server.log"))
        elif settings.policy == "local":
            raise ConfigError("endpoint", "policy=local uses no endpoint", "Leave one of the two out")
        source = _source(settings, url or "", tokenizer)
        if isinstance(source, TokenSource):
            source.logprobs = settings.agent_rl.trace.tokens
            source.drop_thoughts = settings.agent_rl.thinking.history == "template"
        await stack.enter_async_context(source)
        await source.check()
        yield source


def _source(settings: EvaluationSettings, url: str, tokenizer: str) -> PolicySource:
    sampling, limits = settings.sampling, _limits(settings)
    if settings.policy == "chat":
        from agent_rl.policies.chat import ChatEndpoint

        return ChatEndpoint(url, settings.model, sampling, **limits)
    chat = load_chat_tokenizer(tokenizer)
    if settings.policy == "sglang":
        from agent_rl.policies.sglang import SGLangTokens

        return SGLangTokens(url, chat, sampling, **limits)
    if settings.policy == "vllm":
        from agent_rl.policies.vllm import VLLMTokens

        return VLLMTokens(url, settings.model, chat, sampling, **limits)
    from agent_rl.policies.local import LocalModel

    return LocalModel(tokenizer, chat, sampling)


def _limits(settings: EvaluationSettings) -> dict[str, Any]:
    return settings.model_dump(include={"api_key_env", "concurrency", "timeout_s"})
