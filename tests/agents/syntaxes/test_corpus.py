"""Each syntax reads its rows of the corpus as recorded, and refuses broken ones with a correction."""

import pytest

from agent_rl.agents.syntaxes import SYNTAXES
from agent_rl.agents.syntaxes.json_calls import without_channels
from agent_rl.errors import MalformedActionError
from tests.agents.syntaxes.corpus import ROWS, TOOLS, label


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_every_row_of_the_corpus_is_read_as_recorded(row):
    read = SYNTAXES[row["syntax"]].read
    if row.get("malformed"):
        with pytest.raises(MalformedActionError, match=r"^I could not read the tool call: .+\. No tool was called"):
            read(row["text"], TOOLS)
    else:
        content, calls = read(row["text"], TOOLS)
        assert [[call.name, call.arguments] for call in calls] == row["calls"]
        assert content == row["content"]


def test_a_turn_in_channels_is_a_thought_and_an_answer():
    turn = "<|channel|>analysis<|message|>I add.<|end|><|start|>assistant<|channel|>final<|message|>42<|return|>"
    assert without_channels(turn) == "<think>I add.</think>\n42"
