"""verl's parsers over the same corpus: every one has its counterpart, and where both read calls they read the same."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from verl.experimental.agent_loop.tool_parser import ToolParser

from agent_rl.agents.syntaxes import SYNTAXES
from agent_rl.verl_adapter.verl_tools import VerlTool
from tests.agents.syntaxes.corpus import ROWS, TOOLS, label

pytestmark = pytest.mark.trainer

OURS = {"llama3_json", "mistral", "deepseek_v3"}
BOTH = [row for row in ROWS if row["syntax"] not in OURS and not row.get("malformed")]
VERL_DIFFERS = {
    "reads an argument as JSON or strips it, whatever the tool's schema says": {
        f"{syntax}-{case}"
        for syntax in ("glm", "seed", "minimax")
        for case in (
            "string that looks like a number",
            "string that looks like JSON",
            "string that looks like a constant",
            "padded string",
        )
    },
    "keeps the prefix of an unknown tool's name, or guesses another tool": {
        "kimi-unknown tool",
        "kimi-name with punctuation",
    },
    "reads no lists, objects, line breaks, exponents or spaces": {
        *(
            f"gemma4-{case}"
            for case in ("object, array and number", "line break in a string", "null", "nested", "code")
        ),
        *(f"gemma4-{case}" for case in ("negative and large numbers", "name with punctuation", "spaces")),
        "gemma4-the closing token ends the turn",
    },
    "wants the letter of the format": {
        *(f"hermes-{case}" for case in ("arguments as text", "parameters instead of arguments", "arguments are null")),
        *(f"hermes-{case}" for case in ("no arguments at all", "raw line break in a string")),
        *(f"gpt-oss-{case}" for case in ("the call ends the turn", "the prompt has begun the message")),
        *(f"gpt-oss-{case}" for case in ("recipient before the channel", "without constraint")),
        "seed-two functions in a block",
        "seed-constant in capitals",
        "minimax-single quotes",
    },
}
"""What it does otherwise, and where."""


def verls(row):
    tokenizer = SimpleNamespace(
        decode=lambda ids, **_: row["text"], convert_tokens_to_ids=lambda _: 1, pad_token="<pad>", eos_token="</s>"
    )
    parser = ToolParser.get_tool_parser(row["syntax"], tokenizer)
    _, calls = asyncio.run(parser.extract_tool_calls([0], [VerlTool(tool).tool_schema for tool in TOOLS]))
    return [[call.name, json.loads(call.arguments)] for call in calls]


def test_every_parser_of_verls_has_its_counterpart():
    assert set(SYNTAXES) == set(ToolParser._registry) | OURS


def test_tokens_that_end_a_turn_are_verls():
    names = ["<|observation|>", "<|im_end|>", "<tool_call|>"]
    tokenizer = SimpleNamespace(convert_tokens_to_ids=names.index)
    for name in set(SYNTAXES) - OURS:
        ids = ToolParser.get_tool_parser(name, tokenizer).stop_token_ids
        assert [names[token] for token in ids] == list(SYNTAXES[name].stop_tokens)


@pytest.mark.parametrize("row", BOTH, ids=label)
def test_calls_are_those_that_verl_reads(row):
    assert (verls(row) == row["calls"]) is (label(row) not in set().union(*VERL_DIFFERS.values()))
