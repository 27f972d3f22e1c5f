"""The client, against services that misbehave, and against a real one that is killed while it is asked."""

import asyncio
import json
from typing import Any

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.component import Value
from agent_rl.rewards.components.reward_api import RewardApi, RewardApiConfig
from agent_rl.trajectory import Trajectory
from tests.rewards.judge.server import trajectory
from tests.support.http_faults import FaultyServer, answer, hang

pytestmark = pytest.mark.slow

GOOD = answer(
    200,
    {
        "score": 0.5,
        "components": {"correctness": 1, "helpful": -0.5},
        "logged": {"helpful_tokens": 7},
        "notes": {"judge": "fair"},
    },
)


def api(url: str, **config: Any) -> RewardApi:
    return RewardApi("api", RewardApiConfig.model_validate({"url": f"{url}/get_reward", "patience_s": 20, **config}))


def measure(component: RewardApi) -> Value:
    return asyncio.run(component.measure(trajectory()))


def test_the_trajectory_is_sent_and_the_score_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    with FaultyServer(default=GOOD) as server:
        value = measure(api(server.url, token_env="MY_TOKEN", logs=["helpful", "helpful_tokens"]))
    assert value.value == 0.5
    assert value.logged == {"helpful": -0.5, "helpful_tokens": 7}
    assert value.notes == {"judge": "fair", "numbers": {"correctness": 1, "helpful": -0.5, "helpful_tokens": 7}}
    (request,) = server.requests
    assert request.headers["authorization"] == "Bearer s3cret"
    assert Trajectory.from_dict(json.loads(request.body)["trajectory"]) == trajectory()


def test_without_a_name_the_token_is_that_of_the_usual_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultyServer(default=GOOD) as server:
        monkeypatch.delenv("AGENT_RL_REWARD_TOKEN", raising=False)
        measure(api(server.url))
        monkeypatch.setenv("AGENT_RL_REWARD_TOKEN", "s3cret")
        measure(api(server.url))
    assert [request.headers["authorization"] for request in server.requests] == [None, "Bearer s3cret"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"unscored": True, "error": "the judge is away"}, "the judge is away"),
        ({}, "the answer's score is not a number: None"),
        ({"score": None}, "not a number: None"),
        ({"score": "0.5"}, "not a number: '0.5'"),
        ({"score": True}, "not a number: True"),
        (b'{"score": NaN}', "not a number: nan"),
        (b'{"score": -Infinity}', "not a number: -inf"),
        (b'{"score": 1' + b"0" * 400 + b"}", "not a number: 1000"),
        ([0.5], "not a JSON object"),
        (b"half", "not JSON"),
        ({"score": 0.5, "components": {"help": 1}}, r"lacks helpful .*it has the numbers help"),
        ({"score": 0.5, "components": [1]}, r"lacks helpful .*it has the numbers none"),
        (b'{"score": 0.5, "components": {"helpful": NaN}}', "the answer lacks helpful"),
    ],
)
def test_an_answer_without_a_score_is_unscored_and_never_zero(body: Any, problem: str) -> None:
    with FaultyServer(default=answer(200, body)) as server, pytest.raises(UnscoredError, match=problem):
        measure(api(server.url, logs=["helpful"]))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [413, 422])
def test_a_trajectory_that_the_service_refuses_is_unscored(status: int) -> None:
    refusal = answer(status, {"error": "trajectory.turns: too many"})
    with FaultyServer(default=refusal) as server, pytest.raises(UnscoredError, match="turns: too many"):
        measure(api(server.url))


@pytest.mark.parametrize(("status", "key"), [(401, "token_env"), (403, "token_env"), (404, "url"), (405, "url")])
def test_a_wrong_address_or_token_stops_the_run_at_once_and_later_is_an_outage(status: int, key: str) -> None:
    refusal = answer(status, {"error": "no"})
    with FaultyServer(refusal, GOOD, refusal) as server:
        component = api(server.url)
        with pytest.raises(ConfigError, match=rf"\(api\): {key}: .*status {status}: .*no"):
            measure(component)
        assert measure(component).value == 0.5
        with pytest.raises(UnscoredError, match=f"status {status}"):
            measure(component)


async def test_a_service_that_stays_away_is_not_waited_for_by_every_trajectory() -> None:
    component = api("http://127.0.0.1:9", patience_s=1.5, timeout_s=0.5, max_concurrent=2)
    tasks = (component.measure(trajectory()) for _ in range(40))
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, UnscoredError) for error in errors)
    patient = [error for error in errors if error.attempts > 1]
    assert 3 <= len(patient) <= 4  # three in a row open the circuit, and two are in flight at one time


async def test_one_trajectory_that_the_service_cannot_answer_does_not_stop_the_others() -> None:
    def step(handler: Any) -> None:
        (hang if b"endless" in handler.body else GOOD)(handler)

    said = ["endless", "endless", *(str(number) for number in range(20))]
    with FaultyServer(default=step) as server:
        component = api(server.url, timeout_s=0.5, patience_s=0)
        results = await asyncio.gather(*(component.measure(trajectory(each)) for each in said), return_exceptions=True)
        assert sum(isinstance(result, BaseException) for result in results) == 2
        assert (await component.measure(trajectory())).value == 0.5


def test_text_that_json_cannot_hold_is_unscored_and_numbers_that_it_cannot_are_sent() -> None:
    with FaultyServer(default=GOOD) as server:
        component = api(server.url)
        assert asyncio.run(component.measure(trajectory(info={"loss": float("nan")}))).value == 0.5
        with pytest.raises(UnscoredError, match="cannot be sent"):
            asyncio.run(component.measure(trajectory("\ud800")))
