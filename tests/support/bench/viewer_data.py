"""Generated trajectories for the viewer's measurements: 8 KB each, with words that follow Zipf's law."""

from __future__ import annotations

import json
import random
from pathlib import Path

from agent_rl.trajectory import Message, Score, StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn

__all__ = ["SAMPLES", "STEPS", "write_trace"]

SAMPLES = 8
STEPS = 200
_VOCABULARY, _PARAGRAPHS, _WORDS = 60_000, 6_000, 187
_TOOLS = ("calculator", "search", "python")
_SOURCES = ("gsm8k", "math", "hotpotqa")


def write_trace(folder: Path, count: int, seed: int = 0) -> Path:
    """Write the trace of a run with `count` trajectories in `STEPS` steps of groups of `SAMPLES`."""
    rng = random.Random(seed)
    weights = [1 / rank for rank in range(1, _VOCABULARY + 1)]
    vocabulary = [_word(number) for number in range(_VOCABULARY)]
    words = rng.choices(vocabulary, weights, k=_PARAGRAPHS * _WORDS)
    paragraphs = [" ".join(words[at : at + _WORDS]) for at in range(0, len(words), _WORDS)]
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    with open(folder / "trace.jsonl", "w") as file:
        for number in range(count):
            file.write(_trajectory(rng, number, count, paragraphs) + "\n")
    return folder


def _word(number: int) -> str:
    """A word of its own for each number."""
    letters = ""
    number += 26
    while number:
        number, letter = divmod(number, 26)
        letters += "abcdefghijklmnopqrstuvwxyz"[letter]
    return letters


def _trajectory(rng: random.Random, number: int, count: int, paragraphs: list[str]) -> str:
    prompt, sample = divmod(number, SAMPLES)
    tool, right = rng.choice(_TOOLS), rng.random() < 0.5
    status = ToolStatus.ERROR if rng.random() < 0.1 else ToolStatus.OK
    failed = rng.random() < 0.01
    turns = [
        Turn(
            rng.choice(paragraphs), 60 + rng.randrange(200), [ToolCall(tool, {"query": f"unique{number}"}, "1")],
            [ToolResult("1", tool, rng.choice(paragraphs), status, rng.random())], generation_seconds=rng.random(),
        )
        for _ in range(3)
    ]  # fmt: skip
    made = Trajectory(
        prompt=[Message("system", paragraphs[0]), Message("user", f"Question {prompt}: {paragraphs[prompt % 5000]}")],
        stop_reason=StopReason.ENGINE_ERROR if failed else rng.choice((StopReason.ANSWERED, StopReason.MAX_TURNS)),
        turns=[*turns, Turn(rng.choice(paragraphs), 50)],
        id=f"u{prompt}_{sample}",
        agent="react_agent",
        data_source=_SOURCES[prompt % 3],
        ground_truth="42",
        answer=str(number),
        error="the engine failed" if failed else None,
        score=None if failed else Score(right - 0.1 * rng.random(), {"correctness": right, "format": rng.random()}),
        seconds=rng.random() * 30,
        info={"step": 1 + number * STEPS // count, "split": "train", "index": prompt % (count // SAMPLES // 10)},
    )
    return json.dumps(made.to_dict())
