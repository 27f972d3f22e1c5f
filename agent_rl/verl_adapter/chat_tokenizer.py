"""Loads a model's tokenizer with verl's continuous-token builder, for policies over tokens."""

from __future__ import annotations

import json
from pathlib import Path

from agent_rl.errors import ConfigError
from agent_rl.policies.tokens import ChatTokenizer

__all__ = ["load_chat_tokenizer"]


def load_chat_tokenizer(model: str) -> ChatTokenizer:
    """Load the tokenizer as verl does, with the token builder that verl chooses for the model.

    Args:
        model: folder or name of the model.

    Raises:
        ConfigError: when there is no tokenizer, or verl is not installed.
    """
    try:
        from verl.utils.tokenizer import hf_tokenizer
        from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

        from agent_rl.verl_adapter.token_builder import of_any_template
    except ImportError as error:
        raise ConfigError("policy", f"a policy over tokens needs verl ({error})", "Install agent-rl[cpu]") from None
    try:
        tokenizer = hf_tokenizer(model)
    except (OSError, ValueError) as error:
        problem = f"there is no tokenizer in {model!r} ({str(error).splitlines()[0]})"
        raise ConfigError("tokenizer", problem, "Name the model's folder or its name on the Hub") from None
    verls = create_continuous_token_builder(tokenizer, hf_model_type=_model_type(model))
    return ChatTokenizer(tokenizer, of_any_template(verls))


def _model_type(model: str) -> str | None:
    """The model type, by which verl chooses its builder; None: the general builder."""
    config = Path(model) / "config.json"
    if config.is_file():
        kind: str | None = json.loads(config.read_text()).get("model_type")
        return kind
    from transformers import AutoConfig

    try:
        return str(AutoConfig.from_pretrained(model).model_type)
    except (OSError, ValueError):
        return None
