"""Questions about whole numbers that a line of Python answers, and that are too hard without computing.

A question has two or three numbers, and its words describe what to compute. No other split combines the first two
numbers the way a test question does.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.worlds.world import Turns, World, by_name, held_out, split_rows

QUESTIONS = {
    "share": ("{a} boxes of {b} pens are shared by {c} people. How many pens are left?", "{a} * {b} % {c}"),
    "power": ("What are the last two digits of {a} to the power of {b}?", "{a} ** {b} % 100"),
    "days": ("{a} days, {b} times over, are how many days more than full weeks of {c} days?", "{a} * {b} % {c}"),
    "digits": ("What is the sum of the digits of {a} to the power of {b}?", "sum(map(int, str({a} ** {b})))"),
}
"""Question and program of each kind."""
NUMBERS = range(11, 100)


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split (see `World.write`); no files are needed."""
    pairs = itertools.product(NUMBERS, NUMBERS)
    pools = (itertools.product(part, QUESTIONS) for part in held_out(pairs, seed))
    return split_rows(pools, seed, counts, lambda task: _row(seed, *task))


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Runs the program, and answers with its output."""
    output = yield _run(row["extra_info"]["program"], "I compute it.")
    yield _answer(_value(output), "Python says so.")


def no_tool(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Answers with a guess."""
    yield _answer(_guess(rng), "Just guess.")


def careless(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Runs a program for another question."""
    output = yield _run(_program(rng.choice(list(QUESTIONS)), *_numbers(rng)), "Roughly.")
    yield _answer(_value(output), "It says so.")


def ignoring(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Runs the program, but answers with a guess."""
    yield _run(row["extra_info"]["program"], "Maybe compute.")
    yield _answer(_guess(rng), "Never mind.")


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes a turn with neither program nor answer, then guesses."""
    yield f"Use Python: {row['extra_info']['program']}"
    yield _answer(_guess(rng), "Just guess.")


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Runs a random program or answers with a random number, with equal odds at each turn."""
    while rng.random() < 0.5:
        yield _run(_program(rng.choice(list(QUESTIONS)), *_numbers(rng)), "Roughly.")
    yield _answer(_guess(rng), "Just guess.")


WORLD = World("math_python", write, by_name(oracle, no_tool, careless, ignoring, malformed, acting_at_random))


def _row(seed: int, pair: tuple[int, int], kind: str) -> dict[str, Any]:
    a, b = pair
    c = random.Random(f"{seed}/{a}/{b}/{kind}").choice(NUMBERS)
    program = _program(kind, a, b, c)
    return {
        "question": QUESTIONS[kind][0].format(a=a, b=b, c=c),
        "data_source": "agent_rl/math_python",
        "ground_truth": _result(kind, a, b, c),
        "agent_name": "code_act_agent",
        "ability": "math",
        "extra_info": {"program": program},
    }


def _result(kind: str, a: int, b: int, c: int) -> int:
    """Return the output of the program."""
    match kind:
        case "power":
            return pow(a, b, 100)
        case "digits":
            return sum(map(int, str(a**b)))
    return a * b % c


def _program(kind: str, a: int, b: int, c: int) -> str:
    return QUESTIONS[kind][1].format(a=a, b=b, c=c)


def _numbers(rng: random.Random) -> tuple[int, int, int]:
    return rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(NUMBERS)


def _guess(rng: random.Random) -> str:
    return str(rng.randrange(100))


def _value(output: str) -> str:
    """Return the number in a program's output."""
    match = re.search(r"\d+", output)
    return match[0] if match else ""


def _run(program: str, thought: str) -> str:
    return f"{thought}\n```python\n{program}\n```"


def _answer(value: str, thought: str) -> str:
    return f"{thought}\n\\boxed{{{value}}}"
