"""What is read from the corpus, for the syntaxes of `json_calls`."""

import pytest

from agent_rl.errors import MalformedActionError
from agent_rl.loops.syntaxes import SYNTAXES
from tests.loops.syntaxes.corpus import TOOLS, label, rows


@pytest.mark.parametrize("row", rows("hermes", "llama3_json", "mistral", "kimi", "gpt-oss"), ids=label)
def test_corpus(row):
    read = SYNTAXES[row["syntax"]].read
    if row.get("malformed"):
        with pytest.raises(MalformedActionError, match=r"^I could not read the tool call: .+\. No tool was called"):
            read(row["text"], TOOLS)
    else:
        content, calls = read(row["text"], TOOLS)
        assert [[call.name, call.arguments] for call in calls] == row["calls"]
        assert content == row["content"]
