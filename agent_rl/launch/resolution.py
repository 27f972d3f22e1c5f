"""Resolves a composed configuration, and finds missing values and interpolations that cannot be resolved.

verl resolves the configuration only when its trainer starts, in a Ray worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from agent_rl.errors import ConfigError

__all__ = ["problems", "resolved"]

_RESOLVING = re.compile(r'^\w+ raised while resolving interpolation: "(.+)"$')
"""OmegaConf's report of a resolver's exception."""


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return plain containers with interpolations resolved; if one cannot be resolved, none is."""
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException:
        plain = OmegaConf.to_container(config)
    return dict(plain)


def problems(config: DictConfig) -> list[ConfigError]:
    """Return an error for each missing mandatory value and each interpolation that cannot be resolved."""
    has_reward_model = OmegaConf.select(config, "reward.reward_model.enable")  # without one, verl skips its section
    return [each for each in _problems(config) if has_reward_model or not each.key.startswith("reward.reward_model.")]


def _problems(node: Any, path: str = "") -> Iterator[ConfigError]:
    for key in node if OmegaConf.is_dict(node) else range(len(node)):
        here = f"{path}.{key}".lstrip(".")
        try:
            value = node[key]
        except MissingMandatoryValue:
            yield ConfigError(here, "verl needs a value, and no value is set", f"Set {here}=...")
        except OmegaConfBaseException as error:
            problem = _RESOLVING.sub(r"\1", str(error).splitlines()[0])
            written: Any = OmegaConf.to_container(node)
            cause = re.search(r"(?:'|type )([^' ]+)", problem)
            if cause is None or cause[1] in str(written[key]):  # otherwise the cause is in another key
                yield ConfigError(here, problem, f"Set {here}=...")
        else:
            if OmegaConf.is_config(value) and not OmegaConf.is_interpolation(node, key):
                yield from _problems(value, here)
