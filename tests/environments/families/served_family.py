"""What the tests of families with a Python of their own share."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent_rl.environments import load_environment
from agent_rl.environments.install import python_of
from agent_rl.errors import ConfigError
from tests.environments.families.playing import Action, play

VERSION = "import importlib.metadata, json, sys; print(json.dumps(importlib.metadata.version(json.load(sys.stdin))))"
Step = tuple[str, dict[str, Any]]
"""A call of a tool; a message if the tool is `say`."""


def needs(family: str) -> pytest.MarkDecorator:
    """Skip a module's tests where the family's Python has not been made."""
    try:
        python_of(family)
    except ConfigError as error:
        return pytest.mark.skipif(True, reason=str(error))
    return pytest.mark.skipif(False, reason="")


def as_actions(steps: Sequence[Step], answer: str | None = None) -> list[Action]:
    """Return the steps as actions of `playing`, with the answer as the last one."""
    actions: list[Action] = [values["message"] if name == "say" else (name, values) for name, values in steps]
    return actions if answer is None else [*actions, answer]


def in_family(family: str, program: str, data: Any) -> Any:
    """Return what a program in the family's Python, without any code of ours, prints as JSON."""
    command = [str(python_of(family)), "-I", "-c", program]
    done = subprocess.run(command, input=json.dumps(data), capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def rollout(
    target: str, row: Mapping[str, Any], steps: Sequence[Step], answer: str | None = None
) -> tuple[list[str | None], float]:
    """Return what an episode's calls and messages are answered, and its reward."""
    texts, reward, _ = play(target, row, as_actions(steps, answer))
    return texts, reward


def rows(target: str) -> list[dict[str, Any]]:
    """Return the rows of both splits, as `reset` gets them."""
    instance = load_environment("it", target).cls()
    return [dict(row) for split in ("train", "test") for row in instance.rows(split, 0)]


def solution(target: str, row: Mapping[str, Any]) -> tuple[list[Step], str]:
    """Return the family's own solution of a row, and its answer."""
    instance = load_environment("it", target).cls()
    instance.reset(**row)
    calls, answer = instance._session.ask("solution")
    return [(name, arguments) for name, arguments in calls], answer
