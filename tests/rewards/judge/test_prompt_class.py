"""A model that was trained to judge is asked by the prompt of its training, in every component that asks."""

import asyncio
import json
import re
from typing import Any

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.reasoning_rm import DataSample, PointwiseTemplate, RewardModule
from agent_rl.rewards.judge import Judge, PairwiseJudge
from agent_rl.rewards.models import RewardModel
from agent_rl.rewards.rm_prompt import with_judge_prompt
from tests.rewards.judge.server import bodies, judging, made, says, trajectory
from tests.support.http_faults import FaultyServer

NAME = "agent_rl.reasoning_rm.{}Template"
POINTWISE = {"template": NAME.format("Pointwise")}


def test_a_judge_asks_as_in_training_and_reads_the_verdict() -> None:
    with FaultyServer(*says("<think>Right.</think>\n<score>3</score>")) as server:
        value = asyncio.run(made(Judge, server, **POINTWISE).measure(trajectory()))
    assert value.value == 0.75
    assert value.notes == {"verdicts": [{"reason": "Right.", "score": 3.0}]}
    sample = DataSample(query="What is 2 + 2?", answers=["It is 4."])
    prompt = RewardModule("r", PointwiseTemplate).format(sample=sample)
    (body,) = bodies(server)
    assert body["messages"] == [{"role": "user", "content": prompt}]
    assert "response_format" not in body


def test_the_chat_template_thinks_where_the_request_says_so() -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    with FaultyServer(*says("Hm.</think><score>4</score>")) as server:
        assert asyncio.run(made(Judge, server, **POINTWISE, body=thinking).measure(trajectory())).value == 1
    assert "<think>" not in bodies(server)[0]["messages"][0]["content"]


def test_a_rubric_and_a_pair() -> None:
    rubric = [{"name": "clear", "description": "It is clear.", "weight": 3}, {"name": "short", "description": "It is."}]
    with FaultyServer(*says('<scores>{"clear": 4, "short": 0}</scores>')) as server:
        config = {"mode": "rubric", "rubric": rubric, "template": NAME.format("Rubric")}
        assert asyncio.run(made(Judge, server, **config).measure(trajectory())).value == 0.75
        assert "- clear: It is clear." in bodies(server)[0]["messages"][0]["content"]

    def shorter(body: dict[str, Any]) -> str:
        shown = re.search(r"# Response A\n(.*)\n\n# Response B\n(.*)\n", body["messages"][0]["content"])
        assert shown
        return f"<preference>{'A' if len(shown[1]) < len(shown[2]) else 'B'}</preference>"

    with FaultyServer(default=judging(shorter)) as server:
        judge = made(PairwiseJudge, server, template=NAME.format("Pairwise"))
        longer, short = asyncio.run(judge.measure_group([trajectory("Four, I think."), trajectory("4")]))
    assert longer.value < 0.5 < short.value
    assert len(server.requests) == 2


def test_a_reward_model_too() -> None:
    with FaultyServer(*says("<score>1</score>", "<score>5</score>", "<score>5</score>")) as server:
        config = {"models": {"own": {"url": server.url, "kind": "generative", "shown": "answer", **POINTWISE}}}
        component = RewardModel("quality", RewardModel.Config.model_validate(config))
        assert asyncio.run(component.measure(trajectory())).value == 0.25
        with pytest.raises(UnscoredError, match="less than or equal to 4"):
            asyncio.run(component.measure(trajectory()))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"template": NAME.format("Nowise")}, "has no 'NowiseTemplate'"),
        ({"template": NAME.format("Pairwise")}, "has only the fields think, preference. Add the field score"),
        ({"template": "agent_rl.reasoning_rm.RewardModule"}, "is not a prompt template"),
        ({**POINTWISE, "scale": [0, 10]}, "scores from 0 to 4"),
    ],
)
def test_a_template_that_does_not_fit_is_refused(config: dict[str, Any], message: str) -> None:
    with FaultyServer() as server, pytest.raises(ConfigError, match=message):
        made(Judge, server, **config)


def test_the_rows_rm_prompt_takes_the_place_of_the_prompt() -> None:
    row = {"rm_prompt": [{"role": "user", "content": "Is it kind?"}], "extra_info": {"rm_prompt.brief": "Is it brief?"}}
    for name, row_now, expected in (
        ("helpful", row, "Is it kind?"),
        ("brief", row, "Is it brief?"),
        ("helpful", {"rm_prompt": []}, "What is 2 + 2?"),
    ):
        with FaultyServer(*says("<score>4</score>", "Score: 10")) as server:
            judge = Judge(name, Judge.Config.model_validate({"url": server.url, "model": "m", **POINTWISE}))
            asyncio.run(judge.measure(trajectory(row=row_now)))
            config = {"models": {name: {"url": server.url, "kind": "generative"}}}
            component = RewardModel("quality", RewardModel.Config.model_validate(config))
            asyncio.run(component.measure(trajectory(row=row_now)))
        for body in bodies(server):
            asked = json.dumps(body["messages"])
            assert expected in asked
            assert "It is 4." in asked
    with pytest.raises(UnscoredError, match="rm_prompt is not text or messages"):
        with_judge_prompt(trajectory(row={"rm_prompt": [1]}))
