"""Calls verl's own checks and loaders for the doctor, without starting a run.

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

__all__ = ["is_registered", "load_tokenizer", "needs_critic", "token_builder", "verls_checks"]

SECTIONS = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm", "critic")
"""Sections that verl turns into dataclasses, which check themselves; the model's would load the model's config."""


def is_registered() -> bool:
    """Whether verl has loaded our plugin: a failing plugin it ignores silently.

    Raises:
        ImportError: and whatever else importing verl raises.
    """
    import verl  # noqa: F401

    return "agent_rl.verl_adapter.plugin" in sys.modules


def verls_checks(config: DictConfig) -> dict[str, Callable[[], object]]:
    """Verl's own checks of a resolved configuration, which raise: of the whole (""), and of each section it reads."""
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    critic = needs_critic(config)
    sections = {key: OmegaConf.select(config, key) for key in SECTIONS if key != "critic" or critic}
    whole = partial(inspect.unwrap(validate_config), config, need_reference_policy(config), critic)
    return {"": whole} | {
        key: partial(omega_conf_to_dataclass, section) for key, section in sections.items() if "_target_" in section
    }


def load_tokenizer(folder: str, *, trust_remote_code: bool) -> Any:
    """A model's tokenizer, from this machine only."""
    from verl.utils.tokenizer import hf_tokenizer

    return hf_tokenizer(folder, trust_remote_code=trust_remote_code, local_files_only=True)


def token_builder(tokenizer: Any, model_type: str | None, options: Mapping[str, Any], processor: Any) -> Any:
    """The builder of the tokens around turns in a run with a model; it may raise anything."""
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    from agent_rl.verl_adapter.token_builder import of_any_template

    logging.getLogger("verl.utils.tokenizer.continuous_token_wiring").setLevel(logging.ERROR)
    return of_any_template(
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
