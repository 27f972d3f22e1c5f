"""What a row and a configuration say about an episode, and what its trajectory says about the row."""

import asyncio

import pytest

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.hooks import Hooks
from agent_rl.agents.episode.loop import EpisodeSetup, loop_class
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.react import ReactFormat
from agent_rl.agents.users.user import Reply, User
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import Tool, ToolSpec
from agent_rl.trajectory import StopReason, ToolCall, ToolStatus


class Echo(Tool):
    name = "echo"
    description = "Repeats."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}  # noqa: RUF012

    async def call(self, arguments):
        return f"{self.create_kwargs.get('greeting', '')}{arguments['text']}"


SPECS = [ToolSpec.from_class(Echo), ToolSpec("other", "Another.", Echo.parameters, Echo)]


def settings(**sections):
    return AgentRLSettings.from_config({"agent_rl": sections})


def setup(sections=None, tokenizer=None, **limits):
    return EpisodeSetup(settings(**(sections or {})), EpisodeLimits(**limits), SPECS, tokenizer)


def made(agent=None, **given):
    agent = agent or Agent("plain_agent", lambda settings, limits: ReactFormat())
    return loop_class(agent)(setup(**given))


def call(calls, row=None, **given):
    async def run():
        async with made(**given).session(row or {}) as session:
            return session, await session.run([ToolCall(name, {"text": text}) for name, text in calls])

    return asyncio.run(run())


def test_a_row_chooses_its_tools_and_their_arguments():
    row = {"extra_info": {"tool_selection": ["echo"]}, "tools_kwargs": {"echo": {"create_kwargs": {"greeting": "hi "}}}}
    session, results = call([("echo", "you")], row)
    assert [spec.name for spec in session.specs] == ["echo"]
    assert results[0].text == "hi you"
    with pytest.raises(UnscoredError, match=r"tool_selection has \['exho'\].*echo"):
        call([], {"extra_info": {"tool_selection": ["exho"]}})


def test_results_are_cut_as_verl_would():
    _, (result,) = call([("echo", "a" * 500)], max_tool_response_length=10, tool_response_truncate_side="right")
    assert result.text.startswith("a" * 10 + "...")
    _, results = call([("echo", "1"), ("echo", "2"), ("echo", "3")], max_parallel_calls=2)
    assert [result.status for result in results] == [ToolStatus.OK, ToolStatus.OK, ToolStatus.SKIPPED]


def test_a_limit_in_tokens_needs_a_tokenizer():
    with pytest.raises((ConfigError, ValueError), match="tokenizer"):
        call([], sections={"tools": {"max_result_tokens": 40}})


ROW = {
    "raw_prompt": [{"role": "user", "content": "?"}],
    "uid": "u",
    "session_id": 2,
    "index": 7,
    "data_source": "sums",
    "reward_model": {"ground_truth": "42"},
    "extra_info": {"split": "test"},
}


def ran(loop, *texts, row=ROW):
    return asyncio.run(loop.run_row(row, loop.conversation(ScriptedPolicy(texts)), loop.format()))


def test_a_trajectory_is_described_by_its_row():
    done = ran(made(), "Final Answer: 42")
    assert (done.id, done.agent, done.data_source, done.ground_truth) == ("u_2", "plain_agent", "sums", "42")
    assert done.info == {"step": None, "split": "test", "index": 7}
    assert done.row == {name: ROW[name] for name in ("data_source", "reward_model", "extra_info")}
    assert (done.answer, done.error) == ("42", None)


def test_a_row_with_unopenable_tools_is_unscored_and_described():
    done = ran(made(), row={**ROW, "extra_info": {"tool_selection": ["exho"]}})
    assert "tool_selection has" in done.error
    assert (done.id, done.prompt[0].content) == ("u_2", "?")


class Once(Hooks):
    async def after_turn(self, trajectory, turn):
        return True


class Patient(User):
    async def respond(self, message, trajectory):
        return Reply(f"{self.row['says']} {message}")


def test_the_functions_of_a_record_are_the_parts_of_its_episodes():
    seen = []

    def wrap(settings, limits, policy):
        seen.append((settings.react.observation_role, limits.response_length))
        return policy

    agent = Agent(
        "whole_agent",
        lambda settings, limits: ReactFormat("Go."),
        user=lambda settings, extra_info: Patient({}, extra_info["user"]),
        wrap_policy=wrap,
        hooks=Once,
    )
    loop = made(agent, response_length=64)
    done = ran(loop, "Final Answer: 42", row={**ROW, "extra_info": {"user": {"says": "Why"}}})
    assert type(loop).__name__ == "WholeAgentLoop"
    assert done.stop_reason is StopReason.STOPPED
    assert done.turns[0].observation == "Why 42"
    assert done.prompt[0].content == "Go."
    assert set(seen) == {("user", 64)}
