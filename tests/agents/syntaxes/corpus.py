"""Model outputs, well-formed and broken, with what is in them: `corpus.jsonl`, written by hand and by templates."""

import json
from pathlib import Path

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


def label(row):
    return f"{row['syntax']}-{row['case']}"
