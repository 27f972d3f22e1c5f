"""The multi-turn tasks of the Berkeley Function Calling Leaderboard: `bfcl:TravelAPI`, `bfcl:TicketAPI+TravelAPI`.

An id lists, with `+` between them, the classes whose functions the tasks use. The user's next message follows the
agent's answer to the previous one. The package's own checker judges the states and results after each user message; the
reward is 1 if the checker accepts everything, else 0. A run limits the turns, so the reward is not BFCL's score.

    python -m agent_rl.environments.install bfcl
"""

from __future__ import annotations

import ast
import json
import uuid
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from agent_rl.environments.serve import of_split

CATEGORY = "multi_turn_base"
FILE = f"BFCL_v4_{CATEGORY}.json"
SYSTEM = "Do what the user asks with the tools. When it is done, answer the user in one sentence."


def start() -> None:
    """Import the modules that sessions need."""
    import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")


def describe(identifier: str) -> dict[str, Any]:
    """Return the classes' functions, as BFCL describes them to models."""
    tasks = _tasks(identifier)
    return {"system": SYSTEM, "tools": _tools(next(iter(tasks.values()))), "methods": ["step", "solve"]}


def rows(identifier: str, split: str, seed: int) -> list[dict[str, Any]]:
    """Return a row for each task, with the task's name and the user's first message."""
    tasks = of_split(_tasks(identifier).items(), split)
    return [{"prompt": task["question"][0], "task": name} for name, task in tasks]


class Session:
    """One trajectory, which stores the calls that followed each of the user's messages."""

    text = None

    def __init__(self, identifier: str, row: dict[str, Any]) -> None:
        self._task = _tasks(identifier)[row["task"]]
        self._truth = next(each for each in _lines(f"possible_answer/{FILE}") if each["id"] == self._task["id"])
        self._turns: list[list[list[str]]] = [[]]
        self._name = f"session_{uuid.uuid4().hex}"

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Execute a call as BFCL does, and return the result's text."""
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call as execute

        call = f"{name}({','.join(f'{key}={value!r}' for key, value in arguments.items())})"
        self._turns[-1].append([call])
        task = self._task
        texts, _ = execute([call], task["initial_config"], task["involved_classes"], self._name, task["id"])
        return texts[0], False

    def step(self, message: str) -> str | None:
        """Return the user's next message, or None after the last message."""
        if len(self._turns) == len(self._task["question"]):
            return None
        self._turns.append([])
        return "\n".join(each["content"] for each in self._task["question"][len(self._turns) - 1])

    def reward(self, answer: str | None) -> float:
        """Return the result of BFCL's checker; as in BFCL, an episode that ends before the last message fails."""
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

        truth = self._truth["ground_truth"]
        if len(self._turns) != len(truth):
            return 0.0
        self.close("_judge")
        return float(multi_turn_checker(self._turns, truth, self._task, CATEGORY, f"{self._name}_judge")["valid"])

    def solution(self) -> tuple[list[tuple[str, dict[str, Any]]], str]:
        """Return BFCL's reference calls, with a reply between those for different user messages, and the last reply."""
        names = {tool["name"]: list(tool["parameters"]["properties"]) for tool in _tools(self._task)}
        calls: list[tuple[str, dict[str, Any]]] = []
        for number, turn in enumerate(self._truth["ground_truth"]):
            calls += [("say", {"message": "Done."})] if number else []
            for text in turn:
                call: Any = ast.parse(text, mode="eval").body
                values = dict(zip(names[call.func.id], call.args, strict=False))
                values |= {keyword.arg: keyword.value for keyword in call.keywords}
                calls.append((call.func.id, {key: ast.literal_eval(value) for key, value in values.items()}))
        return calls, "Done."

    def close(self, suffix: str = "") -> None:
        """Delete the objects that BFCL keeps for the session and for judging it."""
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

        for name in [name for name in vars(multi_turn_utils) if name.startswith(self._name + suffix)]:
            delattr(multi_turn_utils, name)


@cache
def _tasks(identifier: str) -> dict[str, dict[str, Any]]:
    tasks = _lines(FILE)
    wanted = sorted(identifier.split("+"))
    matching = {task["id"]: task for task in tasks if sorted(task["involved_classes"]) == wanted}
    if not matching:
        known = sorted({"+".join(sorted(task["involved_classes"])) for task in tasks})
        raise ValueError(f"no task uses exactly these classes; known: {', '.join(known)}")
    return matching


def _tools(task: dict[str, Any]) -> list[dict[str, Any]]:
    from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING as FILES

    described = [each for name in task["involved_classes"] for each in _lines(f"multi_turn_func_doc/{FILES[name]}")]
    return [{key: _schema(each[key]) for key in ("name", "description", "parameters")} for each in described]


def _schema(value: Any) -> Any:
    """Return a schema with JSON Schema's type names instead of BFCL's."""
    if not isinstance(value, dict):
        return {"dict": "object", "float": "number"}.get(value, value) if isinstance(value, str) else value
    return {key: _schema(each) if key != "description" else each for key, each in value.items()}


@cache
def _lines(file: str) -> list[dict[str, Any]]:
    import bfcl_eval

    text = (Path(bfcl_eval.__file__).parent / "data" / file).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
