"""One client for OpenAI-compatible endpoints: what is sent, what is counted, and whose fault a failure is."""

import asyncio
import re
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.remote import RemoteError
from agent_rl.remote.chat_client import (
    JSON_MODES,
    ChatClient,
    Completion,
    EndpointConfig,
    JsonMode,
    TooLongError,
    UnusableReplyError,
)
from agent_rl.settings.errors import Place, validated
from tests.rewards.judge.server import bodies, says
from tests.support.http_faults import FaultyServer, answer, hang

pytestmark = pytest.mark.usefixtures("quick_delays")

MESSAGES = [{"role": "user", "content": "Judge: x"}]
SCHEMA = {"type": "object"}


def client(server: FaultyServer | None, json_modes: Sequence[JsonMode] = JSON_MODES, **config: Any) -> ChatClient:
    url = "http://localhost:1" if server is None else server.url
    checked = EndpointConfig.model_validate({"url": url, "model": "m", **config})
    return ChatClient(checked, "a.config", json_modes=json_modes)


def chat(judge: ChatClient, seed: int = 0) -> Coroutine[Any, Any, Completion]:
    return judge.chat({"messages": MESSAGES, "seed": seed}, SCHEMA)


async def ask(judge: ChatClient, times: int = 1) -> list[Any]:
    found: list[Any] = []
    async with judge:
        for seed in range(times):
            try:
                completion = await chat(judge, seed)
                found.append((completion.text, completion.tokens))
            except Exception as error:
                found.append(error)
    return found


async def test_requests_have_path_key_and_body_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-judge-secret")
    with FaultyServer(default=says("hello")[0]) as server:
        judge = client(server, api_key_env="JUDGE_KEY")
        assert await ask(judge) == [("hello", 10)]
        await ask(client(server, ["none"], url=f"{server.url}/deep/path/"))
        await judge.chat({"messages": MESSAGES, "stop": None, "top_p": 0.5})
    first, second, _ = server.requests
    assert (first.path, second.path) == ("/v1/chat/completions", "/deep/path/chat/completions")
    assert first.headers["authorization"] == "Bearer sk-judge-secret"
    assert second.headers["authorization"] is None
    schema = {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA}}
    assert bodies(server) == [
        {"model": "m", "messages": MESSAGES, "seed": 0, "response_format": schema},
        {"model": "m", "messages": MESSAGES, "seed": 0},
        {"model": "m", "messages": MESSAGES, "top_p": 0.5},
    ]


@pytest.mark.parametrize(
    "url",
    ["http://localhost:800O/v1", "http://:8000", "http:///v1", "http://[::1/v1", "http://local host", "localhost:8000"],
)
def test_an_address_without_a_host_or_a_port_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=f"^a\\.url: .* got '{re.escape(url)}'.* Write, for example, `url: http://"):
        validated(EndpointConfig, {"url": url, "model": "m"}, Place("a"))


@pytest.mark.parametrize(
    "url",
    ["http://localhost", "https://u:p%40@a-b.example.com:443/v1/", "http://[::1]:8000", "http://b\u00fcro/v1?a=b"],
)
def test_an_address_may_have_any_host_and_path(url: str) -> None:
    assert EndpointConfig(url=url, model="m").url == url


def test_a_key_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"^a\.config\.api_key_env: .*NO_SUCH_KEY"):
        client(None, api_key_env="NO_SUCH_KEY")


@pytest.mark.parametrize("refused", [1, 2])
async def test_a_way_to_ask_for_json_that_is_refused_is_remembered(refused: int) -> None:
    no = answer(400, {"error": "no such response_format"})
    with FaultyServer(*[no] * refused, default=says("{}")[0]) as server:
        judge = client(server)
        assert await ask(judge, 2) == [("{}", 10)] * 2
    modes = [(body.get("response_format") or {}).get("type") for body in bodies(server)]
    assert modes == ["json_schema", "json_object", None][: refused + 1] + modes[refused : refused + 1]


async def test_waiting_requests_skip_a_refused_json_mode() -> None:
    def refuses_schemas(handler: Any) -> None:
        refused = b"json_schema" in handler.body
        (answer(400, {}) if refused else says("{}")[0])(handler)

    with FaultyServer(default=refuses_schemas) as server:
        judge = client(server, max_concurrent=4)
        await asyncio.gather(*(chat(judge) for _ in range(50)))
    assert len(server.requests) <= 50 + 2 * 4


async def test_a_key_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-judge-secret")
    with FaultyServer(default=answer(400, {"your key": "Bearer sk-judge-secret"})) as server:
        judge = client(server, api_key_env="JUDGE_KEY")
        first, _ = await ask(judge, 2)
        server.default = answer(401, b"sk-judge-secret")
        (second,) = await ask(judge)
    assert "your key" in str(first)
    assert isinstance(second, ConfigError)
    assert not any("sk-judge-secret" in str(error) for error in (first, second))


async def test_a_request_that_is_wrong_however_it_asks_for_json() -> None:
    with FaultyServer(default=answer(400, {"error": "too long"})) as server:
        judge = client(server, breaker={"failures": 1})
        (error,) = await ask(judge)
        assert isinstance(error, RemoteError)
        assert "status 400" in str(error)
        assert "too long" in str(error)
        assert len(server.requests) == 3
        server.default = says("{}")[0]
        assert await ask(judge) == [("{}", 10)]  # nothing was remembered, and the circuit stays closed
        assert bodies(server)[-1]["response_format"]["type"] == "json_schema"


async def test_a_fixed_way_to_ask_for_json() -> None:
    with FaultyServer(default=answer(422, {})) as server:
        await ask(client(server, ["json_object"]))
    assert [body["response_format"]["type"] for body in bodies(server)] == ["json_object"]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_refusal_is_a_config_error_until_the_endpoint_has_answered(status: int) -> None:
    refusal = answer(status, b"no")
    with FaultyServer(refusal, *says("x"), default=refusal) as server:
        first, _, later = await ask(client(server), 3)
    assert isinstance(first, ConfigError)
    assert "a.config." in str(first)
    assert isinstance(later, RemoteError)  # it worked before: the endpoint's failure


@pytest.mark.parametrize(
    "body",
    [b"{broken", b"", [], {}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": {"content": 3}}]}, None],
)
async def test_answers_without_a_message(body: Any) -> None:
    with FaultyServer(default=answer(200, body)) as server:
        judge = client(server)
        (error,) = await ask(judge)
    assert isinstance(error, UnusableReplyError)


async def test_a_message_without_text_and_tokens_that_are_not_counted() -> None:
    with FaultyServer(*says(None), *says("12345678", tokens=None)) as server:
        assert await ask(client(server), 2) == [("", 10), ("12345678", 0)]


async def test_requests_that_wait_are_not_sent_once_the_circuit_is_open() -> None:
    with FaultyServer(default=hang) as server:
        judge = client(server, attempts=1, timeout_s=0.3, max_concurrent=4, breaker={"failures": 4})
        errors = await asyncio.gather(*(chat(judge) for _ in range(50)), return_exceptions=True)
        assert 4 <= len(server.requests) <= 7  # three may have begun before the fourth failed
    assert all(isinstance(error, UnscoredError) for error in errors)


async def test_a_conversation_that_is_too_long_is_recognised_at_once() -> None:
    refusal = answer(400, {"error": "This model's maximum context length is 100 tokens"})
    with FaultyServer(default=refusal) as server:
        (error,) = await ask(client(server))
    assert isinstance(error, TooLongError)
    assert len(server.requests) == 1  # another JSON mode would not help


async def test_a_password_in_the_address_is_in_no_message() -> None:
    with FaultyServer(default=answer(404)) as server:
        (error,) = await ask(client(server, url=server.url.replace("http://", "http://user:pa55word@")))
    assert isinstance(error, ConfigError)
    assert "a.config.url: http://127.0.0.1" in str(error)
    assert "pa55word" not in str(error)


@pytest.mark.parametrize("answered", [{"data": [1]}, {"data": []}, [], {}, {"data": None}])
async def test_other_requests_than_chats(answered: Any) -> None:
    with FaultyServer(default=answer(200, answered)) as server:
        post = client(server).post("/embeddings", {"input": ["x" * 8]}, lambda found: found["data"][0], "embedding")
        if answered == {"data": [1]}:
            assert await post == 1
        else:
            with pytest.raises(UnusableReplyError, match="the answer has no embedding"):
                await post
    assert server.requests[0].path == "/v1/embeddings"
