"""One-line functions whose description is ambiguous: the visible test decides between four readings.

A question says "shares x things among y people", but not whether the result is rounded down, rounded up, a fraction,
or the remainder. The first reading fails the visible test in three of four rows, and the failure shows which one is
meant. Hidden tests grade. No other split combines function and argument names the way a test question does.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import add, floordiv, gt, mod, mul, sub, truediv
from pathlib import Path
from typing import Any

from agent_rl.data.worlds.world import Turns, World, by_name, held_out, native_turn, split_rows


@dataclass(frozen=True)
class Task:
    """The task of a function, and its readings.

    Attributes:
        words: description in the question.
        readings: expressions of x and y, each with the function that computes it.
        visible: arguments of the visible test, for which all readings differ.
    """

    words: str
    readings: Mapping[str, Callable[[Any, Any], Any]]
    visible: tuple[int, int]


TASKS = {
    "share": Task(
        "shares {x} things among {y} people",
        {"x // y": floordiv, "-(-x // y)": lambda x, y: -(-x // y), "x % y": mod, "x / y": truediv},
        (7, 2),
    ),
    "join": Task(
        "puts {x} and {y} together",
        {"x + y": add, "x * y": mul, "10 * x + y": lambda x, y: 10 * x + y, "x ** y": pow},
        (3, 4),
    ),
    "pick": Task(
        "picks from {x} and {y}",
        {"min(x, y)": min, "max(x, y)": max, "(x + y) / 2": lambda x, y: (x + y) / 2, "[x, y]": lambda x, y: [x, y]},
        (8, 5),
    ),
    "compare": Task(
        "says how {x} compares with {y}",
        {"x - y": sub, "y - x": lambda x, y: y - x, "x > y": gt, "x / y": truediv},
        (6, 4),
    ),
}
NAMES = (
    *("work", "find", "make", "give", "tell", "turn", "take", "rate"),
    *("count", "pair", "meet", "bind", "fold", "link", "send", "move"),
)
LETTERS = "abcdkmnpqt"
HIDDEN = ((9, 4), (2, 5), (13, 3), (5, 2))
"""Arguments of the hidden tests."""


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split (see `World.write`); the tool needs no files."""
    signatures = itertools.product(NAMES, itertools.permutations(LETTERS, 2))
    pools = (itertools.product(part, TASKS, range(4)) for part in held_out(signatures, seed))
    return split_rows(pools, seed, counts, lambda task: _row(*task))


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Runs the visible test on the first reading, and answers with the right reading."""
    result = yield _test(row, 0, "Test first.")
    yield _answer(row, 0 if result.startswith("1 of 1") else row["extra_info"]["reading"], "Now I know.")


def no_tool(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Guesses the reading."""
    yield _answer(row, rng.randrange(4), "Just guess.")


def ignoring(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Runs the visible test, but answers with a random reading."""
    yield _test(row, 0, "Maybe test.")
    yield _answer(row, rng.randrange(4), "Never mind.")


def misnamed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes a function with a wrong name."""
    info = row["extra_info"]
    other = {"extra_info": {**info, "name": rng.choice([name for name in NAMES if name != info["name"]])}}
    yield _test(other, 0, "Roughly.")
    yield _answer(other, rng.randrange(4), "That will do.")


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes a call that cannot be parsed, then guesses."""
    yield _test(row, 0, "Quickly.").replace("</tool_call>", "")
    yield _answer(row, rng.randrange(4), "Just guess.")


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Tests a random function or answers with it, with equal odds at each turn."""
    names = dict(zip("xy", rng.sample(LETTERS, 2), strict=True), name=rng.choice(NAMES), task=rng.choice(list(TASKS)))
    while rng.random() < 0.5:
        yield _test({"extra_info": names}, rng.randrange(4), "Roughly.")
    yield _answer({"extra_info": names}, rng.randrange(4), "That will do.")


WORLD = World("code", write, by_name(oracle, no_tool, ignoring, misnamed, malformed, acting_at_random))


def _row(signature: tuple[str, tuple[str, str]], task: str, reading: int) -> dict[str, Any]:
    name, (x, y) = signature
    return {
        "question": f"Write {name}({x}, {y}), which {TASKS[task].words.format(x=x, y=y)}.",
        "data_source": "agent_rl/code",
        "ground_truth": [_assertion(name, task, reading, arguments) for arguments in HIDDEN],
        "agent_name": "tool_call_agent",
        "ability": "code",
        "tools_kwargs": {
            "run_tests": {"create_kwargs": {"tests": [_assertion(name, task, reading, TASKS[task].visible)]}}
        },
        "extra_info": {"name": name, "x": x, "y": y, "task": task, "reading": reading},
    }


def _assertion(name: str, task: str, reading: int, arguments: tuple[int, int]) -> str:
    value = list(TASKS[task].readings.values())[reading](*arguments)
    return f"assert {name}{arguments} == {value!r}"


def _program(row: Mapping[str, Any], reading: int) -> str:
    info = row["extra_info"]
    body = re.sub(r"\b[xy]\b", lambda match: info[match[0]], list(TASKS[info["task"]].readings)[reading])
    return f"def {info['name']}({info['x']}, {info['y']}): return {body}"


def _test(row: Mapping[str, Any], reading: int, thought: str) -> str:
    return native_turn(thought, {"name": "run_tests", "arguments": {"code": _program(row, reading)}})


def _answer(row: Mapping[str, Any], reading: int, thought: str) -> str:
    return f"<think>{thought}</think>\n```python\n{_program(row, reading)}\n```"
