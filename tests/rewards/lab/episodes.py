"""Real episodes of GSM8K problems: a scripted policy, the ReAct loop and the calculator, four a problem."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.data.gsm8k import final_answer
from agent_rl.trajectory import Trajectory
from tests.agents.episodes import episode

DATA = Path(__file__).parents[3].parent / "shared/data/gsm8k/test.jsonl"

FALLBACK = [
    {
        "question": "Natalia sold 48 clips in April and half as many in May. How many did she sell altogether?",
        "answer": "In May she sold 48/2 = <<48/2=24>>24.\nAltogether 48+24 = <<48+24=72>>72.\n#### 72",
    },
    {
        "question": "Weng earns $12 an hour. She did 50 minutes of babysitting. How much did she earn?",
        "answer": "A minute is 12/60 = $<<12/60=0.2>>0.2.\n50 minutes are 0.2 x 50 = $<<0.2*50=10>>10.\n#### 10",
    },
    {
        "question": "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total?",
        "answer": "White: 2/2=<<2/2=1>>1 bolt.\nTogether 2+1=<<2+1=3>>3 bolts.\n#### 3",
    },
    {
        "question": "James runs 3 sprints of 60 meters, 3 times a week. How many meters a week?",
        "answer": "Sprints: 3*3=<<3*3=9>>9.\nMeters: 9*60=<<9*60=540>>540.\n#### 540",
    },
    {
        "question": "Ann has 5 boxes of 12 eggs. How many eggs does she have?",
        "answer": "She has 5*12 = <<5*12=60>>60 eggs.\n#### 60",
    },
    {
        "question": "A train goes 80 miles an hour for 3 hours. How far does it go?",
        "answer": "It goes 80*3 = <<80*3=240>>240 miles.\n#### 240",
    },
    {
        "question": "Of 90 pages Tom has read 35. How many are left?",
        "answer": "There are 90-35 = <<90-35=55>>55 left.\n#### 55",
    },
    {
        "question": "Four friends share $52 equally. How many dollars does each get?",
        "answer": "Each gets 52/4 = $<<52/4=13>>13.\n#### 13",
    },
]
"""A few problems in the data's form, for a machine without it."""


def problems(count: int | None = None) -> list[dict[str, str]]:
    """GSM8K's test problems where they are on this machine."""
    if not DATA.is_file():
        return FALLBACK[:count]
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()[:count]]


def trajectories(examples: Sequence[dict[str, str]]) -> list[Trajectory]:
    """Four of each problem: right; wrong; right and wrong with a malformed turn and one call."""

    async def main() -> list[Trajectory]:
        return [await _one(*each) for each in _scripts(examples)]

    return asyncio.run(main())


def _scripts(examples: Sequence[dict[str, str]]) -> Iterator[tuple[int, int, dict[str, str], list[str]]]:
    for row, example in enumerate(examples):
        expressions = re.findall(r"<<([^<>=]*)=", example["answer"])
        truth = final_answer(example["answer"])
        wrong = str(int(float(truth.replace(",", ""))) + 1)
        calls = [
            f"Thought: next\nAction: calculator\nAction Input: {json.dumps({'expression': e})}" for e in expressions
        ]
        answer = "Thought: I know.\nFinal Answer: {}"
        lost = "I wonder."
        yield row, 0, example, [*calls, answer.format(truth)]
        yield row, 1, example, [*calls, answer.format(wrong)]
        yield row, 2, example, [lost, *calls[:1], answer.format(f"It is ${truth}.")]
        yield row, 3, example, [lost, *calls[:1], answer.format(f"It is ${wrong}.")]


async def _one(row: int, sample: int, example: dict[str, str], turns: list[str]) -> Trajectory:
    made: Trajectory = await episode(ScriptedPolicy(turns), prompt=[{"role": "user", "content": example["question"]}])
    made.id, made.agent, made.data_source = f"{row}_{sample}", "react_agent", "openai/gsm8k"
    made.ground_truth = final_answer(example["answer"])
    made.info = {"row": row, "sample": sample, "index": row, "split": "test"}
    return made
