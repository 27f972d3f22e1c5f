"""Generated word problems with two or three operations on numbers too long for mental arithmetic.

With a calculator, this task is easy: the wording comes from a few templates with a small vocabulary, and the question
lists the numbers in the expression's order, so even a very small model can learn to copy them. The problems have no
division, negative numbers, brackets or irrelevant facts.

Terms of sums have 3 or 4 digits, multipliers have 2. All intermediate values are non-negative integers.
"""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from agent_rl.data.conversion import RawSet
from agent_rl.data.rows import makes_row
from agent_rl.data.sources import Raw

DATA_SOURCE = "agent_rl/arithmetic"

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo")
OBJECTS = ("apples", "books", "cards", "coins", "eggs", "nails", "pens", "stamps")
STORIES = (
    ("{a}+{b}-{c}", "{name} has {a} {things}, gets {b} more and sells {c}."),
    ("{a}-{b}+{c}", "{name} has {a} {things}, sells {b} and then gets {c} more."),
    ("{a}*{m}+{b}", "{name} has {a} boxes of {m} {things} each and {b} more {things}."),
    ("{a}*{m}-{b}", "{name} has {a} boxes of {m} {things} each and sells {b} {things}."),
    ("{a}+{b}*{m}", "{name} has {a} {things} and gets {b} boxes of {m} {things} each."),
    ("{s}*{m}*{n}", "{name} fills {s} shelves with {m} boxes of {n} {things} each."),
    ("{a}+{b}+{c}-{d}", "{name} has {a} {things}, gets {b} and then {c} more and sells {d}."),
    ("{a}-{b}+{c}-{d}", "{name} has {a} {things}, sells {b}, gets {c} and sells {d}."),
    ("{a}*{m}+{b}-{c}", "{name} has {a} boxes of {m} {things} each, gets {b} more {things} and sells {c}."),
    ("{a}+{b}*{m}-{c}", "{name} has {a} {things}, gets {b} boxes of {m} {things} each and sells {c} {things}."),
    ("{a}*{m}+{b}*{n}", "{name} has {a} boxes of {m} {things} each and {b} boxes of {n} {things} each."),
)
"""Expressions and stories. The numbers a to d have 3 or 4 digits, m and n have 2, and s has 3, so a product of three
numbers has at most 7 digits."""

QUESTION = "{story} How many {things} does {name} have now?"

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@dataclass(frozen=True, slots=True)
class Problem:
    """One word problem and its solution."""

    question: str
    expression: str
    """The input for a calculator, for example `4821+377-1290`."""
    answer: str
    """The value of the expression, a non-negative integer in digits."""
    steps: tuple[tuple[str, str], ...]
    """The expression's individual operations, in order, as pairs of operation and value."""


def generate(seed: int, count: int, *, exclude: Set[str] = frozenset()) -> list[Problem]:
    """Return the first `count` problems for a seed, without repeated questions or expressions.

    Args:
        seed: the same seed always yields the same problems; a smaller `count` yields the first of these problems.
        count: number of problems.
        exclude: questions and expressions that must not occur.
    """
    source = random.Random(seed)
    seen: set[str] = set()
    problems: list[Problem] = []
    while len(problems) < count:
        problem = _draw(source)
        if problem is None or not seen.isdisjoint((problem.question, problem.expression)):
            continue
        if problem.question in exclude or problem.expression in exclude:
            continue
        seen.update((problem.question, problem.expression))
        problems.append(problem)
    return problems


def train_test(
    seed: int, train_count: int, test_count: int, *, exclude: Set[str] = frozenset()
) -> tuple[list[Problem], list[Problem]]:
    """Return training problems and test problems, which have neither a question nor an expression in common.

    The test problems do not depend on the number of training problems, so runs on more data stay comparable.

    Args:
        seed: random seed for both splits.
        train_count: number of problems for training.
        test_count: number of problems for testing.
        exclude: questions and expressions that must not occur in either split.
    """
    test = generate(2 * seed, test_count, exclude=exclude)
    exclude = exclude | {text for problem in test for text in (problem.question, problem.expression)}
    return generate(2 * seed + 1, train_count, exclude=exclude), test


@makes_row
def to_row(problem: Problem) -> dict[str, Any]:
    """Convert a problem to a row; `extra_info.answer` is the worked answer in GSM8K's notation, one call per step."""
    lines = [f"{expression} = <<{expression}={value}>>{value}" for expression, value in problem.steps]
    return {
        "question": problem.question,
        "data_source": DATA_SOURCE,
        "ground_truth": problem.answer,
        "extra_info": {"answer": "\n".join([*lines, f"#### {problem.answer}"]), "expression": problem.expression},
    }


def _generate(options: dict[str, Any], seed: int, sizes: Mapping[str, int]) -> dict[str, list[Raw]]:
    splits = dict(zip(("train", "test"), train_test(seed, sizes["train"], sizes["test"]), strict=True))
    return {split: [Raw(problem.question, problem) for problem in problems] for split, problems in splits.items()}


ARITHMETIC = RawSet("arithmetic", to_row, generate=_generate)


def _draw(source: random.Random) -> Problem | None:
    """Draw a problem; return None if an intermediate value is negative."""
    expression_form, story = source.choice(STORIES)
    numbers = {name: source.randint(*((100, 999) if source.random() < 0.5 else (1000, 9999))) for name in "abcd"}
    numbers |= {"s": source.randint(100, 999), "m": source.randint(12, 99), "n": source.randint(12, 99)}
    expression = expression_form.format(**numbers)
    steps = _steps(expression)
    if any(value.startswith("-") for _, value in steps):
        return None
    words = {"name": source.choice(NAMES), "things": source.choice(OBJECTS)}
    question = QUESTION.format(story=story.format(**words, **numbers), **words)
    return Problem(question, expression, steps[-1][1], steps)


def _steps(expression: str) -> tuple[tuple[str, str], ...]:
    """Split the expression into single operations: first the products, then the sums, from left to right."""
    tokens = re.findall(r"\d+|[-+*]", expression)
    steps = []
    while len(tokens) > 1:
        at = tokens.index("*") if "*" in tokens else 1
        left, sign, right = tokens[at - 1 : at + 2]
        value = str(OPERATIONS[sign](int(left), int(right)))
        steps.append((f"{left}{sign}{right}", value))
        tokens[at - 1 : at + 2] = [value]
    return tuple(steps)
