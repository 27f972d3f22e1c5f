"""Harder variants of rows, made by a function of the user (`agent_rl.data.grow.function`).

def generate_harder_version(prompt: str) -> str: ...
def generate_harder_version(prompt: str, row: dict) -> dict | None: ...
"""

from __future__ import annotations

import copy
import inspect
import logging
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.user_code import UserCodeError, defined_at, is_outage

__all__ = ["HarderVersions", "variant_row"]

KEY = "agent_rl.data.grow.function"
RETURNS = "Return the harder prompt, a mapping with prompt and ground_truth, or None"
RESULT_KEYS = ("prompt", "ground_truth", "extra_info")

logger = logging.getLogger(__name__)


class HarderVersions:
    """The user's function.

    Args:
        name: as in the setting.
        folder: where a relative path starts; None: the working directory.

    Raises:
        ConfigError: there is no such function, or it cannot be called with one argument or two.
    """

    def __init__(self, name: str, folder: Path | None = None) -> None:
        self._function = find_object(name, Place(KEY), folder)
        if not callable(self._function):
            raise ConfigError(KEY, f"{name!r} is no function", "Name one that takes the text of a prompt")
        where = f"{name!r} ({defined_at(self._function)})"
        if inspect.iscoroutinefunction(self._function):
            raise ConfigError(KEY, f"{where} is `async def`", "Write `def`, and wait in it")
        fitting = [count for count in (2, 1) if _takes(self._function, count)]
        if not fitting:
            raise ConfigError(KEY, f"{where} cannot be called with a prompt", "Write `def NAME(prompt, row)`")
        self._count = fitting[0]

    def of(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """What changes in a harder variant of the row, for `variant_row`; None: there is none.

        There is none either while a service that the function asks cannot be reached.

        Raises:
            UserCodeError: the function has a bug; it names file and line.
            ConfigError: it returned something else.
        """
        arguments = (_original_prompt(row), copy.deepcopy(dict(row)))[: self._count]
        try:
            found = self._function(*arguments)
        except Exception as error:  # whatever the user's function raises; its bugs go to the user
            if not is_outage(error):
                raise UserCodeError.of(KEY, error, code=self._function) from error
            logger.warning("%s made no variant: %s: %s", KEY, type(error).__name__, error)
            return None
        return None if found is None else _result(found)


def variant_row(parent: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a variant.

    Args:
        parent: the row of which it was made.
        made: what `HarderVersions.of` returned, with `generation` and `step`, which `extra_info.grown` keeps with the
            parent's index.
    """
    row = copy.deepcopy(dict(parent))
    info = dict(row.get("extra_info") or {})
    old, new = _original_prompt(parent), made["prompt"]
    if isinstance(new, str):
        message = _last_of_user(row)
        text = message["content"]
        is_part = isinstance(old, str) and isinstance(text, str) and old in text
        message["content"] = text.replace(old, new) if is_part else new
        info |= {"question": new} if info.get("question") is not None else {}
    else:
        row["prompt"] = copy.deepcopy(new)
    if info.get("original_prompt") is not None:
        info["original_prompt"] = new
    if "ground_truth" in made:
        row["reward_model"] = {**(row.get("reward_model") or {}), "ground_truth": made["ground_truth"]}
    grown = {"parent": info.get("index"), "generation": made["generation"], "step": made["step"]}
    row["extra_info"] = {**info, **made.get("extra_info", {}), "grown": grown}
    return row


def _takes(function: Any, count: int) -> bool:
    """Whether the function can be called with so many positional arguments; one without a signature takes one."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return count == 1
    return True


def _original_prompt(row: Mapping[str, Any]) -> Any:
    """What the row's author calls its prompt, or the text of its last message from the user."""
    found = (row.get("extra_info") or {}).get("original_prompt")
    return _last_of_user(row)["content"] if found is None else found


def _last_of_user(row: Mapping[str, Any]) -> Any:
    return next((each for each in reversed(row["prompt"]) if each["role"] == "user"), row["prompt"][-1])


def _result(found: Any) -> dict[str, Any]:
    result = {"prompt": found} if isinstance(found, str) else dict(found) if isinstance(found, Mapping) else {}
    prompt = result.get("prompt")
    is_text = isinstance(prompt, str) and bool(prompt.strip())
    is_chat = isinstance(prompt, list) and any(isinstance(m, Mapping) and m.get("role") == "user" for m in prompt)
    if not (is_text or is_chat):
        raise ConfigError(KEY, f"the function returned {reprlib.repr(found)}", RETURNS)
    if unknown := sorted(result.keys() - set(RESULT_KEYS)):
        problem = f"the function returned a mapping with {unknown[0]!r}"
        raise ConfigError(KEY, problem, did_you_mean(unknown[0], RESULT_KEYS))
    if isinstance(truth := result.get("ground_truth"), int | float) and not isinstance(truth, bool):
        result["ground_truth"] = str(truth)
    return result
