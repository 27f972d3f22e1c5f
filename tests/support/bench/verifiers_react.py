"""ReAct episodes with a calculator in verifiers 0.4: a taskset, its harness and an evaluation; a program of its own.

The harness writes and reads conversations as agent_rl's `react_agent` does. One episode runs after the other.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from pathlib import Path

import verifiers.v1 as vf
from openai import AsyncOpenAI
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import ProgramResult

from agent_rl.errors import ToolError
from agent_rl.rewards.scorers.math.numeric import numeric_match
from agent_rl.tools.builtin.calculator import calculate

__all__ = ["ProblemTaskset", "ReactHarness"]

CALL = re.compile(r"Action: calculator\nAction Input: (\{.*\})\s*$")


class ReactConfig(HarnessConfig):
    turns: int = 1


class ReactHarness(vf.Harness[ReactConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        """Play an episode: turns until one has no call that can be read."""
        messages = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        messages.append({"role": "user", "content": data.prompt})
        async with AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            for _ in range(self.config.turns):
                reply = await client.chat.completions.create(model=ctx.model, messages=messages, stop="\nObservation:")
                text = reply.choices[0].message.content or ""
                if (call := CALL.search(text)) is None:
                    break
                try:
                    result = calculate(json.loads(call[1])["expression"])
                except ToolError as error:
                    result = f"Error: {error}"
                messages += [
                    {"role": "assistant", "content": text},
                    {"role": "user", "content": f"Observation: {result}"},
                ]
        return ProgramResult(0, "", "")


class ProblemData(vf.TaskData):
    answer: str


class ProblemTask(vf.Task[ProblemData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        _, mark, answer = trace.last_reply.rpartition("Final Answer:")
        return float(bool(mark) and numeric_match(answer, self.data.answer))


class ProblemConfig(vf.TasksetConfig):
    rows: str = ""
    """JSON file of the rows, which have a `prompt`, an `answer` and perhaps a `system_prompt`."""


class ProblemTaskset(vf.Taskset[ProblemTask, ProblemConfig]):
    def load(self) -> list[ProblemTask]:
        rows = json.loads(Path(self.config.rows).read_text())
        return [ProblemTask(ProblemData(**row), self.config.task) for row in rows]


async def main(url: str, model: str, rows: str, turns: int, max_tokens: int, folder: str) -> None:
    """Evaluate greedily, and print the replies and the reward of each episode as JSON."""
    logging.disable(logging.WARNING)
    os.environ["BENCH_KEY"] = "none"
    name = Path(__file__).stem
    config = EvalConfig.model_validate(
        {
            "env": {
                "taskset": {"id": name, "rows": rows},
                "agent": {"harness": {"id": name, "turns": turns}, "runtime": {"type": "subprocess"}},
            },
            "model": model,
            "client": {"base_url": f"{url}/v1", "api_key_var": "BENCH_KEY"},
            "sampling": {"temperature": 0.0, "max_tokens": max_tokens},
            "max_concurrent": 1,
            "output_dir": folder,
            "push": False,
            "rich": None,
        }
    )
    traces = [trace for episode in await run_eval(config) for trace in episode.traces]
    episodes = [
        {
            "prompt": trace.task.data.prompt,
            "replies": [message.content for message in trace.assistant_messages],
            "reward": trace.reward,
        }
        for trace in traces
    ]
    print(json.dumps(episodes))


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
