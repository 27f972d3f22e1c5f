"""`http` against real servers: what is sent, what is shown, and what never leaves."""

import base64
import json
import logging
import pickle
import re
from urllib.parse import parse_qsl

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.settings.sections import ToolsSettings
from agent_rl.tools import load_tools
from agent_rl.tools.builtin.http import HttpTool, IdempotentHttpTool
from agent_rl.tools.inspection import expand
from agent_rl.trajectory import ToolStatus
from tests.support.http_faults import FaultyServer, answer, drop
from tests.tools import use

pytestmark = pytest.mark.usefixtures("quick_delays")

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


def specs_of(tmp_path, *endpoints, base_url="https://api.example.com/v1", **config):
    return use.load(tmp_path, "http", {"base_url": base_url, **config, "endpoints": list(endpoints)})


def call(specs, arguments, tool="weather"):
    return use.run(specs, [(tool, arguments)])[0]


def one(tmp_path, step, arguments=None, endpoint=CITY, **config):
    """The result of one call, and the requests that the server saw."""
    with FaultyServer(step, default=step) as server:
        specs = specs_of(tmp_path, endpoint, **config, base_url=f"{server.url}/v1")
        return call(specs, arguments or {"city": "Bern"}, endpoint["name"]), server.requests


def test_arguments_go_to_path_query_and_headers(tmp_path):
    arguments = {"city": "São Paulo?x=1#y;@", "units": "a&b=c", "tags": ["x", "y z"], "trace": "t-1"}
    endpoint = {**CITY, "path": "/weather/{city}?format=j1&v&with[]=a&with[]=b"}
    result, (request,) = one(tmp_path, answer(200, {"t": 21.5}, Content_Type="application/json"), arguments, endpoint)
    assert (result.status, result.text) == (ToolStatus.OK, '{"t": 21.5}')
    path, _, query = request.path.partition("?")
    assert (request.method, path) == ("GET", "/v1/weather/S%C3%A3o%20Paulo%3Fx%3D1%23y%3B%40")
    assert parse_qsl(query, keep_blank_values=True) == [
        ("format", "j1"),
        ("v", ""),
        ("with[]", "a"),
        ("with[]", "b"),
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
    endpoint = {**POST, "places": {"item": "whole_body", "note": "query"}}
    for arguments, body in (({"id": 7, "item": {"a": 1}}, b'{"a":1}'), ({"id": 7}, b"")):
        _, (request,) = one(tmp_path, answer(), arguments, endpoint)
        assert request.body.replace(b" ", b"") == body


@pytest.mark.parametrize(
    ("city", "sent"),
    [
        ("..", None),
        (".", None),
        ("", None),
        ("../admin", None),
        ("a\\..\\admin", None),
        ("%2e%2e", None),
        ("%252e%252e", None),
        ("a%2Fadmin", None),
        ("a%5cadmin", None),
        ("http://other.example/x", None),
        ("//other.example/x", None),
        ("http://[::1]:80/", None),
        ("a\r\nHost: other.example", None),
        ("a\0b", None),
        ("\ud800", None),
        ("x" * 70_000, None),
        ("@other.example", "%40other.example"),
        ("[::1]:80", "%5B%3A%3A1%5D%3A80"),
        ("javascript:alert(1)", "javascript%3Aalert%281%29"),
        ("Bern?admin=1", "Bern%3Fadmin%3D1"),
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
    beside_a_dot = one(tmp_path, answer(), {"city": "."}, {**CITY, "path": "/weather/.{city}/x"})
    assert (beside_a_dot[0].status, beside_a_dot[1]) == (ToolStatus.ERROR, [])


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


def test_redirects_stay_on_the_allowed_hosts(tmp_path):
    """tests/remote/test_http.py follows one to another host, and sees that the key is not sent there."""
    with FaultyServer() as other:
        step = answer(302, b"", Location=f"http://localhost:{other.server_port}/stolen")
        result, requests = one(tmp_path, step)
        assert (result.status, len(requests), other.requests) == (ToolStatus.ERROR, 1, [])
        assert result.text == "Error: HTTP 302 Found: a redirect that is not followed"
        assert one(tmp_path, step, allow_hosts=["127.0.0.1", "localhost"])[0].status is ToolStatus.OK


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (answer(200, {"b": 1, "a": "ü"}, Content_Type="application/json"), '{"b": 1, "a": "ü"}'),
        (answer(200, b'"just text"', Content_Type="application/json"), "just text"),
        (answer(200, b"{broken", Content_Type="application/json"), "{broken"),
        (answer(200, b"[" * 50_000, Content_Type="application/json"), "[" * 50_000),
        (answer(200, b'{"a": 1}'), '{"a": 1}'),
        (answer(200, b"no type"), "no type"),
        (answer(200, "Grüße".encode("latin-1"), Content_Type="text/plain; charset=latin-1"), "Grüße"),
        (answer(200, b"\x89PNG" + bytes(1230), Content_Type="image/png"), "[image/png, 1234 bytes]"),
        (answer(200, b"\0\1"), "[unknown type, 2 bytes]"),
        (answer(204), "[HTTP 204 No Content, no content]"),
        (answer(404, {"a": "b"}, Content_Type="application/json"), 'Error: HTTP 404 Not Found: {"a": "b"}'),
        (answer(422, b"bad", Content_Type="text/plain"), "Error: HTTP 422 "),
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


def test_waiting_for_other_calls_is_not_the_policys_mistake(tmp_path):
    with FaultyServer(default=answer(200, {}, delay_s=0.4)) as server:
        specs = specs_of(tmp_path, CITY, total_s=1, max_concurrent=1, base_url=server.url)
        results = use.run(specs, [("weather", {"city": str(number)}) for number in range(7)])
    assert [result.status for result in results] == [ToolStatus.OK] * 7
    assert max(result.queue_seconds for result in results) > 2 > max(result.seconds for result in results)


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
    read = ("weather", {"city": "Bern"})
    with FaultyServer() as server:
        specs = specs_of(tmp_path, {**CITY, **extra}, POST, base_url=server.url)
        use.run(specs, [read], [("order", {"id": 1})], [read], settings=ToolsSettings())
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


def test_a_key_that_is_cut_in_two_is_not_seen_and_a_refused_one_not_the_policys_mistake(tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_KEY", "0123456789abcdef")
    with pytest.raises(UnscoredError, match="credentials"):
        one(tmp_path, answer(401), auth={"type": "bearer", "env": "OWN_KEY"})
    step = answer(200, b"....0123456789ABCDEF", Content_Type="text/plain")
    for limit, shown in ((16, "....***"), (20, "....***"), (7, "....012")):
        result, _ = one(tmp_path, step, auth={"type": "bearer", "env": "OWN_KEY"}, max_bytes=limit)
        assert result.text.splitlines()[0] == shown


def test_a_tool_written_out_is_the_same_tool(tmp_path):
    with FaultyServer() as server:
        (spec,) = specs_of(tmp_path, {**CITY, "response": {"max_items": 3}}, rate_per_s=1000, base_url=server.url)
        (tmp_path / "expanded.yaml").write_text(expand([spec]))
        (again,) = load_tools(tmp_path / "expanded.yaml")
        assert (again.cls, again.schema(), again.config) == (spec.cls, spec.schema(), spec.config)
        assert call([pickle.loads(pickle.dumps(again))], {"city": "Bern"}).text == '{"fine": true}'


URL = "https://api.example.com/v1"
AUTH = {"type": "bearer", "env": "OWN_KEY"}


@pytest.mark.parametrize(
    ("config", "endpoint", "message"),
    [
        ({"base_ur": URL}, {}, "base_ur: unknown key .* Did you mean 'base_url'"),
        ({"base_url": "api.example.com"}, {}, "base_url: the URL is invalid"),
        ({"base_url": "ftp://api.example.com"}, {}, "base_url: the URL is invalid"),
        ({"base_url": f"{URL}?a=b"}, {}, "base_url: the URL is invalid"),
        ({"base_url": "https://u:pw-of-mine@h/"}, {}, "base_url: the URL contains credentials"),
        ({"allow_hosts": ["other.example"]}, {}, "allow_hosts: .* Add api.example.com"),
        (
            {"headers": {"Authorization": "Bearer abc"}},
            {},
            "headers.Authorization: .* is reserved",
        ),
        ({"headers": {"X": "a\nb"}}, {}, "headers.X: the header must be one line"),
        ({"auth": AUTH}, {}, "auth.env: the environment variable OWN_KEY is not set"),
        ({"auth": {**AUTH, "env": "OWN_SHORT"}}, {}, "auth.env: OWN_SHORT has fewer than 4"),
        ({"auth": {"type": "basic", "env": "OWN_FULL"}}, {}, "OWN_FULL has no colon"),
        ({"auth": {"type": "header", "env": "OWN_FULL"}}, {}, "auth.name: None .* Set the name of the header"),
        ({"auth": {**AUTH, "env": "OWN_FULL", "name": "x"}}, {}, "auth.name: 'x' .* Remove it"),
        ({"auth": {"type": "header", "env": "OWN_FULL", "name": "a b"}}, {}, "auth.name: 'a b'"),
        ({"auth": {"type": "header", "env": "OWN_FULL", "name": "X-Trace"}}, {}, r"trace: the header 'x-trace' is set"),
        ({}, {"path": "weather/{city}"}, "path: the path is not valid"),
        ({}, {"path": "/a b/{city}"}, "path: the path is not valid"),
        ({}, {"path": "/a/../{city}"}, "path: the path must not contain"),
        ({}, {"path": "/a/%2e%2E/{city}"}, "path: the path must not contain"),
        ({}, {"path": "/{city}/{city}"}, "a placeholder occurs twice"),
        ({}, {"path": "/{city}/{day}"}, "path: no argument fills {day}"),
        ({}, {"path": "/{city}?a={units}"}, "path: the path is not valid .* `places` lists the query.s arguments"),
        ({}, {"path": "/{city}?units=m"}, "units: the query 'units' is set"),
        ({}, {"places": {"citi": "path"}}, "places.citi: there is no such argument. Did you mean 'city'"),
        ({}, {"places": {"units": "qery"}}, "places.units: unknown place 'qery'. Did you mean 'query'"),
        ({}, {"places": {"units": "path"}}, "has no {units}"),
        ({}, {"places": {"units": "query:tags"}}, "also sent as query 'tags'"),
        ({}, {"places": {"units": "header:Authorization"}}, "header is reserved"),
        ({}, {"places": {"units": "header:a b"}}, "cannot be a header's name"),
        ({}, {"places": {"units": "body"}}, "GET has no body"),
        ({}, {"method": "POST", "places": {"units": "whole_body"}}, "with a whole_body"),
        ({}, {"parameters": {"type": "object", "properties": {"city": {"type": "x"}}}, "places": {}}, "a JSON schema"),
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
