"""Tests of the agent with a policy that follows a script; run them with `pytest my_agent`."""

import asyncio
import runpy
from pathlib import Path

from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.tools import ToolSession, load_tools
from agent_rl.trajectory import StopReason, Trajectory

HERE = Path(__file__).parent
FORMAT = runpy.run_path(str(HERE / "my_agent.py"))["MyAgentFormat"]


def episode(*turns: str) -> Trajectory:
    async def run() -> Trajectory:
        async with ToolSession(load_tools(HERE / "tools.yaml"), default_timeout_s=5) as session:
            messages = [{"role": "user", "content": "How much is 17 * 23?"}]
            return await run_episode(ScriptedPolicy(list(turns)), FORMAT(), session, messages, EpisodeBudget())

    return asyncio.run(run())


def test_a_sum_and_an_answer() -> None:
    done = episode("<sum>17 * 23</sum>", "<answer>391</answer>")
    assert (done.turns[0].observation, done.answer) == ("<result>391</result>", "391")


def test_a_turn_that_cannot_be_read_is_answered() -> None:
    done = episode("It is 391.", "<answer>391</answer>")
    assert (done.malformed_turns, done.stop_reason) == (1, StopReason.ANSWERED)
