"""Which tool takes a format's text."""

import pytest

from agent_rl.agents.search import SearchFormat
from agent_rl.errors import ConfigError
from agent_rl.tools import ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.trajectory import ToolCall

TEXT = {"type": "string"}


def tool(name, required=None, **properties):
    parameters = {"type": "object", "properties": properties}
    return ToolSpec(name, "d", parameters | ({"required": required} if required else {}), Calculator)


QUERY = tool("search", ["query"], query=TEXT, top_k={"type": "integer"})


@pytest.mark.parametrize(
    ("tools", "name", "expected"),
    [
        ([QUERY], None, ToolCall("search", {"query": "x"})),
        ([tool("wiki", text=TEXT)], None, ToolCall("wiki", {"text": "x"})),
        ([tool("wiki", text={"type": ["string", "null"]})], None, ToolCall("wiki", {"text": "x"})),
        ([tool("other", text=TEXT), QUERY], None, ToolCall("search", {"query": "x"})),
        ([tool("other", text=TEXT), QUERY], "other", ToolCall("other", {"text": "x"})),
    ],
)
def test_tool_is_found(tools, name, expected):
    assert SearchFormat(tool=name).call("x", tools) == expected


@pytest.mark.parametrize(
    ("tools", "name", "problem"),
    [
        ([], None, "no tool 'search' among"),
        ([QUERY], "serach", "no tool 'serach' among"),
        ([tool("a", x=TEXT), tool("b", x=TEXT)], None, "no tool 'search' among"),
        ([tool("a", x=TEXT, y=TEXT)], None, r"needs \['x', 'y'\]"),
        ([tool("a")], None, r"needs \[\]"),
        ([tool("a", x={"type": "integer"})], None, "but the agent passes only one string"),
        ([tool("a", x=True)], None, "but the agent passes only one string"),
    ],
)
def test_tool_that_takes_no_text_is_refused(tools, name, problem):
    with pytest.raises(ConfigError, match=problem) as caught:
        SearchFormat(tool=name).prompt([], tools)
    assert caught.value.key == "agent_rl.search.tool"
