"""Answers to be graded from 0 to 4: their tone (rude 0, plain 1, kind 2) plus their deed (nothing 0, half 1, all 2).

A single feature says little: an answer with a kind tone may do nothing. The test rows combine openings and deeds in
ways that occur in no other split. The prompts are those of the reasoning_rm_pointwise recipe.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.worlds.world import Turns, World, by_name, held_out, split_rows

TONES = (
    ("Whatever,", "Not again,", "Go away,", "Stop it,", "How dull,", "Leave me,"),
    ("So,", "Well,", "Here,", "Now,", "Right,", "Then,"),
    ("Gladly,", "With joy,", "Of course,", "My pleasure,", "Good idea,", "Thank you,"),
)
DEEDS = (
    ("the {thing} can wait.", "I lost the {thing}.", "I forgot the {thing}.", "no {thing} today."),
    ("the {thing} is half done.", "I began the {thing}.", "a part of the {thing} is there.", "the {thing} needs more."),
    ("the {thing} is ready.", "I finished the {thing}.", "here is the whole {thing}.", "the {thing} is complete."),
)
THINGS = (
    "table", "list", "letter", "plan", "map", "poem", "song", "bill", "menu", "form", "chart", "speech",
    "story", "guide", "note", "sign", "card", "report", "test", "game", "label", "recipe", "quiz", "diary",
)  # fmt: skip
PROMPT = """\
# Task
Judge how helpful the answer is.

# Query
{query}

# Answer
{answer}

# Output
End with these tags, and write nothing after them:
<think>
your reasoning, step by step
</think>
<score>
helpfulness from 0 to 4
</score>"""

Part = tuple[int, int]
"""Level of an opening or a deed, and its number within the level."""


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split (see `World.write`); no files are needed."""
    pools = (itertools.product(pairs, THINGS) for pairs in split_pairs(seed))
    return split_rows(pools, seed, counts, lambda task: _row(*task[0], task[1]))


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Adds up tone and deed."""
    tone, deed = _levels(row)
    yield _verdict(f"Tone {tone}, deed {deed}.", tone + deed)


def by_tone(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Scores the tone only."""
    tone, _ = _levels(row)
    yield _verdict(f"Tone {tone} is all.", 2 * tone)


def by_deed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Scores the deed only."""
    _, deed = _levels(row)
    yield _verdict(f"Deed {deed} is all.", 2 * deed)


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Gives a random score."""
    yield _verdict("Who knows.", rng.randint(0, 4))


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Gives the score in a form that cannot be parsed."""
    tone, deed = _levels(row)
    yield f"<think>\nTone {tone}, deed {deed}.\n</think>\nI give {tone + deed} points"


WORLD = World(
    "graded_answers",
    write,
    by_name(oracle, by_tone, by_deed, acting_at_random, malformed),
    baselines=("by_tone", "by_deed"),
)


def split_pairs(seed: int) -> tuple[list[tuple[Part, Part]], list[tuple[Part, Part]]]:
    """Return the combinations of openings and deeds for test rows, and those for the other splits."""
    openings, deeds = (
        [(level, number) for level, texts in enumerate(levels) for number in range(len(texts))]
        for levels in (TONES, DEEDS)
    )
    return held_out(itertools.product(openings, deeds), seed)


def request_for(thing: str) -> str:
    """Return the text of a request."""
    return f"Please make a {thing}."


def answer_of(opening: Part, deed: Part, thing: str) -> str:
    """Return the text of an answer."""
    return f"{TONES[opening[0]][opening[1]]} {DEEDS[deed[0]][deed[1]].format(thing=thing)}"


def _row(opening: Part, deed: Part, thing: str) -> dict[str, Any]:
    query, answer = request_for(thing), answer_of(opening, deed, thing)
    score = opening[0] + deed[0]
    return {
        "prompt": PROMPT.format(query=query, answer=answer),
        "question": query,
        "data_source": "agent_rl/graded_answers",
        "ground_truth": score,
        "agent_name": "tool_call_agent",
        "ability": "judge",
        "extra_info": {
            "sample": {"answers": [answer], "scores": [float(score)]},
            "asked": True,
            "tone": opening[0],
            "deed": deed[0],
        },
    }


def _levels(row: Mapping[str, Any]) -> tuple[int, int]:
    return int(row["extra_info"]["tone"]), int(row["extra_info"]["deed"])


def _verdict(thought: str, score: int) -> str:
    return f"<think>\n{thought}\n</think>\n<score>{score}</score>"
