"""The training keys that affect a prompt or its tokens, and the evaluation settings with the same meaning."""

from __future__ import annotations

from functools import reduce
from typing import Any

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.errors import ConfigError
from agent_rl.settings import SECTION

_ROLLOUT = "actor_rollout_ref.rollout"
_LENGTHS = {"prompt_length": "sampling.max_prompt_tokens", "response_length": "sampling.max_response_tokens"}

PROMPT_KEYS = {
    SECTION: SECTION,
    "data.apply_chat_template_kwargs": "apply_chat_template_kwargs",
    "actor_rollout_ref.model.custom_chat_template": "custom_chat_template",
    "actor_rollout_ref.model.tokenizer_path": "tokenizer",
    f"{_ROLLOUT}.agent.default_agent_loop": "default_loop",
    f"{_ROLLOUT}.multi_turn.tool_config_path": "tools",
    **{f"{_ROLLOUT}.multi_turn.{name}": f"multi_turn.{name}" for name in EpisodeLimits._fields if name not in _LENGTHS},
    **{f"data.max_{name}": own for name, own in _LENGTHS.items()},
    **{f"{_ROLLOUT}.{name}": own for name, own in _LENGTHS.items()},  # the agent loop reads these keys
}

TRAINING_ONLY: dict[str, tuple[Any, ...]] = {
    "data.custom_cls.path": (None, "pkg://agent_rl/verl_adapter/row_data_set"),
    "data.prompt_key": ("prompt",),
    "data.image_key": ("images",),
    "data.mm_processor_kwargs": ({}, None),
    f"{_ROLLOUT}.multi_turn.function_tool_path": (None,),
}
"""Training keys for which an evaluation has no setting, each with the values that do not change prompts."""


def as_setting(word: str) -> str:
    """Return a `key=value` word with its training key replaced by the corresponding evaluation key, if there is one."""
    words = (own + word[len(key) :] for key, own in PROMPT_KEYS.items() if word.startswith((f"{key}.", f"{key}=")))
    return next(words, word)


def refuse_training_only(config: Any) -> None:
    """Reject a resolved training configuration whose prompts an evaluation cannot reproduce.

    Raises:
        ConfigError: a key has a value that changes the prompts; the error names the key.
    """
    for key, harmless in TRAINING_ONLY.items():
        if (value := value_of(config, key)) not in harmless:
            problem = f"{value!r} changes the training prompts in a way that an evaluation cannot reproduce"
            raise ConfigError(key, problem, f"Add {key}={'null' if harmless[0] is None else harmless[0]}")


def value_of(config: Any, key: str) -> Any:
    """Return the value of a key in a resolved configuration, or None if a section is missing."""
    return reduce(lambda section, name: (section or {}).get(name), key.split("."), config)
