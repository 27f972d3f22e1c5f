"""Loads a model's tokenizer with its chat template."""

from __future__ import annotations

from typing import Any

from agent_rl.errors import ConfigError


def load_tokenizer(name: str, key: str) -> Any:
    """Load the tokenizer of a model.

    Args:
        name: the model's folder, or its name on the Hub.
        key: the setting that contains the name, for errors.

    Raises:
        ConfigError: there is no such tokenizer, or it has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        problem = f"there is no tokenizer in {name!r} ({str(error).splitlines()[0]})"
        raise ConfigError(key, problem, "Use the model's folder or its name on the Hub") from None
    if not tokenizer.chat_template:
        raise ConfigError(key, f"{name} has no chat template", "Use the tokenizer of the -Instruct model")
    return tokenizer
