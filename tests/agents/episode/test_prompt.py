"""The prompt of a row as its agent's loop shows it."""

import json
from typing import Any

import pytest

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.prompt import render_prompt
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import load_tools

ROW = {"prompt": [{"role": "user", "content": "What is 6*7?"}], "extra_info": {}}


class Template:
    """Renders as JSON what a chat template is given."""

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        return json.dumps({"messages": messages, **options}, default=repr)


def shown(agent: str, *, settings: dict[str, Any] | None = None, row: Any = ROW, **options: Any) -> dict[str, Any]:
    tools = load_tools("tool_configs/calculator.yaml")
    setup = EpisodeSetup(AgentRLSettings.from_config({"agent_rl": settings or {}}), tools=tools)
    found: dict[str, Any] = json.loads(render_prompt(row, agent, setup, Template(), options))
    return found


def test_an_agent_in_text_gets_its_instructions_and_no_tools_of_the_template() -> None:
    found = shown("react_agent", enable_thinking=False)
    assert [each["role"] for each in found["messages"]] == ["system", "user"]
    assert "calculator" in found["messages"][0]["content"]
    assert (found["tools"], found["add_generation_prompt"], found["enable_thinking"]) == (None, True, False)
    found = shown("react_agent", settings={"react": {"instructions": "Tools: {tools}"}})
    assert found["messages"][0]["content"].startswith("Tools: calculator")


@pytest.mark.parametrize("agent", ["tool_call_agent", "tool_agent", "somebody_elses"])
def test_native_calls_get_the_tools_in_the_template(agent: str) -> None:
    assert [each["function"]["name"] for each in shown(agent)["tools"]] == ["calculator"]


def test_a_row_shows_only_the_tools_that_it_chooses() -> None:
    row = {**ROW, "extra_info": {"tool_selection": ["another"]}}
    assert shown("tool_agent", row=row)["tools"] is None
    assert shown("single_turn_agent")["tools"] is None


def test_a_row_shows_the_functions_that_it_declares() -> None:
    row = {**ROW, "extra_info": {"functions": [{"name": "dim", "description": "Dims a light."}]}}
    assert [each["function"]["name"] for each in shown("tool_call_agent", row=row)["tools"]] == ["calculator", "dim"]
    assert "dim: Dims a light." in shown("react_agent", row=row)["messages"][0]["content"]
