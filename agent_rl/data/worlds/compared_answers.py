"""Pairs of answers to a request, to be compared by a judge; their scores are those of `graded_answers`.

A single feature decides about 60% of the pairs; equal scores are a tie. The answers in test rows combine openings and
deeds in ways that occur in no other split. The prompts are those of the reasoning_rm_pairwise recipe.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.data.worlds.graded_answers import THINGS, Part, answer_of, request_for, split_pairs
from agent_rl.data.worlds.world import Turns, World, by_name, drawn_rows

PROMPT = """\
# Task
Choose the response that serves the query better.

# Query
{query}

# Response A
{one}

# Response B
{other}

# Output
End with these tags, and write nothing after them:
<think>
your reasoning, step by step
</think>
<preference>
which response is better: A, B, or tie
</preference>"""

WINNERS = ("A", "B", "tie")


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split (see `World.write`); no files are needed."""
    return drawn_rows(split_pairs(seed), seed, counts, _row)


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Weighs both features of both answers."""
    (tone_a, tone_b), (deed_a, deed_b) = _levels(row)
    a, b = tone_a + deed_a, tone_b + deed_b
    yield _verdict(f"A {tone_a} and {deed_a} is {a}, B {tone_b} and {deed_b} is {b}.", _winner(a, b))


def by_tone(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Compares the tone only."""
    (a, b), _ = _levels(row)
    yield _verdict(f"Tone of A {a}, of B {b}.", _winner(a, b))


def by_deed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Compares the deeds only."""
    _, (a, b) = _levels(row)
    yield _verdict(f"Deed of A {a}, of B {b}.", _winner(a, b))


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Names a random winner."""
    yield _verdict("Who knows.", rng.choice(WINNERS))


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Names the winner in a form that cannot be parsed."""
    yield f"<think>\nWell.\n</think>\nI would take {row['reward_model']['ground_truth']}"


WORLD = World(
    "compared_answers",
    write,
    by_name(oracle, by_tone, by_deed, acting_at_random, malformed),
    baselines=("by_tone", "by_deed"),
)


def _row(rng: random.Random, pool: Sequence[tuple[Part, Part]]) -> dict[str, Any]:
    thing, (one, other) = rng.choice(THINGS), rng.sample(pool, 2)
    answers = [answer_of(*each, thing) for each in (one, other)]
    query = request_for(thing)
    levels = {name: [pair[part][0] for pair in (one, other)] for part, name in enumerate(("tones", "deeds"))}
    winner = _winner(*(tone + deed for tone, deed in zip(*levels.values(), strict=True)))
    return {
        "prompt": PROMPT.format(query=query, one=answers[0], other=answers[1]),
        "question": query,
        "data_source": "agent_rl/compared_answers",
        "ground_truth": winner,
        "agent_name": "tool_call_agent",
        "ability": "judge",
        "extra_info": {"sample": {"answers": answers, "preference": winner}, "asked": True, **levels},
    }


def _levels(row: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    info = row["extra_info"]
    return list(map(int, info["tones"])), list(map(int, info["deeds"]))


def _winner(a: int, b: int) -> str:
    return "A" if a > b else "B" if b > a else "tie"


def _verdict(thought: str, winner: str) -> str:
    return f"<think>\n{thought}\n</think>\n<preference>{winner}</preference>"
