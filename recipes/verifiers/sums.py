"""A taskset for verifiers 0.4: sums, with a tool that adds two numbers."""

import random
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["SumTaskset"]


class Adder(vf.Toolset[vf.SharedToolsetConfig]):
    TOOL_PREFIX = None

    @vf.tool
    def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.endswith(self.data.answer))

    @vf.reward(weight=0.25)
    async def added(self, trace: vf.Trace) -> float:
        return float(any(message.content == self.data.answer for message in trace.tool_messages))


class SumConfig(vf.TasksetConfig):
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    @classmethod
    def toolsets(cls, config: SumConfig) -> list[vf.Toolset]:
        return [Adder(config.tools)]

    def load(self) -> Iterator[SumTask]:
        for number in random.Random(0).sample(range(90**2), 256):
            a, b = (10 + part for part in divmod(number, 90))
            yield SumTask(SumData(prompt=f"What is {a}+{b}?", answer=str(a + b)), self.config.task)


if __name__ == "__main__":
    Adder.run()  # verifiers starts the tool's server in this way
