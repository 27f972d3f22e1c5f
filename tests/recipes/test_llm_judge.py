"""The recipe llm_judge: its files load, a wrong answer costs no call, and its README names keys that exist."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from agent_rl.launch.composition import compose
from agent_rl.rewards.compose import Reward
from agent_rl.rewards.judge import JudgeConfig, PairwiseJudgeConfig
from agent_rl.settings import AgentRLSettings
from tests.rewards.judge.server import bodies, says, trajectory
from tests.support.http_faults import FaultyServer

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes/llm_judge"
README = (RECIPE / "README.md").read_text()
REPLY = '{"reason": "r", "scores": {"reasoning": 10, "tools": 4, "clarity": 0}}'


async def test_the_judge_counts_when_the_answer_is_right() -> None:
    with FaultyServer(default=says(REPLY)[0]) as server:
        url = f"agent_rl.reward.components.judge.config.url={server.url}"
        settings = AgentRLSettings.from_config(compose(RECIPE, [url])).reward
        reward = Reward(settings, max_response_tokens=2048)
        right, wrong = [await reward.score(trajectory(each, data_source="openai/gsm8k")) for each in ("4", "5")]
        assert right.components["judge"] == pytest.approx((2 * 1.0 + 0.4 + 0.0) / 4)
        assert (right.total, wrong.total) == (pytest.approx(1 + 0.3 * right.components["judge"]), 0)
        (body,) = bodies(server)
    assert "<<<final answer" in body["messages"][1]["content"]
    assert "- tools: The calculator" in body["messages"][1]["content"]


def test_the_readmes_keys_and_defaults_are_those_of_the_config() -> None:
    table = README.split("| key of `config` |")[1].split("\n\n")[0]
    rows = [row.split(" | ") for row in table.splitlines()[2:]]
    assert rows
    for names, defaults, _ in rows:
        keys = re.findall(r"`([\w.]+)`", names)
        fields = [field(JudgeConfig, key) for key in keys]
        for default, found in zip(defaults.split(", "), fields, strict=False):
            if re.fullmatch(r"[\d.]+", default):
                assert float(default) == found


def field(model: type[BaseModel], key: str) -> object:
    """The default of a key."""
    name, _, rest = key.partition(".")
    default = model.model_fields[name].default
    return field(type(default), rest) if rest else default


def test_the_readmes_choices_of_a_pairwise_judge() -> None:
    (choices,) = re.findall(r"`pairs: ([\w| \n]+)`", README)
    annotation = PairwiseJudgeConfig.model_json_schema()["properties"]["pairs"]["enum"]
    assert [each.strip() for each in choices.split("|")] == annotation
