"""Resolves a composed configuration, and finds missing values and interpolations that cannot be resolved.

verl resolves the configuration only when its trainer starts, in a Ray worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from agent_rl.errors import ConfigError

__all__ = ["leaves", "problems", "resolved"]

_CAUSES = {
    r"Environment variable '(.+?)' not found": "the environment variable {} is not set",
    r"Interpolation key '(.+?)' not found": "it refers to '{}', which is not there",
    r"Unsupported interpolation type (\S+)": "there is no resolver '{}'",
}


def resolved(config: DictConfig) -> dict[str, Any]:
    """Plain containers without interpolations; as it is written if one of them cannot be resolved."""
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException:
        plain = OmegaConf.to_container(config)
    return dict(plain)


def leaves(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of plain containers with its value; a list is a value."""
    if isinstance(plain, Mapping) and plain:
        for key, value in plain.items():
            yield from leaves(value, f"{path}.{key}".lstrip("."))
    else:
        yield path, plain


def problems(config: DictConfig) -> list[ConfigError]:
    """An error for each missing mandatory value and each interpolation that cannot be resolved."""
    has_reward_model = OmegaConf.select(config, "reward.reward_model.enable")  # without one, verl skips its section
    faults = (fault for fault in _faults(config) if has_reward_model or not fault[0].startswith("reward.reward_model."))
    return [problem for fault in faults if (problem := _problem(*fault))]


def _faults(node: Any, path: str = "") -> Iterator[tuple[str, str, OmegaConfBaseException]]:
    """Key, unresolved value, and error of each."""
    for key in node if OmegaConf.is_dict(node) else range(len(node)):
        here = f"{path}.{key}".lstrip(".")
        try:
            value = node[key]
        except OmegaConfBaseException as error:
            written: Any = OmegaConf.to_container(node)
            yield here, str(written[key]), error
            continue
        if OmegaConf.is_config(value) and not OmegaConf.is_interpolation(node, key):
            yield from _faults(value, here)


def _problem(key: str, written: str, error: OmegaConfBaseException) -> ConfigError | None:
    """The error with a remedy; None for a value that only refers to the wrong one."""
    remedy = f"Give {key}=..."
    if isinstance(error, MissingMandatoryValue):
        return ConfigError(key, "verl needs a value and there is none", remedy)
    for pattern, problem in _CAUSES.items():
        if cause := re.search(pattern, str(error)):
            return ConfigError(key, problem.format(cause[1]), remedy) if cause[1] in written else None
    return ConfigError(key, " ".join(str(error).split("full_key:")[0].split()), remedy)
