"""What a row and a configuration say about an episode."""

import asyncio
from types import SimpleNamespace

import pytest

from agent_rl.agents.episode.setup import make_budget, open_tools
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import Tool, ToolSpec
from agent_rl.trajectory import ToolCall, ToolStatus


class Echo(Tool):
    name = "echo"
    description = "Repeats."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}  # noqa: RUF012

    async def call(self, arguments):
        return f"{self.create_kwargs.get('greeting', '')}{arguments['text']}"


SPECS = [ToolSpec.from_class(Echo), ToolSpec("other", "Another.", Echo.parameters, Echo)]


def multi_turn(**changes):
    verls = {"max_assistant_turns": None, "max_parallel_calls": 1, "max_tool_response_length": 256}
    return SimpleNamespace(**{**verls, "tool_response_truncate_side": "middle", **changes})


def settings(**sections):
    return AgentRLSettings.from_config({"agent_rl": sections})


def call(calls, row=None, tokenizer=None, sections=None, **changes):
    async def run():
        session = open_tools(SPECS, row or {}, settings(**(sections or {})), multi_turn(**changes), tokenizer)
        async with session:
            return session, await session.run([ToolCall(name, {"text": text}) for name, text in calls])

    return asyncio.run(run())


def test_a_budget_is_verls_turns_and_our_section():
    given = settings(budget={"max_tool_calls": 3, "max_seconds": 9}, final_turn={"enabled": True, "reserve_tokens": 7})
    budget = make_budget(given, multi_turn(), 64)
    assert (budget.max_turns, budget.max_tool_calls, budget.max_seconds) == (16, 3, 9)
    assert budget.final.reserve_tokens == 7
    assert make_budget(settings(), multi_turn(max_assistant_turns=4), 64).max_turns == 4
    with pytest.raises(ConfigError, match=r"agent_rl.final_turn.reserve_tokens: 7 is not less than"):
        make_budget(given, multi_turn(), 7)


def test_a_row_chooses_its_tools_and_their_arguments():
    row = {"extra_info": {"tool_selection": ["echo"]}, "tools_kwargs": {"echo": {"create_kwargs": {"greeting": "hi "}}}}
    session, results = call([("echo", "you")], row)
    assert [spec.name for spec in session.specs] == ["echo"]
    assert results[0].text == "hi you"
    with pytest.raises(UnscoredError, match=r"tool_selection names \['exho'\].*echo"):
        call([], {"extra_info": {"tool_selection": ["exho"]}})


def test_results_are_cut_as_verl_would():
    _, (result,) = call([("echo", "a" * 500)], max_tool_response_length=10, tool_response_truncate_side="right")
    assert result.text.startswith("a" * 10 + "...")
    _, results = call([("echo", "1"), ("echo", "2"), ("echo", "3")], max_parallel_calls=2)
    assert [result.status for result in results] == [ToolStatus.OK, ToolStatus.OK, ToolStatus.SKIPPED]


def test_a_limit_in_tokens_needs_somebody_who_counts():
    with pytest.raises((ConfigError, ValueError), match="tokenizer"):
        call([], sections={"tools": {"max_result_tokens": 40}})


def test_a_cassette_answers_the_same_row_again(tmp_path):
    def once(mode, greeting):
        cassette = {"mode": mode, "path": str(tmp_path / "calls.jsonl")}
        row = {"index": 3, "extra_info": {"split": "test"}}
        return call([("echo", greeting)], row, sections={"tools": {"cassette": cassette}})[1][0].text

    assert once("record", "first") == once("replay", "first") == "first"
