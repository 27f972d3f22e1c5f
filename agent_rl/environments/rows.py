"""The rows of an environment, as rows of the contract."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.rows import make_row
from agent_rl.data.sources import read_raw
from agent_rl.environments.loading import EnvironmentType
from agent_rl.environments.session import NAME, ROW
from agent_rl.errors import ConfigError
from agent_rl.settings.user_code import UserCodeError, defined_at
from agent_rl.trajectory import plain

__all__ = ["SPLITS", "environment_rows"]

SPLITS = ("train", "test")
HELD_OUT = 8
"""Every eighth row of a file without a column `split` is a test row."""


def environment_rows(kind: EnvironmentType, split: str, seed: int) -> list[dict[str, Any]]:
    """Return the rows of a split, from the method `rows` or the file `data`; the run's default agent is theirs.

    Args:
        kind: the environment.
        split: `train` or `test`.
        seed: seed of generated rows.

    Raises:
        ConfigError: there are no rows, or a row cannot be used; names the row and the line of the method.
        UserCodeError: the method `rows` raises.
    """
    where = f"{kind.cls.__qualname__}.data" if kind.cls.data else f"{kind.cls.__qualname__}.rows"
    if not kind.cls.data:
        where += f" ({defined_at(kind.cls.rows)})"
    rows = []
    for index, values in enumerate(_values(kind, split, seed)):
        place = f"{where}, {split} row {index}"
        if not isinstance(values, Mapping) or "prompt" not in values:
            shown = f"has the keys {', '.join(values)}" if isinstance(values, Mapping) else f"is {values!r}"
            raise ConfigError(place, f"it {shown}, without prompt", "Yield a dict with the key prompt")
        _check_arguments(kind, values, place)
        try:
            text = json.dumps(plain(place, dict(values)), ensure_ascii=False)
        except ValueError as error:
            raise ConfigError(place, str(error), "Use text, numbers, lists and dicts") from error
        prompt = values["prompt"]
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not (isinstance(messages, list) and messages and all(isinstance(each, Mapping) for each in messages)):
            raise ConfigError(place, f"its prompt is {prompt!r}", "Write text, or a list of chat messages")
        if kind.system and messages[0].get("role") != "system":
            messages = [{"role": "system", "content": kind.system}, *messages]
        row = make_row(
            prompt=messages,
            data_source=kind.name,
            ground_truth=None,
            style="environment",
            ability="environment",
            split=split,
            index=index,
            extra_info={NAME: kind.name, ROW: text},
        )
        del row["agent_name"]
        rows.append(row)
    if not rows:
        raise ConfigError(where, f"there are no rows of the split {split!r}", "Yield at least one row for each split")
    return rows


def _values(kind: EnvironmentType, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
    if kind.cls.data is None:
        try:
            return list(kind.cls().rows(split, seed))
        except Exception as error:
            raise UserCodeError.of(f"{kind.cls.__name__}.rows", error, code=kind.cls.rows) from error
    file = Path(inspect.getfile(kind.cls)).parent / kind.cls.data
    try:
        rows = [dict(raw.value) for raw in read_raw(file)]
    except ConfigError as error:
        where = f"{kind.cls.__qualname__}.data ({defined_at(kind.cls)})"
        raise ConfigError(where, f"{error.key}: {error.problem}", error.remedy) from error
    return [row for number, row in enumerate(rows) if split == (row.get("split") or SPLITS[number % HELD_OUT == 7])]


def _check_arguments(kind: EnvironmentType, values: Mapping[str, Any], place: str) -> None:
    """Refuse a row that lacks an argument of `reset`, or has one that it does not take."""
    try:
        inspect.signature(kind.cls.reset).bind(None, **values)
    except TypeError as error:
        remedy = f"The row has {', '.join(values)}; add **row to reset for columns that it does not need"
        raise ConfigError(f"{place}, reset ({defined_at(kind.cls.reset)})", str(error), remedy) from error
