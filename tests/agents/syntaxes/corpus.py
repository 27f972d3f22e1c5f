"""Model outputs, well-formed and broken, with what is in them: `corpus.jsonl`, written by hand and by templates."""

import json
from pathlib import Path

import pytest

from agent_rl.agents.syntaxes import SYNTAXES
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec

ROWS = [json.loads(line) for line in (Path(__file__).parent / "corpus.jsonl").read_text().splitlines()]


def _spec(name, **properties):
    return ToolSpec(name, "d", {"type": "object", "properties": properties}, object)


TOOLS = [
    _spec("search", query={"type": "string"}, limit={"type": "integer"}, exact={"type": "boolean"}),
    _spec("calculator", expression={"type": "string"}),
    _spec(
        "store",
        item={"type": "object"},
        tags={"type": "array"},
        price={"type": "number"},
        note={"type": ["string", "null"]},
    ),
    _spec("ping"),
]


def rows(*syntaxes):
    return [row for row in ROWS if row["syntax"] in syntaxes]


def label(row):
    return f"{row['syntax']}-{row['case']}"


def check(row):
    """What our parser reads is what the row says is there."""
    read = SYNTAXES[row["syntax"]].read
    if row.get("malformed"):
        with pytest.raises(MalformedActionError, match=r"^I could not read the tool call: .+\. No tool was called"):
            read(row["text"], TOOLS)
    else:
        content, calls = read(row["text"], TOOLS)
        assert [[call.name, call.arguments] for call in calls] == row["calls"]
        assert content == row["content"]
