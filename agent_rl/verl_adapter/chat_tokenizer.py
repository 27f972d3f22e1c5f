"""Loads a model's tokenizer with the builder of the tokens around turns, for policies over tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.policies.tokens import ChatTokenizer

__all__ = ["load_chat_tokenizer"]


def load_chat_tokenizer(
    model: str, options: Mapping[str, Any] | None = None, template: str | None = None
) -> ChatTokenizer:
    """Load the tokenizer as verl does, with the builder of a run.

    Args:
        model: folder or name of the model.
        options: further variables of the chat template (`data.apply_chat_template_kwargs`).
        template: instead of the tokenizer's chat template (`actor_rollout_ref.model.custom_chat_template`).

    Raises:
        ConfigError: when there is no tokenizer, or verl is not installed.
    """
    try:
        from verl.utils.tokenizer import hf_tokenizer

        from agent_rl.verl_adapter.inspection import token_builder
    except ImportError as error:
        raise ConfigError("policy", f"a policy over tokens needs verl ({error})", "Install agent-rl[cpu]") from None
    try:
        tokenizer = hf_tokenizer(model)
    except (OSError, ValueError) as error:
        problem = f"there is no tokenizer in {model!r} ({str(error).splitlines()[0]})"
        raise ConfigError("tokenizer", problem, "Name the model's folder or its name on the Hub") from None
    if template is not None:
        tokenizer.chat_template = template
    return ChatTokenizer(tokenizer, token_builder(tokenizer, _model_type(model), dict(options or {}), None))


def _model_type(model: str) -> str | None:
    """The model type, by which verl knows whether it renders images; None: unknown."""
    from transformers import PretrainedConfig

    try:
        kind: str | None = PretrainedConfig.get_config_dict(model)[0].get("model_type")
        return kind
    except (OSError, ValueError):
        return None
