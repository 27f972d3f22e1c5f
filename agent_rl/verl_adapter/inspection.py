"""Calls verl's own checks and loaders for the doctor, without starting a run.

Each function imports verl when it is called.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

__all__ = [
    "is_registered",
    "load_reward_manager",
    "load_tokenizer",
    "reward_managers",
    "scores",
    "section_checks",
    "token_builder",
    "whole_checks",
]

SECTIONS = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm", "critic")
"""Sections that verl turns into dataclasses, which check themselves; the model's would load the model's config."""


def is_registered() -> bool:
    """Whether verl has loaded our plugin: a failing plugin it ignores silently.

    Raises:
        ImportError: and whatever else importing verl raises.
    """
    import verl  # noqa: F401

    return "agent_rl.verl_adapter.plugin" in sys.modules


def whole_checks(config: DictConfig) -> tuple[Callable[[], None], Callable[[], None]]:
    """Verl's own validation of a resolved configuration, and the same with our checks; both raise."""
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.utils.config import validate_config

    arguments = config, need_reference_policy(config), _needs_critic(config)
    return lambda: inspect.unwrap(validate_config)(*arguments), lambda: validate_config(*arguments)


def section_checks(config: DictConfig) -> dict[str, Callable[[], None]]:
    """Verl's check, which raises, for each section of a resolved configuration that a run would read."""
    from verl.utils.config import omega_conf_to_dataclass

    critic = _needs_critic(config)
    sections = {key: OmegaConf.select(config, key) for key in SECTIONS if key != "critic" or critic}
    return {
        key: lambda section=section: omega_conf_to_dataclass(section)  # type: ignore[misc]
        for key, section in sections.items()
        if "_target_" in section
    }


def load_tokenizer(folder: str, *, trust_remote_code: bool) -> tuple[Any, Any]:
    """A model's tokenizer and, of a multimodal model, its processor (else None); from this machine only."""
    from verl.utils.tokenizer import hf_processor, hf_tokenizer

    options = {"trust_remote_code": trust_remote_code, "local_files_only": True}
    multimodal = os.path.isfile(os.path.join(folder, "preprocessor_config.json"))
    return hf_tokenizer(folder, **options), hf_processor(folder, **options) if multimodal else None


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


def reward_managers() -> set[str]:
    """The names of the registered reward managers."""
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER

    return set(REWARD_MANAGER)


def load_reward_manager(config: DictConfig) -> None:
    """Load the reward manager's class as a run would; the user's module may raise anything."""
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    resolve_reward_manager_cls(config)


def scores(data_source: str) -> bool:
    """Whether verl's own scoring knows a data source."""
    from verl.utils.reward_score import default_compute_score

    try:
        default_compute_score(data_source, "", "")
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001 - a scorer that fails on an empty answer is still a scorer
        return True
    return True


def _needs_critic(config: DictConfig) -> bool:
    from verl.trainer.ppo.utils import need_critic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl warns that there is no critic
        return bool(need_critic(config))
