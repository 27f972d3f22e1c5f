"""TRL's classes do here what they do under TRL: `trl/reference.py` has recorded that with TRL itself."""

import asyncio
import json
from pathlib import Path

import pytest

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.registry import make_loop
from agent_rl.agents.syntaxes import SYNTAXES
from agent_rl.environments import load_environment
from agent_rl.environments.rows import environment_rows
from agent_rl.settings import AgentRLSettings
from tests.environments.trl.reference import IDIOMS, RECORDED, as_data

FOLDER = Path(__file__).parent / "trl"
RECORD = json.loads(RECORDED.read_text())


class Script(ScriptedPolicy):
    """Keeps messages with images too."""

    async def begin(self, messages, tools):
        self.messages, self.tools = list(messages), tools

    async def extend(self, messages):
        self.messages.extend(messages)
        return True


def messages_of(policy, specs):
    """Return the conversation as TRL writes it: parsed calls, and text instead of one block of text."""
    messages = []
    for message in policy.messages:
        content, calls = message["content"], []
        if message["role"] == "assistant":
            content, calls = SYNTAXES["hermes"].read(content, specs)
        functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
        called = {"tool_calls": [{"type": "function", "function": each} for each in functions]} if calls else {}
        messages.append({**message, "content": content or "", **called})
    return as_data(messages)


def plain_text(messages):
    return [
        {**message, "content": message["content"][0]["text"]}
        if isinstance(message["content"], list) and [part["type"] for part in message["content"]] == ["text"]
        else message
        for message in messages
    ]


def play(target, row, turns, name="mine", **identity):
    """Run one episode; return its trajectory and its policy."""
    setup = EpisodeSetup(AgentRLSettings(environments={name: str(target)}))
    loop, policy = make_loop(row["agent_name"], setup), Script(turns)
    columns = {**row, "raw_prompt": row["prompt"], **identity}
    return asyncio.run(loop.run_row(columns, policy, loop.format())), policy


@pytest.mark.parametrize("idiom", IDIOMS)
def test_schemas_messages_and_rewards_are_trls(idiom):
    recorded = RECORD[idiom]
    kind = load_environment("mine", str(FOLDER / f"{idiom}.py"))
    assert {str(name): [spec.schema() for spec in each.specs] for name, each in kind.factories.items()} == recorded[
        "schemas"
    ]
    rows = environment_rows(kind, "train", seed=0)
    script = __import__(f"tests.environments.trl.{idiom}", fromlist=["SCRIPT"]).SCRIPT
    for row, turns, sample in zip(rows, script, recorded["samples"], strict=False):
        trajectory, policy = play(kind.target, row, turns)
        assert trajectory.error is None
        assert messages_of(policy, []) == plain_text(sample["messages"])
        rewards = {name: trajectory.rewards.get(name) for name in sample["rewards"]}
        assert rewards == pytest.approx(sample["rewards"], abs=1e-6)
        assert set(trajectory.rewards) <= {*kind.parts, "reset_differs"}
        assert set(kind.parts) == set(sample["rewards"])
