"""The rows of an environment, as rows of the contract."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from agent_rl.data.rows import make_row
from agent_rl.environments.loading import SPLITS, EnvironmentType
from agent_rl.environments.session import NAME, ROW
from agent_rl.errors import ConfigError
from agent_rl.settings.user_code import defined_at
from agent_rl.trajectory import plain

__all__ = ["SPLITS", "environment_rows"]


def environment_rows(kind: EnvironmentType, split: str, seed: int, agent: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a split, from the method `rows` or the file `data`.

    Args:
        kind: the environment.
        split: `train` or `test`.
        seed: seed of generated rows.
        agent: name of the agent; None: the environment's.

    Raises:
        ConfigError: there are no rows, or a row cannot be used; names the row and the line of the method.
        UserCodeError: the method `rows` raises.
    """
    where = kind.rows_place
    rows = []
    for index, values in enumerate(kind.rows(split, seed)):
        place = f"{where}, {split} row {index}"
        prompt = kind.prompt(values, place)
        _check_arguments(kind, values, place)
        try:
            text = json.dumps(plain(place, dict(values)), ensure_ascii=False)
        except ValueError as error:
            raise ConfigError(place, str(error), "Use text, numbers, lists and dicts") from error
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        if kind.system and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": kind.system}, *messages]
        rows.append(
            make_row(
                prompt=messages,
                data_source=kind.name,
                ground_truth=None,
                style="environment",
                ability="environment",
                split=split,
                index=index,
                agent_name=agent or kind.agent,
                extra_info={NAME: kind.name, ROW: text},
            )
        )
    if not rows:
        raise ConfigError(where, f"there are no rows of the split {split!r}", "Yield at least one row for each split")
    return rows


def _check_arguments(kind: EnvironmentType, values: Mapping[str, Any], place: str) -> None:
    """Refuse a row that lacks an argument of `reset`, or has one that it does not take."""
    function, arguments = kind.reset_call(values, place)
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        remedy = f"The row has {', '.join(arguments)}; add **row to reset for columns that it does not need"
        raise ConfigError(f"{place}, reset ({defined_at(function)})", str(error), remedy) from error
