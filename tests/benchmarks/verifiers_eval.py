"""An evaluation of verifiers' ToolEnv through an OpenAI-compatible endpoint; a program for an environment of its own.

Prints the client's CPU and wall seconds for so many rollouts, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time

import verifiers as vf
from datasets import Dataset
from verifiers.types import ClientConfig


def calculator(expression: str) -> str:
    """Evaluates a sum.

    Args:
        expression: For example 12+34.

    Returns:
        Its value.
    """
    return str(sum(map(int, expression.split("+"))))


async def right(completion: list, answer: str) -> float:
    return float(str(completion[-1].content).endswith(f" {answer}"))


async def main(url: str, rows: int, concurrency: int, folder: str) -> None:
    logging.disable(logging.WARNING)
    os.environ["BENCH_KEY"] = "none"
    os.environ["HF_HOME"] = folder
    sums = [(10 + 7 * n, 100 + 13 * n) for n in range(rows)]
    data = Dataset.from_list([{"question": f"What is {a}+{b}?", "answer": str(a + b)} for a, b in sums])
    env = vf.ToolEnv(tools=[calculator], eval_dataset=data, rubric=vf.Rubric(funcs=[right]), max_turns=10)
    config = ClientConfig(api_base_url=f"{url}/v1", api_key_var="BENCH_KEY", max_connections=concurrency)

    async def run(number: int) -> tuple[float, float, dict]:
        cpu, wall = time.process_time(), time.perf_counter()
        found = await env.evaluate(
            config, "scripted", {"temperature": 1.0, "seed": 0}, number, max_concurrent=concurrency
        )
        return time.process_time() - cpu, time.perf_counter() - wall, found

    await run(concurrency)
    cpu, wall, found = await run(rows)
    outputs = found["outputs"]
    calls = [output["metrics"]["total_tool_calls"] for output in outputs]
    print(json.dumps({"cpu_s": cpu, "wall_s": wall, "rollouts": len(outputs), "calls": sum(calls) / len(calls)}))


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
