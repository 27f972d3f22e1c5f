"""Which trajectories are exported, and what `agent-rl trace export` refuses."""

import json

import pytest

from agent_rl.errors import ConfigError
from agent_rl.trajectory import trace
from tests.trajectory.exports.command import export
from tests.trajectory.exports.made import trajectory


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--split", "test"], ["p8_0"]),
        (["--step", "5", "--min-reward", "1"], ["p2_0", "p3_0"]),
        (["--limit", "1"], ["p0_0"]),
    ],
)
def test_some_of_them(folder, words, ids):
    export(folder / "trace.jsonl", "jsonl", "-o", folder / "new/some.jsonl", *words)
    lines = (folder / "new/some.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no_such", "jsonl"), "no such file"),
        ((".", "jsonl"), "no trace.jsonl or trajectories.jsonl"),
        (("text", "jsonl"), "line 1"),
        (("good", "jsonl", "-o", "./good"), "--out: good is the trace itself"),
        (("text", "atif", "--per-prompt", "2"), "--per-prompt: the atif format does not use this option"),
    ],
)
def test_mistakes_of_the_user(here, arguments, said):
    (here / "text").write_text('{"a": 1}\n')
    trace.append(here / "good", trajectory())
    with pytest.raises(ConfigError, match=said):
        export(*arguments)
