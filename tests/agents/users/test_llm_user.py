"""A model as the user, behind a real HTTP server."""

import asyncio
import json

import pytest

from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.agents.users.llm_user import GREETING, LLMUser
from agent_rl.agents.users.user import Reply, load_user
from agent_rl.errors import ConfigError
from agent_rl.trajectory import StopReason, Trajectory
from tests.agents import episodes
from tests.support.http_faults import FaultyServer, answer

pytestmark = pytest.mark.usefixtures("quick_delays")

ROW = {"goal": "a refund for order 17"}
KEY = "sk-0123456789"
HEARD = [
    ("user", GREETING),
    ("assistant", "Hi there."),
    ("user", "Which order?"),
    ("assistant", "It is 17."),
    ("user", "Refunded."),
]


def says(text):
    return answer(200, {"choices": [{"message": {"role": "assistant", "content": text}}]})


def run(server, *texts, row=ROW, **config):
    config = {"url": f"{server.url}/v1", "model": "m", "attempts": 2, **config}
    user = load_user("llm", config)(config, row)

    prompt = [{"role": "user", "content": "Hi there."}]
    return episodes.run(list(texts), form=UserSimFormat(), prompt=prompt, user=user)


def sent(server):
    return [json.loads(request.body) for request in server.requests]


def test_model_hears_the_agent_and_alone_knows_the_goal(monkeypatch):
    monkeypatch.setenv("USER_KEY", KEY)
    with FaultyServer(says("It is 17."), says("<think>done?</think>Thanks! ###STOP### bye")) as server:
        trajectory = run(server, "Which order?", "Refunded.", api_key_env="USER_KEY", temperature=0.5)
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "Refunded.")
    assert [turn.observation for turn in trajectory.turns] == ["It is 17.", None]
    assert trajectory.turns[1].notes == {"last_word": "Thanks!"}
    first, second = sent(server)
    assert {key: first[key] for key in ("model", "temperature", "max_tokens")} == {
        "model": "m",
        "temperature": 0.5,
        "max_tokens": 512,
    }
    (system, *rest) = second["messages"]
    assert "a refund for order 17" in system["content"]
    assert "###STOP###" in system["content"]
    assert [(message["role"], message["content"]) for message in rest] == HEARD
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "refund for order" not in trajectory.to_json()
    assert KEY not in trajectory.to_json()


def test_model_may_write_the_first_message():
    with FaultyServer(says("I want my money back."), says("###STOP###")) as server:
        trajectory = run(server, "Done.", opens=True)
    assert trajectory.prompt[-1].content == "I want my money back."
    assert [m["content"] for m in sent(server)[0]["messages"][1:]] == [GREETING]


@pytest.mark.parametrize(
    "step",
    [answer(500, {}), says(""), says("<think>x</think> "), says(None)],
)
@pytest.mark.parametrize("opens", [False, True])
def test_failing_endpoint_is_unscored_and_never_a_zero(step, opens):
    with FaultyServer(default=step) as server:
        trajectory = run(server, "Which order?", opens=opens)
    assert (trajectory.stop_reason, len(trajectory.turns)) == (StopReason.ERROR, not opens)
    assert "127.0.0.1" in trajectory.error
    assert trajectory.score is None


@pytest.mark.parametrize(("status", "key"), [(401, "api_key_env"), (404, "url")])
def test_endpoint_that_refuses_from_the_beginning_stops_the_run(status, key):
    with FaultyServer(default=answer(status)) as server, pytest.raises(ConfigError) as caught:
        run(server, "Which order?")
    assert caught.value.key == f"agent_rl.user_sim.config.{key}"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"url": "http://x", "model": "m", "temprature": 1}, "temprature: unknown key"),
        ({"url": "x", "model": "m"}, "url"),
        ({"url": "http://x"}, "model: missing"),
        ({"url": "http://x", "model": "m", "api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY is not set"),
    ],
)
def test_wrong_config_is_refused(config, problem, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match=problem) as caught:
        load_user("llm", config)
    assert caught.value.key.startswith("agent_rl.user_sim.config")


@pytest.mark.parametrize("row", [{}, {"goal": None}, {"goal": " "}])
def test_row_without_a_goal_is_refused(row):
    with pytest.raises(ConfigError, match="expected text") as caught:
        LLMUser({"url": "http://x", "model": "m"}, row)
    assert caught.value.key == "extra_info.user.goal"


def test_a_recorded_conversation_is_shown_to_the_model_and_not_asked_for():
    async def conversation(url):
        user = LLMUser({"url": f"{url}/v1", "model": "m", "opens": True}, ROW)
        await user.resume("Hi there.", [("Which order?", Reply("It is 17."))])
        reply = await user.respond("Refunded.", Trajectory([], StopReason.ERROR))
        await user.finish()
        return reply

    with FaultyServer(says("Thanks! ###STOP###")) as server:
        assert asyncio.run(conversation(server.url)) == Reply("Thanks!", done=True)
    (request,) = sent(server)
    assert [(message["role"], message["content"]) for message in request["messages"][1:]] == HEARD
