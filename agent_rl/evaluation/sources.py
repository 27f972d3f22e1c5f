"""The policy source that the settings ask for, with a server of its own where they name none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent_rl.errors import ConfigError
from agent_rl.evaluation.settings import EvaluationSettings
from agent_rl.policies import PolicySource

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
    if settings.endpoint is None:
        raise ConfigError("endpoint", "no address is given", "Name one with --endpoint http://127.0.0.1:8000")
    async with _source(settings, settings.endpoint, settings.model) as source:
        await source.check()
        yield source


def _source(settings: EvaluationSettings, url: str, model: str) -> PolicySource:
    tokenizer = settings.tokenizer or model
    if settings.policy == "chat":
        from agent_rl.policies.chat import ChatEndpoint

        return ChatEndpoint(
            url, model, settings.sampling, api_key_env=settings.api_key_env, concurrency=settings.concurrency,
            timeout_s=settings.timeout_s,
        )  # fmt: skip
    if settings.policy == "sglang":
        from agent_rl.policies.sglang import SGLangTokens

        return SGLangTokens(
            url, tokenizer, settings.sampling, api_key_env=settings.api_key_env, concurrency=settings.concurrency,
            timeout_s=settings.timeout_s,
        )  # fmt: skip
    from agent_rl.policies.vllm import VLLMTokens

    return VLLMTokens(
        url, model, tokenizer, settings.sampling, api_key_env=settings.api_key_env, concurrency=settings.concurrency,
        timeout_s=settings.timeout_s,
    )  # fmt: skip
