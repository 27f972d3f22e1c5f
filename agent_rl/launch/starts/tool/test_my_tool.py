"""Tests of the tool as the policy calls it; run them with `pytest my_tool`."""

from pathlib import Path

from agent_rl.tools import load_tools
from agent_rl.tools.inspection import call
from agent_rl.trajectory import ToolResult, ToolStatus

TOOLS = Path(__file__).with_name("my_tool.yaml")


def ask(**arguments: str) -> ToolResult:
    return call(load_tools(TOOLS), "my_tool", arguments, {})


def test_a_price() -> None:
    assert ask(item="Bread").text == "5 dollars"


def test_mistakes_are_told_to_the_policy() -> None:
    assert "Known items: apple, bread" in ask(item="gold").text
    assert ask(thing="bread").status is ToolStatus.INVALID_ARGUMENTS
