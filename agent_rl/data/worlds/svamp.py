"""Stories with an irrelevant number, in the form of SVAMP, and habits that also solve SVAMP's published problems.

The habits use the row's equation (`extra_info.equation`), so they also work on the rows of
`data_preprocess/math_dataset.py`, which a cold start with `rows: recipe` uses. The generated stories are for trials
without the data set. The people in test rows occur in no other split.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.data.worlds.world import Turns, World, by_name, drawn_rows, react_answer, react_call

PEOPLE = (
    "Ada", "Ben", "Carla", "David", "Emma", "Frank", "Grace", "Henry", "Iris", "Jack", "Kim", "Liam",
    "Mona", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor",
)  # fmt: skip
HELD_OUT = 5
"""Number of people reserved for test rows."""
THINGS = ("apples", "bananas", "books", "boxes", "cards", "coins", "cookies", "flowers", "pencils", "shells", "stamps")
STORIES = (
    (
        "{name} had {a} {thing} and {c} {other}. Then {name} got {b} more {thing}.",
        "How many {thing} are there now?",
        "+",
    ),
    ("{name} had {a} {thing}. {name} gave away {b} of them and bought {c} {other}.", "How many {thing} are left?", "-"),
    ("{name} has {b} bags with {a} {thing} each, and {c} {other}.", "How many {thing} does {name} have?", "*"),
    ("{name} puts {p} {thing} into {b} bags, and {c} {other} into one.", "How many {thing} are in each bag?", "/"),
)
"""Body, question and operation of each story; `{c}` is irrelevant."""
VERBS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_OPERATION = re.compile(r"\s([-+*/])\s")
_WHOLE = re.compile(r"\b(\d+)\.0\b")
_SENTENCE = re.compile(r"(?<=[.?!])\s+")


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split (see `World.write`); no files are needed."""
    return drawn_rows((PEOPLE[:HELD_OUT], PEOPLE[HELD_OUT:]), seed, counts, _row)


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Repeats the question, and computes the equation with the calculator."""
    question = _SENTENCE.split(str(row["prompt"][-1]["content"]).strip())[-1]
    result = yield _call(_equation(row), f"{question} ")
    yield react_answer("The calculator has the answer.", result.rpartition("Observation:")[2].strip())


def no_tool(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Answers with a number from the story."""
    yield react_answer("I see a number.", rng.choice(_numbers(row) or ["0"]))


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes a call that cannot be parsed, then answers with a number from the story."""
    yield f"Thought: Use the tool.\nAction calculator({_equation(row)})"
    yield from no_tool(row, rng)


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Computes with random numbers or answers with one, with equal odds at each turn."""
    while rng.random() < 0.5:
        yield _call(f"{rng.randrange(100)} {rng.choice(list(VERBS))} {rng.randrange(1, 100)}")
    yield react_answer("I see a number.", str(rng.randrange(100)))


WORLD = World("svamp", write, by_name(oracle, no_tool, malformed, acting_at_random))


def _row(rng: random.Random, people: Sequence[str]) -> dict[str, Any]:
    body, question, operation = rng.choice(STORIES)
    thing, other = rng.sample(THINGS, 2)
    b = rng.randrange(2, 30)
    a = rng.randrange(b + 1, 100)
    words = {"name": rng.choice(people), "thing": thing, "other": other, "a": a, "b": b, "c": rng.randrange(2, 100)}
    left, answer = {"+": (a, a + b), "-": (a, a - b), "*": (a, a * b), "/": (a * b, a)}[operation]
    return {
        "question": f"{body} {question}".format(p=a * b, **words),
        "data_source": "agent_rl/svamp",
        "ground_truth": str(answer),
        "extra_info": {"equation": f"( {left:.1f} {operation} {b:.1f} )"},
    }


def _equation(row: Mapping[str, Any]) -> str:
    """Return the row's equation in a shorter form: `( 290.0 / 2.0 )` becomes `290 / 2`."""
    text = _WHOLE.sub(r"\1", str(row["extra_info"]["equation"])).strip()
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    return re.sub(r"\(\s+|\s+\)", lambda match: match[0].strip(), inner.strip())


def _numbers(row: Mapping[str, Any]) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", str(row["prompt"][-1]["content"]))


def _call(expression: str, question: str = "") -> str:
    match = _OPERATION.search(expression)
    thought = f"{question}I {VERBS[match[1]] if match else 'compute'}."
    return react_call(thought, "calculator", {"expression": expression})
