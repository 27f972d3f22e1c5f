"""Episodes with a scripted policy, the ReAct format and tools that do what the script asks for."""

import asyncio

from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
from agent_rl.agents.episode.policy import Policy, ScriptedPolicy
from agent_rl.agents.react import ReactFormat
from agent_rl.errors import FatalError, ToolError, UnscoredError
from agent_rl.settings.sections import ToolsSettings
from agent_rl.tools import Tool, ToolOutput, ToolSession, ToolSpec
from agent_rl.tools.builtin.calculator import Calculator

PROMPT = [{"role": "user", "content": "What is 6*7?"}]
ANSWER = "Thought: done\nFinal Answer: 42"


def act(expression="6*7", name="calculator"):
    return f'Thought: x\nAction: {name}\nAction Input: {{"expression": "{expression}"}}'


class Probe(Tool):
    """Counts its life, and does what the call asks for."""

    name = "probe"
    description = "d"
    parameters = {"type": "object", "properties": {"expression": {"type": "string"}}}  # noqa: RUF012
    life: list

    async def start(self):
        self.life.append("start")
        self.calls = 0

    async def call(self, arguments):
        self.calls += 1
        what = arguments["expression"]
        if what == "hang":
            try:
                await asyncio.sleep(60)
            finally:
                self.life.append("stopped")
        if what == "refuse":
            raise ToolError("no")
        if what == "bug":
            raise KeyError("bug")
        if what == "unscored":
            raise UnscoredError("the service is down")
        if what == "fatal":
            raise FatalError("wrong key")
        return ToolOutput(str(self.calls), reward=0.5)

    async def close(self):
        self.life.append("close")


class Waiting(Policy):
    """Plays a script and then hangs."""

    def __init__(self, *texts):
        self.texts, self.cancelled = list(texts), False

    async def begin(self, messages, tools):
        pass

    async def generate(self, stop=(), keep_stop=False):
        if self.texts:
            return await ScriptedPolicy([self.texts.pop(0)]).generate(stop)
        try:
            await asyncio.sleep(60)
        finally:
            self.cancelled = True

    async def extend(self, messages):
        return True


def probe(**flags):
    cls = type("Made", (Probe,), {"life": [], **flags})
    return ToolSpec.from_class(cls), cls.life


async def episode(
    policy, *specs, form=None, prompt=PROMPT, timeout_s=30.0, hooks=None, user=None, reuse=False, kwargs=None, **budget
):
    specs = specs or (ToolSpec.from_class(Calculator),)
    options = {"tools_kwargs": kwargs, "settings": ToolsSettings(reuse_results=reuse)}
    async with ToolSession(specs, default_timeout_s=timeout_s, max_parallel_calls=1, **options) as session:
        return await run_episode(policy, form or ReactFormat(), session, prompt, EpisodeBudget(**budget), hooks, user)


def run(policy, *specs, **options):
    if isinstance(policy, list):
        policy = ScriptedPolicy(policy)
    return asyncio.run(episode(policy, *specs, **options))
