"""What the judge is shown of a trajectory: question, answer, reference, or the whole transcript with its tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent_rl.rewards.judge.fence import Fence
from agent_rl.trajectory import Trajectory

__all__ = ["NO_ANSWER", "answer", "cut", "question", "reference", "transcript"]

NO_ANSWER = "(no final answer was given)"
_LARGEST_PART = 4
"""No part of a transcript takes more than one of so many parts of the limit."""


def cut(text: str, limit: int) -> str:
    """`text` with its middle left out when it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    return f"{head}\n[... {len(text) - limit} characters left out ...]\n{tail}"


def question(trajectory: Trajectory, fence: Fence, limit: int) -> str:
    """The prompt's messages but the system's; a single one is the question, several are the conversation so far."""
    messages = [message for message in trajectory.prompt if message.role != "system"]
    if len(messages) == 1:
        return fence.around("question", cut(messages[0].content, limit))
    return _within([(message.role, message.content) for message in messages], fence, limit)


def answer(trajectory: Trajectory, limit: int) -> str:
    """The final answer's text."""
    return NO_ANSWER if trajectory.answer is None else cut(trajectory.answer, limit)


def reference(trajectory: Trajectory, limit: int) -> str:
    """The row's ground truth as text."""
    truth = trajectory.ground_truth
    return cut(truth if isinstance(truth, str) else json.dumps(truth, ensure_ascii=False, default=str), limit)


def transcript(trajectory: Trajectory, fence: Fence, limit: int, suffix: str = "") -> str:
    """Every turn with its calls and what was answered, each a block of its own, which no other can imitate."""
    parts: list[tuple[str, str]] = []
    for number, turn in enumerate(trajectory.turns, 1):
        parts.append((f"turn {number}{suffix}", turn.text))
        for call in turn.calls:
            if call.name not in turn.text:  # a text format has it in the text
                parts.append((f"call in turn {number}{suffix}", f"{call.name} {_json(call.arguments)}"))
        answers = [f"{result.name} ({result.status.value}): {result.text}" for result in turn.results]
        if not answers and turn.observation is not None:
            answers = [turn.observation]
        parts += [(f"result in turn {number}{suffix}", text) for text in answers]
    parts.append((f"final answer{suffix}", answer(trajectory, limit)))
    return _within(parts, fence, limit)


def _within(parts: Sequence[tuple[str, str]], fence: Fence, limit: int) -> str:
    """Fenced blocks; when they are too long together, the middle ones are left out."""
    parts = [(name, cut(text, max(1, limit // _LARGEST_PART))) for name, text in parts]
    first, last, left = 0, len(parts), limit
    while first < last:
        at = first if first <= len(parts) - last else last - 1
        left -= len(parts[at][1])
        if left < 0:
            break
        first, last = (first + 1, last) if at == first else (first, last - 1)
    middle = [f"({last - first} parts left out)"] if last > first else []
    before, after = ([fence.around(*part) for part in shown] for shown in (parts[:first], parts[last:]))
    return "\n".join([*before, *middle, *after])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
