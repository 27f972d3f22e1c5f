"""The quickstart's starting point: a tiny model that knows the ReAct format and uses its calculator badly.

A random model would never stumble on a tool call, so there is nothing for reinforcement learning to reward. Supervised
training on generated transcripts teaches the format and the copying of numbers; the transcripts are mediocre on purpose
(see `MIX`): the model learns good and bad habits side by side and picks among them at random, whatever the question. Which
habit to keep is then left to GRPO.

    python recipes/quickstart/warm_start.py --out /tmp/warm --seed 0
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from agent_rl.backend.tiny_model import IM_END, IM_START, make_model, make_tokenizer

__all__ = ["MIX", "encode", "transcripts", "warm_start"]

Message = dict[str, str]

# What the agent loop answers to a turn that it cannot use.
UNREADABLE = (
    'I could not read an action. Write "Action: <tool>" and "Action Input: <JSON arguments>", or "Final Answer: <answer>".'
)
BAD_JSON = "Action Input is not valid JSON arguments for 'calculator'."
UNKNOWN_TOOL = "There is no tool 'calc'. Tools: calculator."

# Share of transcripts that open with each habit. Every habit has its own first thought, so that choosing one is a single
# early decision which a policy gradient can move, while the copying of numbers that follows is the same skill in all.
MIX: Mapping[str, float] = {
    "good": 0.15,  # one call with the whole expression, then the observed result
    "wasteful": 0.20,  # one call an operation, each but the last repeated: 4 to 6 calls
    "guessing": 0.25,  # no call, a wrong number
    "malformed": 0.25,  # a call that the loop cannot read, see MALFORMED
    "ignoring": 0.15,  # the right call, then a number of its own
}
# Share of malformed openings that continue with a good call after the correction; the others give up with a guess.
RECOVERY = 0.4


class Problem(Protocol):
    """What is used of `agent_rl.data.arithmetic.Problem`."""

    question: str
    expression: str
    answer: str
    steps: Sequence[tuple[str, str]]


def call(expression: str, thought: str = "I compute.") -> str:
    """A well-formed calculator turn."""
    return f"Thought: {thought}\nAction: calculator\nAction Input: {json.dumps({'expression': expression})}"


def final(answer: str, thought: str) -> str:
    """A well-formed final turn."""
    return f"Thought: {thought}\nFinal Answer: {answer}"


# Ways to get a call wrong, each with the error that the loop answers.
MALFORMED: Sequence[tuple[Callable[[str], str], str]] = (
    (lambda e: f"Action calculator({e})", UNREADABLE),
    (lambda e: "Action: calculator", UNREADABLE),
    (lambda e: f'Action: calculator\nAction Input: {{"expression": {e}', BAD_JSON),
    (lambda e: f'Action: calc\nAction Input: {{"expression": "{e}"}}', UNKNOWN_TOOL),
)


def wrong_number(answer: str, rng: random.Random) -> str:
    """A number of the same length as `answer` that is not `answer`."""
    low = 10 ** (len(answer) - 1)
    guess = answer
    while guess == answer:
        guess = str(rng.randrange(low, 10 * low))
    return guess


def good(problem: Problem, rng: random.Random) -> list[str]:
    """Turns of assistant and observation in alternation, as for the other habits."""
    return [call(problem.expression), problem.answer, final(problem.answer, "I have the result.")]


def wasteful(problem: Problem, rng: random.Random) -> list[str]:
    turns: list[str] = []
    calls = rng.randint(4, 6)
    spare = calls - len(problem.steps)
    for i, (expression, value) in enumerate(problem.steps):
        last = i == len(problem.steps) - 1
        repeats = spare if last else rng.randint(0, spare)
        spare -= repeats
        turns += [call(expression, "Step by step."), value]
        for _ in range(repeats):
            turns += [call(expression, "Check again."), value]
    return [*turns, final(problem.answer, "I have the result.")]


def guessing(problem: Problem, rng: random.Random) -> list[str]:
    return [final(wrong_number(problem.answer, rng), "Just guess.")]


def ignoring(problem: Problem, rng: random.Random) -> list[str]:
    return [*good(problem, rng)[:2], final(wrong_number(problem.answer, rng), "Looks wrong.")]


def malformed(problem: Problem, rng: random.Random) -> list[str]:
    write, error = rng.choice(MALFORMED)
    opening = ["Thought: Use tool.\n" + write(problem.expression), f"Error: {error}"]
    return opening + (good(problem, rng) if rng.random() < RECOVERY else guessing(problem, rng))


HABITS = {"good": good, "wasteful": wasteful, "guessing": guessing, "malformed": malformed, "ignoring": ignoring}


def transcripts(
    problems: Sequence[Problem], rng: random.Random, mix: Mapping[str, float] = MIX
) -> Iterator[list[Message]]:
    """One conversation a problem, its habit drawn from `mix` without a look at the problem."""
    names, weights = list(mix), list(mix.values())
    for problem in problems:
        turns = HABITS[rng.choices(names, weights)[0]](problem, rng)
        messages = [{"role": "user", "content": problem.question}]
        for i, text in enumerate(turns):
            messages.append({"role": "user", "content": f"Observation: {text}"} if i % 2 else {"role": "assistant", "content": text})
        yield messages


def encode(tokenizer: Any, conversations: Sequence[list[Message]]) -> list[tuple[list[int], list[int]]]:
    """Token ids and loss mask of each conversation.

    The mask is 1 on what the assistant says, its `<|im_end|>` included: exactly what is sampled in a rollout.
    """
    texts = tokenizer.apply_chat_template(conversations, tokenize=False)
    start, end, newline = (tokenizer.convert_tokens_to_ids(t) for t in (IM_START, IM_END, "Ċ"))
    assistant = tokenizer.encode("assistant", add_special_tokens=False)
    rows = []
    for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]:
        mask, speaking, header = [], False, []
        for token in ids:
            mask.append(int(speaking and token != start))
            if token == start:
                header, speaking = [], False
            elif header is not None and not speaking:
                if token == newline:
                    speaking, header = header == assistant, None
                else:
                    header.append(token)
            if token == end:
                speaking = False
        rows.append((ids, mask))
    return rows
