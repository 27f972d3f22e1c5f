"""The rows of an environment, as rows of the contract."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from agent_rl.data.rows import make_row
from agent_rl.environments.kind import SPLITS, EnvironmentType
from agent_rl.environments.session import NAME, ROW, USER
from agent_rl.errors import ConfigError
from agent_rl.settings.user_code import defined_at
from agent_rl.trajectory import plain

__all__ = ["SPLITS", "environment_rows"]


def environment_rows(kind: EnvironmentType, split: str, seed: int) -> list[dict[str, Any]]:
    """Return the rows of a split, from the method `rows` or the file `data`.

    Rows with a simulated user (a mapping `user`) are for `user_sim_agent`, all others for the run's default agent.

    Args:
        kind: the environment.
        split: `train` or `test`.
        seed: seed of generated rows.

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
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not (isinstance(messages, list) and messages and all(isinstance(each, Mapping) for each in messages)):
            raise ConfigError(place, f"its prompt is {prompt!r}", "Write text, or a list of chat messages")
        if kind.system and messages[0].get("role") != "system":
            messages = [{"role": "system", "content": kind.system}, *messages]
        has_user = kind.agent is None and isinstance(values.get(USER), Mapping)
        agent = kind.agent or ("user_sim_agent" if has_user else None)
        row = make_row(
            prompt=messages,
            data_source=kind.name,
            ground_truth=None,
            style="environment",
            ability="environment",
            split=split,
            index=index,
            agent_name=agent or "react_agent",
            extra_info={NAME: kind.name, ROW: text} | ({USER: values[USER]} if has_user else {}),
        )
        if agent is None:
            del row["agent_name"]  # the run's default agent is theirs
        rows.append(row)
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
