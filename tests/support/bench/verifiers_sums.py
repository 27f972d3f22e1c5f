"""Sums with a calculator, for verifiers 0.4: the taskset, and the program that serves its tool to all rollouts."""

from __future__ import annotations

import verifiers.v1 as vf

__all__ = ["SumTaskset"]


class Calculator(vf.Toolset[vf.SharedToolsetConfig]):
    TOOL_PREFIX = None

    @vf.tool
    def calculator(self, expression: str) -> str:
        """Evaluates a sum, for example 12+34."""
        return str(sum(map(int, expression.split("+"))))


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.endswith(f" {self.data.answer}"))


class SumConfig(vf.TasksetConfig):
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    @classmethod
    def toolsets(cls, config: SumConfig) -> list[vf.Toolset]:
        return [Calculator(config.tools)]

    def load(self) -> list[SumTask]:
        sums = [(10 + 7 * n, 100 + 13 * n) for n in range(1000)]
        return [SumTask(SumData(prompt=f"What is {a}+{b}?", answer=str(a + b)), self.config.task) for a, b in sums]


if __name__ == "__main__":
    Calculator.run()
