"""Calls verl's checks and loaders for the doctor and for evaluations, without starting a run.

Each function imports verl when it is called.
"""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agent_rl.agents.policies.tokens import ChatTokenizer
from agent_rl.errors import ConfigError
from agent_rl.tools import ToolSpec, load_tools

SECTIONS = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm", "critic")
"""Sections that verl converts to self-checking dataclasses, except the model section, which would load a config."""


def is_registered() -> bool:
    """Whether verl has loaded agent_rl's plugin; verl silently ignores a plugin that fails.

    Raises:
        ImportError: verl is missing; a broken verl may raise other errors.
    """
    import verl  # noqa: F401

    return "agent_rl.verl_adapter.plugin" in sys.modules


def verls_checks(config: DictConfig) -> dict[str, Callable[[], object]]:
    """Return verl's checks for a resolved configuration, by section ("" for the whole); a failure raises an error."""
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    critic = needs_critic(config)
    sections = {key: OmegaConf.select(config, key) for key in SECTIONS if key != "critic" or critic}
    whole = partial(inspect.unwrap(validate_config), config, need_reference_policy(config), critic)
    return {"": whole} | {
        key: partial(omega_conf_to_dataclass, section) for key, section in sections.items() if "_target_" in section
    }


def load_tokenizer(folder: str, *, trust_remote_code: bool) -> Any:
    """Load a model's tokenizer from local files only."""
    from verl.utils.tokenizer import hf_tokenizer

    return hf_tokenizer(folder, trust_remote_code=trust_remote_code, local_files_only=True)


def load_chat_tokenizer(
    model: str, options: Mapping[str, Any] | None = None, template: str | None = None
) -> ChatTokenizer:
    """Load the tokenizer as verl does, and attach the token builder that a run would use.

    Args:
        model: folder or name of the model.
        options: additional variables for the chat template (`data.apply_chat_template_kwargs`).
        template: chat template that replaces the tokenizer's (`actor_rollout_ref.model.custom_chat_template`).

    Raises:
        ConfigError: there is no tokenizer, or verl is not installed.
    """
    try:
        from verl.utils.tokenizer import hf_tokenizer
    except ImportError as error:
        raise ConfigError("policy", f"a token-level policy needs verl ({error})", "Install agent-rl[cpu]") from None
    try:
        tokenizer = hf_tokenizer(model)
    except (OSError, ValueError) as error:
        problem = f"there is no tokenizer in {model!r} ({str(error).splitlines()[0]})"
        raise ConfigError("tokenizer", problem, "Pass the model's folder or its name on the Hub") from None
    if template is not None:
        tokenizer.chat_template = template
    return ChatTokenizer(tokenizer, token_builder(tokenizer, _model_type(model), dict(options or {}), None))


def _model_type(model: str) -> str | None:
    """Return the model type, from which verl decides whether to render images, or None if it is unknown."""
    from transformers import PretrainedConfig

    try:
        kind: str | None = PretrainedConfig.get_config_dict(model)[0].get("model_type")
        return kind
    except (OSError, ValueError):
        return None


def token_builder(tokenizer: Any, model_type: str | None, options: Mapping[str, Any], processor: Any) -> Any:
    """Return the builder of the tokens around a model's turns; this function may raise any exception."""
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    from agent_rl.verl_adapter.token_builder import template_builder

    logging.getLogger("verl.utils.tokenizer.continuous_token_wiring").setLevel(logging.ERROR)
    return template_builder(
        create_continuous_token_builder(
            tokenizer, hf_model_type=model_type, chat_template_kwargs=dict(options), processor=processor
        )
    )


def needs_critic(config: DictConfig) -> bool:
    """Whether a run has a critic."""
    from verl.trainer.ppo.utils import need_critic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl warns that there is no critic
        return bool(need_critic(config))


def load_specs(path: str) -> list[ToolSpec]:
    """Return the tools of a tool file; verl is imported only if an entry names one of verl's classes.

    Raises:
        ConfigError: an entry is wrong; the error names the file, the entry and the field.
    """
    specs = load_tools(path)
    if any(spec.is_verl for spec in specs):
        from agent_rl.verl_adapter.verl_tools import load, to_specs

        return to_specs(load(path))
    return specs
