"""An evaluation by verifiers 0.4 through an OpenAI-compatible endpoint; a program for an environment of its own.

It is run as `vf-eval` runs it, with verifiers' smallest harness (`null`), the subprocess runtime and one server of
tools for all rollouts. What a rollout costs is the difference between an evaluation of many and one of few, since
starting and stopping is in both. Prints CPU and wall seconds of so many rollouts as JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import time
from typing import Any

from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig


def cpu_seconds() -> tuple[float, float]:
    """Of this process, and of the processes that it has started and that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, started = (usage.ru_utime + usage.ru_stime for usage in usages)
    return own, started


async def evaluate(url: str, rows: int, concurrency: int, folder: str) -> tuple[tuple[float, ...], list[Any]]:
    """Own CPU, CPU of the started processes and wall seconds; and the traces."""
    config = EvalConfig.model_validate(
        {
            "env": {
                "taskset": {"id": "verifiers_sums"},
                "agent": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}, "max_turns": 10},
            },
            "model": "scripted",
            "client": {"base_url": f"{url}/v1", "api_key_var": "BENCH_KEY"},
            "sampling": {"temperature": 1.0, "seed": 0},
            "select": {"limit": rows},
            "max_concurrent": concurrency,
            "output_dir": folder,
            "push": False,
            "rich": None,
        }
    )
    before = (*cpu_seconds(), time.perf_counter())
    episodes = await run_eval(config)
    after = (*cpu_seconds(), time.perf_counter())
    seconds = tuple(late - early for late, early in zip(after, before, strict=True))
    return seconds, [trace for episode in episodes for trace in episode.traces]


async def main(url: str, rows: int, concurrency: int, folder: str) -> None:
    logging.disable(logging.WARNING)
    os.environ["BENCH_KEY"] = "none"
    await evaluate(url, 1, 1, folder)  # fetches what the harness's program needs
    few, _ = await evaluate(url, concurrency, concurrency, folder)
    many, traces = await evaluate(url, concurrency + rows, concurrency, folder)
    own, started, wall = (late - early for late, early in zip(many, few, strict=True))
    calls = [len(trace.tool_messages) for trace in traces if not trace.has_error]
    counts = {"rollouts": len(calls) - concurrency, "calls": sum(calls) / max(len(calls), 1)}
    print(json.dumps({"own_cpu_s": own, "started_cpu_s": started, "wall_s": wall, **counts}))


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
