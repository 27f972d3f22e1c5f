"""`http` against real servers: what is sent, what is shown, and what never leaves."""

import asyncio
import base64
import json
import logging
import pickle
import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
import yaml

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.remote import http as remote
from agent_rl.settings.episode import ToolsSettings
from agent_rl.tools import ToolSession, load_tools
from agent_rl.tools.builtin.http import HttpTool, IdempotentHttpTool
from agent_rl.trajectory import ToolCall, ToolStatus
from tests.http_faults import FaultyServer, answer, drop

KEY = 'sk-"se/cret"+value'
CITY = {
    "name": "weather",
    "description": "Weather.",
    "path": "/weather/{city}",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "units": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "trace": {"type": "string"},
        },
        "required": ["city"],
    },
    "places": {"trace": "header:X-Trace"},
}
POST = {
    "name": "order",
    "description": "Order.",
    "method": "POST",
    "path": "/orders/{id}",
    "parameters": {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "item": {"type": "object"}, "note": {"type": ["string", "null"]}},
        "required": ["id"],
    },
}


@pytest.fixture(autouse=True)
def quick_delays(monkeypatch):
    monkeypatch.setattr(remote, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(remote, "JITTER_S", 0.0)


def specs_of(tmp_path, *endpoints, base_url="https://api.example.com/v1", **config):
    content = {"base_url": base_url, **config, "endpoints": list(endpoints)}
    path = tmp_path / "tools.yaml"
    path.write_text(yaml.safe_dump({"tools": [{"class_name": "agent_rl.tools.builtin.http.Http", "config": content}]}))
    return load_tools(path)


def call(specs, arguments, tool="weather"):
    async def main():
        async with ToolSession(specs, default_timeout_s=20) as session:
            return (await session.run([ToolCall(tool, arguments, "1")]))[0]

    return asyncio.run(main())


def one(tmp_path, step, arguments=None, endpoint=CITY, **config):
    """The result of one call, and the requests that the server saw."""
    with FaultyServer(step, default=step) as server:
        specs = specs_of(tmp_path, endpoint, **config, base_url=f"{server.url}/v1")
        return call(specs, arguments or {"city": "Bern"}, endpoint["name"]), server.requests


def test_arguments_go_to_path_query_and_headers(tmp_path):
    arguments = {"city": "São Paulo?x=1#y;@", "units": "a&b=c", "tags": ["x", "y z"], "trace": "t-1"}
    endpoint = {**CITY, "path": "/weather/{city}?format=j1&v"}
    result, (request,) = one(tmp_path, answer(200, {"t": 21.5}, Content_Type="application/json"), arguments, endpoint)
    assert (result.status, result.text) == (ToolStatus.OK, '{"t": 21.5}')
    path, _, query = request.path.partition("?")
    assert (request.method, path) == ("GET", "/v1/weather/S%C3%A3o%20Paulo%3Fx%3D1%23y%3B%40")
    assert parse_qsl(query, keep_blank_values=True) == [
        ("format", "j1"),
        ("v", ""),
        ("units", "a&b=c"),
        ("tags", "x"),
        ("tags", "y z"),
    ]
    assert request.headers["x-trace"] == "t-1"


def test_a_body_of_json(tmp_path):
    _, (request,) = one(tmp_path, answer(), {"id": 7, "item": {"ü": [1, True]}, "note": None}, POST)
    assert (request.method, request.path) == ("POST", "/v1/orders/7")
    assert json.loads(request.body) == {"item": {"ü": [1, True]}, "note": None}
    assert request.headers["content-type"] == "application/json"
    _, (request,) = one(tmp_path, answer(), {"id": 7, "item": {"a": 1}}, {**POST, "places": {"item": "body:the_item"}})
    assert json.loads(request.body) == {"the_item": {"a": 1}}


def test_one_argument_may_be_the_whole_body(tmp_path):
    parameters = {"type": "object", "properties": {"id": {"type": "integer"}, "items": {"type": "array"}}}
    endpoint = {**POST, "parameters": parameters, "places": {"items": "whole_body"}}
    _, (request,) = one(tmp_path, answer(), {"id": 7, "items": [1, 2]}, endpoint)
    assert json.loads(request.body) == [1, 2]
    _, (request,) = one(tmp_path, answer(), {"id": 7}, endpoint)
    assert request.body == b""


@pytest.mark.parametrize(
    ("city", "sent"),
    [
        ("..", None),
        (".", None),
        ("", None),
        ("../admin", None),
        ("a/../../admin", None),
        ("a\\..\\admin", None),
        ("%2e%2e", None),
        (".%2E", None),
        ("%252e%252e", None),
        ("a%2Fadmin", None),
        ("a%252fadmin", None),
        ("a%5cadmin", None),
        ("http://other.example/x", None),
        ("//other.example/x", None),
        ("file:///etc/passwd", None),
        ("http://[::1]:80/", None),
        ("a\r\nHost: other.example", None),
        ("a\0b", None),
        ("\ud800", None),
        ("x" * 70_000, None),
        ("@other.example", "%40other.example"),
        ("user:pw@other.example", "user%3Apw%40other.example"),
        ("[::1]:80", "%5B%3A%3A1%5D%3A80"),
        ("javascript:alert(1)", "javascript%3Aalert%281%29"),
        ("Bern?admin=1", "Bern%3Fadmin%3D1"),
        ("Bern#x", "Bern%23x"),
        ("Bern;x=1", "Bern%3Bx%3D1"),
        ("\uff4fther\u3002example\uff0fx", "%EF%BD%8Fther%E3%80%82example%EF%BC%8Fx"),
        ("...", "..."),
        ("100%", "100%25"),
    ],
)
def test_a_value_stays_in_its_path_segment(tmp_path, city, sent):
    result, requests = one(tmp_path, answer(200, {}), {"city": city})
    assert [request.path for request in requests] == ([] if sent is None else [f"/v1/weather/{sent}"])
    assert result.status == (ToolStatus.ERROR if sent is None else ToolStatus.OK)
    assert "Traceback" not in result.text
    assert "failed:" not in result.text


def test_dots_beside_a_literal_dot_are_refused(tmp_path):
    result, requests = one(tmp_path, answer(), {"city": "."}, {**CITY, "path": "/weather/.{city}/x"})
    assert (result.status, requests) == (ToolStatus.ERROR, [])


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "ü", "a\0"])
def test_headers_cannot_be_injected(tmp_path, value):
    result, requests = one(tmp_path, answer(), {"city": "Bern", "trace": value})
    assert (result.status, requests) == (ToolStatus.ERROR, [])
    assert "ASCII" in result.text


def test_an_undeclared_argument_is_not_sent(tmp_path):
    result, requests = one(tmp_path, answer(), {"city": "Bern", "admin": "1"})
    assert (result.status, requests) == (ToolStatus.INVALID_ARGUMENTS, [])
    with FaultyServer() as server:
        (spec,) = specs_of(
            tmp_path, {**CITY, "parameters": {**CITY["parameters"], "additionalProperties": True}}, base_url=server.url
        )
        result = call([spec], {"city": "Bern", "admin": "1"})
    assert (result.status, server.requests) == (ToolStatus.ERROR, [])
    assert "'admin'" in result.text


def test_redirects_stay_on_the_allowed_hosts(tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_KEY", KEY)
    auth = {"type": "header", "env": "OWN_KEY", "name": "X-Key"}
    with FaultyServer() as other:
        target = f"http://localhost:{other.server_port}/stolen"  # another name, and so another host
        result, requests = one(tmp_path, answer(302, b"", Location=target), auth=auth)
        assert (result.status, len(requests), other.requests) == (ToolStatus.ERROR, 1, [])
        assert result.text == "Error: HTTP 302 Found: a redirect that is not followed"
        hosts = ["127.0.0.1", "localhost"]
        result, _ = one(tmp_path, answer(302, b"", Location=target), auth=auth, allow_hosts=hosts)
        assert (result.status, len(other.requests)) == (ToolStatus.OK, 1)
        assert "x-key" not in other.requests[0].headers


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (answer(200, {"b": 1, "a": "ü"}, Content_Type="application/json"), '{"b": 1, "a": "ü"}'),
        (answer(200, b'{"a":1}', Content_Type="application/vnd.api+json; charset=utf-8"), '{"a": 1}'),
        (answer(200, b'"just text"', Content_Type="application/json"), "just text"),
        (answer(200, b"{broken", Content_Type="application/json"), "{broken"),
        (answer(200, b"[" * 50_000, Content_Type="application/json"), "[" * 50_000),
        (answer(200, b'{"a": 1}'), '{"a": 1}'),
        (answer(200, b"no type"), "no type"),
        (answer(200, "Grüße".encode("latin-1"), Content_Type="text/plain; charset=latin-1"), "Grüße"),
        (answer(200, b"<p>x</p>", Content_Type="text/html"), "<p>x</p>"),
        (answer(200, b"\x89PNG" + bytes(1230), Content_Type="image/png"), "[image/png, 1234 bytes]"),
        (answer(200, b"\0\1"), "[unknown type, 2 bytes]"),
        (answer(204), "[HTTP 204 No Content, no content]"),
        (
            answer(404, {"detail": "no city"}, Content_Type="application/json"),
            'Error: HTTP 404 Not Found: {"detail": "no city"}',
        ),
        (answer(422, b"bad", Content_Type="text/plain"), "Error: HTTP 422 "),
        (answer(400), "Error: HTTP 400 Bad Request"),
        (answer(401, b"log in", Content_Type="text/plain"), "Error: HTTP 401 Unauthorized: log in"),
        (answer(499, b"x" * 5000, Content_Type="text/plain"), f"Error: HTTP 499: {'x' * 1000}..."),
    ],
)
def test_what_the_policy_reads(tmp_path, step, text):
    result, _ = one(tmp_path, step)
    assert result.text.startswith(text)
    assert len(result.text) == len(text) or "422" in text
    assert (result.status == ToolStatus.OK) == (not text.startswith("Error"))


def test_a_part_of_the_answer(tmp_path):
    body = {"data": {"items": [{"n": 1}, {"n": 2}, {"n": 3}]}}
    endpoint = {**CITY, "response": {"select": "data.items", "max_items": 2}}
    step = answer(200, body, Content_Type="application/json")
    assert one(tmp_path, step, endpoint=endpoint)[0].text == '[{"n": 1}, {"n": 2}]\n(1 more items)'
    endpoint = {**CITY, "response": {"select": "data.items.1.n"}}
    assert one(tmp_path, step, endpoint=endpoint)[0].text == "2"
    endpoint = {**CITY, "response": {"select": "data.items.9"}}
    assert json.loads(one(tmp_path, step, endpoint=endpoint)[0].text) == body


def test_a_long_answer_is_cut(tmp_path):
    result, _ = one(tmp_path, answer(200, b"x" * 100, Content_Type="text/plain"), max_bytes=10)
    assert result.text == "xxxxxxxxxx\n(cut after 10 bytes)"


@pytest.mark.parametrize("step", [answer(500), answer(503), answer(429), drop])
def test_trouble_leaves_the_trajectory_unscored(tmp_path, step):
    with FaultyServer(default=step) as server:
        with pytest.raises(UnscoredError):
            call(specs_of(tmp_path, CITY, attempts=3, base_url=server.url), {"city": "Bern"})
    assert len(server.requests) >= 3
    with pytest.raises(UnscoredError):  # nobody listens any more
        call(specs_of(tmp_path, CITY, attempts=2, base_url=server.url), {"city": "Bern"})


@pytest.mark.parametrize(
    ("extra", "cls", "sent"),
    [
        ({"method": "GET"}, IdempotentHttpTool, 2),
        ({"method": "GET", "idempotent": False}, HttpTool, 1),
        ({"method": "PUT"}, HttpTool, 2),
        ({"method": "POST"}, HttpTool, 1),
        ({"method": "POST", "idempotent": True}, IdempotentHttpTool, 2),
    ],
)
def test_only_idempotent_requests_are_retried(tmp_path, extra, cls, sent):
    with FaultyServer(drop) as server:
        (spec,) = specs_of(tmp_path, {**CITY, **extra}, base_url=server.url)
        assert spec.cls is cls
        if sent == 2:
            assert call([spec], {"city": "Bern"}).status is ToolStatus.OK
        else:
            with pytest.raises(UnscoredError):
                call([spec], {"city": "Bern"})
    assert len(server.requests) == sent


@pytest.mark.parametrize(("extra", "sent"), [({}, 3), ({"idempotent": True}, 3), ({"reusable": True}, 2)])
def test_a_repeated_read_is_sent_again_unless_its_answer_is_declared_to_be_the_same(tmp_path, extra, sent):
    async def main(specs):
        async with ToolSession(specs, default_timeout_s=20, settings=ToolsSettings()) as session:
            for name, arguments in (("weather", {"city": "Bern"}), ("order", {"id": 1}), ("weather", {"city": "Bern"})):
                await session.run([ToolCall(name, arguments)])

    with FaultyServer() as server:
        asyncio.run(main(specs_of(tmp_path, {**CITY, **extra}, POST, base_url=server.url)))
    assert [request.method for request in server.requests] == ["GET", "POST", "GET"][:sent]


BASIC = f"user:{KEY}"
SENT = {
    "bearer": ({"type": "bearer", "env": "OWN_KEY"}, "authorization", f"Bearer {KEY}"),
    "header": ({"type": "header", "env": "OWN_KEY", "name": "X-Api-Key"}, "x-api-key", KEY),
    "basic": (
        {"type": "basic", "env": "OWN_KEY"},
        "authorization",
        f"Basic {base64.b64encode(BASIC.encode()).decode()}",
    ),
}


def echo(status):
    """Repeats all that it was sent, in several ways."""

    def step(handler):
        headers = dict(handler.headers)
        seen = [handler.path, *headers.values(), base64.b64encode(KEY.encode()).decode(), json.dumps(KEY), KEY]
        answer(status, {"seen": seen}, Content_Type="application/json")(handler)

    return step


@pytest.mark.parametrize("kind", ["bearer", "header", "basic", "query"])
def test_a_key_is_sent_and_never_seen(tmp_path, monkeypatch, caplog, kind):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OWN_KEY", BASIC if kind == "basic" else KEY)
    auth = {"type": "query", "env": "OWN_KEY", "name": "key"} if kind == "query" else SENT[kind][0]
    with FaultyServer(echo(200), echo(403), default=drop) as server:
        specs = specs_of(tmp_path, CITY, auth=auth, attempts=2, base_url=server.url)
        seen = [call(specs, {"city": "Bern"}).text, call(specs, {"city": "Bern"}).text]
        with pytest.raises(UnscoredError) as caught:
            call(specs, {"city": "Bern"})
    assert [text.count("***") >= 3 for text in seen] == [True, True]
    seen += [repr(caught.value), caplog.text, repr(specs), pickle.dumps(specs).decode("latin-1")]
    encoded = base64.b64encode(KEY.encode()).decode()
    for hidden in (KEY, json.dumps(KEY)[1:-1], encoded, "sk-%22se%2Fcret", SENT["basic"][2][6:]):
        assert not any(hidden in text for text in seen), hidden
    request = server.requests[0]
    if kind == "query":
        assert request.path == "/weather/Bern?key=sk-%22se%2Fcret%22%2Bvalue"
    else:
        assert request.headers[SENT[kind][1]] == SENT[kind][2]


def test_a_key_that_is_cut_in_two_is_not_seen(tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_KEY", "0123456789abcdef")
    step = answer(200, b"....0123456789ABCDEF", Content_Type="text/plain")
    for limit, shown in ((16, "....***"), (20, "....***"), (7, "....012")):
        result, _ = one(tmp_path, step, auth={"type": "bearer", "env": "OWN_KEY"}, max_bytes=limit)
        assert result.text.splitlines()[0] == shown


def test_refused_credentials_are_not_the_policys_mistake(tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_KEY", KEY)
    with pytest.raises(UnscoredError, match="credentials"):
        one(tmp_path, answer(401), auth={"type": "bearer", "env": "OWN_KEY"})


def test_one_entry_has_one_limit_for_all_its_tools(tmp_path):
    """Two tools in two trajectories at the same time, and never two requests at once."""

    async def main(specs):
        async with ToolSession(specs, default_timeout_s=20) as a, ToolSession(specs, default_timeout_s=20) as b:
            calls = [ToolCall("weather", {"city": "Bern"}, "1"), ToolCall("again", {"city": "Bern"}, "2")]
            await asyncio.gather(a.run(calls), b.run(calls))

    with FaultyServer(default=answer(delay_s=0.02)) as server:
        asyncio.run(main(specs_of(tmp_path, CITY, {**CITY, "name": "again"}, max_concurrent=1, base_url=server.url)))
    assert (len(server.requests), server.most_at_once) == (4, 1)


def test_a_tool_written_out_is_the_same_tool(tmp_path):
    """What `agent-rl tools expand` writes: plain entries with the tools' own classes and configs."""
    with FaultyServer() as server:
        (spec,) = specs_of(tmp_path, {**CITY, "response": {"max_items": 3}}, rate_per_s=1000, base_url=server.url)
        entry = {
            "class_name": f"{spec.cls.__module__}.{spec.cls.__qualname__}",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
            "config": json.loads(json.dumps(spec.config)),
        }
        (tmp_path / "expanded.yaml").write_text(yaml.safe_dump({"tools": [entry]}))
        (again,) = load_tools(tmp_path / "expanded.yaml")
        assert (again.cls, again.schema(), again.config) == (spec.cls, spec.schema(), spec.config)
        assert call([pickle.loads(pickle.dumps(again))], {"city": "Bern"}).text == '{"fine": true}'


URL = "https://api.example.com/v1"
AUTH = {"type": "bearer", "env": "OWN_KEY"}


@pytest.mark.parametrize(
    ("config", "endpoint", "message"),
    [
        ({"base_ur": URL}, {}, "base_ur: unknown key .* Did you mean 'base_url'"),
        ({"base_url": "api.example.com"}, {}, "base_url: cannot be used"),
        ({"base_url": "ftp://api.example.com"}, {}, "base_url: cannot be used"),
        ({"base_url": f"{URL}?a=b"}, {}, "base_url: cannot be used"),
        ({"base_url": "https://u:pw-of-mine@h/"}, {}, "base_url: holds a user"),
        ({"allow_hosts": ["other.example"]}, {}, "allow_hosts: .* Add api.example.com"),
        ({"headers": {"Authorization": "Bearer abc"}}, {}, "headers.Authorization: credentials"),
        ({"headers": {"Host": "x"}}, {}, "headers.Host"),
        ({"headers": {"X": "a\nb"}}, {}, "headers.X: must be one line"),
        ({"timeout_s": 0}, {}, "timeout_s: expected a number above 0, got 0"),
        ({"auth": AUTH}, {}, "auth.env: the environment variable OWN_KEY is not set"),
        ({"auth": {**AUTH, "env": "OWN_SHORT"}}, {}, "auth.env: OWN_SHORT has fewer than 4"),
        ({"auth": {"type": "basic", "env": "OWN_FULL"}}, {}, "OWN_FULL has no colon"),
        ({"auth": {"type": "header", "env": "OWN_FULL"}}, {}, "auth.name: None .* Name the header"),
        ({"auth": {**AUTH, "env": "OWN_FULL", "name": "x"}}, {}, "auth.name: 'x' .* Remove it"),
        ({"auth": {"type": "header", "env": "OWN_FULL", "name": "a b"}}, {}, "auth.name: 'a b'"),
        ({"auth": {**AUTH, "key": "x"}}, {}, "auth.key: unknown key"),
        ({"auth": "bearer"}, {}, "auth: expected a mapping, got 'bearer'"),
        ({"auth": {"type": "header", "env": "OWN_FULL", "name": "X-Trace"}}, {}, r"trace: the header 'x-trace' is set"),
        ({}, {"metod": "GET"}, r"endpoints\[0\].metod: unknown key .* Did you mean 'method'"),
        ({}, {"method": "get"}, r"endpoints\[0\].method: expected `GET`, `HEAD`"),
        ({}, {"path": "weather/{city}"}, "path: cannot be sent"),
        ({}, {"path": "//evil.example/{city}"}, "path: cannot be sent"),
        ({}, {"path": "/a b/{city}"}, "path: cannot be sent"),
        ({}, {"path": "/a/../{city}"}, "path: must not contain"),
        ({}, {"path": "/a/%2e%2E/{city}"}, "path: must not contain"),
        ({}, {"path": "/{city}/{city}"}, "a placeholder occurs twice"),
        ({}, {"path": "/{city}/{day}"}, "path: no argument fills {day}"),
        ({}, {"path": "/{city}?a={units}"}, "a query holds fixed values only"),
        ({}, {"path": "/{city}?units=m"}, "units: the query 'units' is set"),
        ({}, {"places": {"citi": "path"}}, "places.citi: no such argument. Did you mean 'city'"),
        ({}, {"places": {"units": "qery"}}, "places.units: unknown place 'qery'. Did you mean 'query'"),
        ({}, {"places": {"units": "path"}}, "has no {units}"),
        ({}, {"places": {"units": "query:tags"}}, "sent as query 'tags' too"),
        ({}, {"places": {"units": "header:Authorization"}}, "not the policy's to set"),
        ({}, {"places": {"units": "header:a b"}}, "cannot be a header's name"),
        ({}, {"places": {"units": "body"}}, "GET has no body"),
        ({}, {"method": "POST", "places": {"units": "whole_body"}}, "beside a whole_body"),
        ({}, {"response": {"selct": "a"}}, "response.selct: unknown key .* Did you mean 'select'"),
        (
            {},
            {"parameters": {"type": "object", "properties": {"city": {"type": "sting"}}}, "places": {}},
            "not a JSON schema",
        ),
    ],
)
def test_a_mistake_in_the_file(tmp_path, monkeypatch, config, endpoint, message):
    monkeypatch.delenv("OWN_KEY", raising=False)
    monkeypatch.setenv("OWN_SHORT", "abc")
    monkeypatch.setenv("OWN_FULL", "abcdefgh")
    with pytest.raises(ConfigError, match=message) as caught:
        specs_of(tmp_path, {**CITY, **endpoint}, **config)
    assert re.search(r"tools\.yaml:\d+: tools\[0\] ", str(caught.value))
    assert "pw-of-mine" not in str(caught.value)


def test_the_example_loads():
    (spec,) = load_tools(Path(__file__).parents[3] / "tool_configs" / "http.yaml")
    assert (spec.name, spec.cls, spec.timeout_s) == ("get_weather", IdempotentHttpTool, 80.0)
