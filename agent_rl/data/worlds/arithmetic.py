"""The quickstart's world: the word problems of `agent_rl.data.arithmetic`, with a calculator.

Every habit has its own first thought (`ignoring` has its own second thought), so the choice of a habit is a single
early decision that a policy gradient can move; copying the numbers afterwards is a separate skill. Rows for
`react_agent` get ReAct's format, and rows for other agents get native calls.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.data.arithmetic import generate, to_row
from agent_rl.data.worlds.world import Turns, World, by_name, native_turn, react_answer, react_call

SEEDS = 1_000_000
"""Offset added to the problems' seeds, so that they differ from the quickstart's seeds."""
RECOVERY = 0.4
"""Share of malformed first turns that are followed by a correct call; the others are followed by a guess."""
MALFORMED: Sequence[Callable[[str], str]] = (
    lambda expression: f"Thought: Use tool.\nAction calculator({expression})",
    lambda expression: "Thought: Use tool.\nAction: calculator",
    lambda expression: f'Thought: Use tool.\nAction: calculator\nAction Input: {{"expression": {expression}',
    lambda expression: f'Thought: Use tool.\nAction: calc\nAction Input: {{"expression": "{expression}"}}',
)
MALFORMED_NATIVE: Sequence[Callable[[str], str]] = (
    lambda expression: f"<think>Use tool.</think>\n<tool_call>\ncalculator({expression})\n</tool_call>",
    lambda expression: f'<think>Use tool.</think>\n<tool_call>\n{{"name": "calculator", "arguments": {expression}',
)


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split (see `World.write`); the tool needs no files."""
    seen: set[str] = set()
    splits = {}
    for number, split in enumerate(("test", *(name for name in counts if name != "test"))):
        problems = generate(10 * (SEEDS + seed) + number, counts.get(split, 0), exclude=seen)
        seen.update(text for problem in problems for text in (problem.question, problem.expression))
        splits[split] = [to_row(problem, split, index) for index, problem in enumerate(problems)]
    return {split: splits[split] for split in counts}


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Computes the whole expression in one call, and answers with the result."""
    yield _call(row, "I compute.", _expression(row))
    yield _answer(row, "I have the result.", _truth(row))


def wasteful(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Makes one call per operation, then computes the whole expression again: 4 to 5 calls."""
    steps = re.findall(r"<<(.+?)=", row["extra_info"]["answer"])
    for expression in steps:
        yield _call(row, "Step by step.", expression)
    for _ in range(rng.randint(4, 5) - len(steps)):
        yield _call(row, "Check again.", _expression(row))
    yield _answer(row, "I have the result.", _truth(row))


def no_tool(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Answers with a number from the question."""
    yield _answer(row, "Just guess.", _guess(row, rng))


def ignoring(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Makes the right call, but answers with a number from the question."""
    yield _call(row, "I compute.", _expression(row))
    yield _answer(row, "Looks wrong.", _guess(row, rng))


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes a call that cannot be parsed, then makes a correct call or guesses."""
    yield rng.choice(MALFORMED if _is_react(row) else MALFORMED_NATIVE)(_expression(row))
    yield from (oracle if rng.random() < RECOVERY else no_tool)(row, rng)


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Computes some sum or answers with some number, with equal odds each time."""
    while rng.random() < 0.5:
        yield _call(row, "I compute.", f"{rng.randint(100, 9999)}+{rng.randint(100, 9999)}")
    yield _answer(row, "Just guess.", str(rng.randint(100, 9999)))


WORLD = World("arithmetic", write, by_name(oracle, wasteful, no_tool, ignoring, malformed, acting_at_random))


def _expression(row: Mapping[str, Any]) -> str:
    return str(row["extra_info"]["expression"])


def _truth(row: Mapping[str, Any]) -> str:
    return str(row["reward_model"]["ground_truth"])


def _guess(row: Mapping[str, Any], rng: random.Random) -> str:
    """Return a number from the question that is not the answer.

    It is copied because random digits would teach that digits are noise, while a model first has to learn to copy.
    """
    numbers: list[str] = re.findall(r"\d+", _expression(row))
    return rng.choice([number for number in numbers if number != _truth(row)])


def _is_react(row: Mapping[str, Any]) -> bool:
    return str(row["agent_name"]) == "react_agent"


def _call(row: Mapping[str, Any], thought: str, expression: str) -> str:
    arguments = {"expression": expression}
    if _is_react(row):
        return react_call(thought, "calculator", arguments)
    return native_turn(thought, {"name": "calculator", "arguments": arguments})


def _answer(row: Mapping[str, Any], thought: str, answer: str) -> str:
    return react_answer(thought, answer) if _is_react(row) else native_turn(thought) + answer
