"""Environments from other packages, with one file per package: `gymnasium:FrozenLake-v1`, `textarena:Blackjack-v0`.

A file `<family>.py` has a function `environment(id)`, which returns a subclass of `Environment` for one of the family's
environments. The file imports the family's package inside functions, because the package is optional. A family that
runs in a separate Python defines the functions that `agent_rl.environments.serve` uses, and may omit `environment`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from agent_rl.environments.environment import Environment
from agent_rl.environments.served import class_of
from agent_rl.errors import ConfigError

__all__ = ["SIZES", "family_class", "family_names", "seeded_rows"]

SIZES = {"train": 512, "test": 64}
"""The number of rows in each split, for environments that generate their rows."""


def family_names() -> list[str]:
    """Return the names of all families."""
    return sorted(module.name for module in iter_modules(__path__))


def family_class(family: str, identifier: str) -> type[Environment]:
    """Return the class of one of a family's environments.

    Raises:
        ConfigError: the family's package is missing or does not contain the environment.
    """
    try:
        environment = getattr(import_module(f"{__name__}.{family}"), "environment", partial(class_of, family))
        cls: type[Environment] = environment(identifier)
    except ImportError as error:
        remedy = f"Run pip install 'agent-rl[{family}]'"
        raise ConfigError(f"{family}:{identifier}", f"a required package is missing: {error}", remedy) from error
    return cls


def seeded_rows(prompt: str, split: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield rows, each with a different seed for its world; the splits share no seed."""
    for number in range(SIZES[split]):
        yield {"prompt": prompt, "seed": 2 * (SIZES["train"] * seed + number) + (split == "test")}
