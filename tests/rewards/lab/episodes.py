"""Real episodes of problems like GSM8K's: a scripted policy, the ReAct loop and the calculator, four a problem."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence

from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.data import arithmetic
from agent_rl.data.gsm8k import final_answer
from agent_rl.trajectory import Trajectory
from tests.agents.episodes import episode

CLIPS = {
    "question": "Natalia sold 48 clips in April and half as many in May. How many did she sell altogether?",
    "answer": "In May she sold 48/2 = <<48/2=24>>24.\nAltogether 48+24 = <<48+24=72>>72.\n#### 72",
}


def problems(count: int) -> list[dict[str, str]]:
    """One of GSM8K, and generated ones in the same form."""
    rows = (arithmetic.to_row(each, "test", 0)["extra_info"] for each in arithmetic.generate(0, count - 1))
    return [CLIPS, *({key: row[key] for key in CLIPS} for row in rows)]


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
