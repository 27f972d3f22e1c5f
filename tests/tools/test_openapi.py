"""OpenAPI documents become tool files that load; the tools work against the application that wrote the document."""

import json
from typing import Annotated, Literal

import httpx
import pytest
from fastapi import Body, Depends, FastAPI, File, Header, HTTPException, Query
from fastapi.security import APIKeyHeader
from pydantic import BaseModel

from agent_rl.errors import ConfigError
from agent_rl.remote import Remote
from agent_rl.tools import load_tools
from agent_rl.tools.openapi import from_openapi, read_openapi, to_yaml
from agent_rl.trajectory import ToolStatus
from tests.tools import use

KEY = "key-of-the-shop"


class Part(BaseModel):
    """Contains itself."""

    name: str
    parts: list["Part"] = []


def shop():
    """A small real application; its answers say what it was given."""
    app = FastAPI(title="Shop 24")
    key = APIKeyHeader(name="X-Shop-Key")

    @app.get("/items/{item_id}")
    def read_item(
        item_id: int,
        sort: Literal["up", "down"] = "up",
        limit: Annotated[int | None, Query(ge=1, le=9)] = None,
        tag: Annotated[list[str] | None, Query()] = None,
        x_request_id: Annotated[str | None, Header()] = None,
    ):
        """Read one item."""
        if item_id == 404:
            raise HTTPException(404, "no such item")
        return {"item_id": item_id, "sort": sort, "limit": limit, "tag": tag, "x_request_id": x_request_id}

    @app.post("/parts")
    def add_part(part: Part):
        return part

    @app.post("/numbers")
    def add_numbers(numbers: list[int]):
        return sum(numbers)

    @app.patch("/notes/{note}")
    def patch_note(note: str, text: Annotated[str, Body(embed=True)]):
        return f"{note}: {text}"

    @app.get("/secret")
    def read_secret(given: Annotated[str, Depends(key)]):
        return {"right": given == KEY, "given": given}

    @app.post("/upload")
    def upload(file: Annotated[bytes, File()]):
        return len(file)

    @app.get("/old", deprecated=True)
    def read_old():
        return "old"

    return app


def tools_of(tmp_path, document, **options):
    conversion = from_openapi(document, **options)
    path = tmp_path / "tools.yaml"
    path.write_text(to_yaml(conversion), encoding="utf-8")
    return load_tools(path), conversion


READ = "read_item_items_item_id_get"
CALLS = [
    (READ, {"item_id": "3", "limit": "5", "tag": ["a", "b c"]}, '"sort": "up", "limit": 5, "tag": ["a", "b c"]'),
    (READ, {"item_id": 3, "x_request_id": "r-1", "sort": "down"}, '"tag": null, "x_request_id": "r-1"'),
    (READ, {"item_id": 404}, 'Error: HTTP 404 Not Found: {"detail": "no such item"}'),
    (READ, {"item_id": 3, "sort": "left"}, 'expected one of ["up", "down"]'),
    (READ, {"item_id": 3, "limit": 10}, "argument 'limit'"),
    ("add_part_parts_post", {"name": "a", "parts": [{"name": "b", "parts": [{"name": "c"}]}]}, '"c", "parts": []'),
    ("add_part_parts_post", {"name": "a", "parts": [{"name": "b", "parts": [{"nam": "c"}]}]}, "missing 'name'"),
    ("add_numbers_numbers_post", {"body": [1, 2, 39]}, "42"),
    ("patch_note_notes_note_patch", {"note": "ü/x", "text": "t"}, "must not contain a slash"),
    ("patch_note_notes_note_patch", {"note": "ü?x", "text": "t"}, "ü?x: t"),
    ("read_secret_secret_get", {}, '{"right": true, "given": "***"}'),
]


def test_every_tool_of_a_real_application(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_24_APIKEYHEADER", KEY)
    reach = httpx.ASGITransport(app := shop())
    monkeypatch.setattr(Remote, "_new_client", lambda it, _: httpx.AsyncClient(transport=reach, headers=it._headers))
    specs, conversion = tools_of(tmp_path, app.openapi(), base_url="http://shop.example")
    results = use.run(specs, [(name, arguments) for name, arguments, _ in CALLS], timeout_s=60)
    assert {spec.name for spec in specs} == {name for name, _, _ in CALLS}
    for (name, arguments, text), result in zip(CALLS, results, strict=True):
        assert text in result.text, (name, arguments, result)
        assert (result.status is ToolStatus.OK) == (not result.text.startswith("Error")), result
    skipped = {"POST /upload": "its body is multipart/form-data", "GET /old": "deprecated"}
    assert dict(conversion.skipped) == skipped
    text = (tmp_path / "tools.yaml").read_text()
    assert "# Set the environment variable SHOP_24_APIKEYHEADER: a key.\n" in text
    assert "# - POST /upload: its body is multipart/form-data\n" in text
    assert KEY not in text
    by_name = {spec.name: spec for spec in specs}
    assert list(by_name["add_part_parts_post"].parameters["$defs"]) == ["Part"]
    assert by_name[READ].description == "Read one item."


STRING = {"type": "string"}
THING = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def document(paths=None, **extra):
    paths = paths if paths is not None else {"/x": {"get": {"operationId": "x"}}}
    base = {"openapi": "3.0.3", "info": {"title": "T"}, "servers": [{"url": "https://h.example/v2/"}], "paths": paths}
    return {**base, **extra}


def operation(*parameters, **extra):
    return {"operationId": "x", "parameters": list(parameters), **extra}


def body(schema, *, required=True):
    return operation(requestBody={"required": required, "content": {"application/json": {"schema": schema}}})


def only(tmp_path, node, method="post", path="/x", **options):
    (spec,) = tools_of(tmp_path, document({path: {method: node}}, **options))[0]
    return spec


@pytest.mark.parametrize(
    ("server", "base_url", "expected"),
    [
        ("https://h.example/v2/", None, "https://h.example/v2"),
        ("/api/v1", "https://h.example/", "https://h.example/api/v1"),
        ("/api/v1", "https://h.example/api/v1/", "https://h.example/api/v1"),
        ("https://{region}.example", "https://h.example/v1", "https://h.example/v1"),
    ],
)
def test_the_base_url_comes_from_the_argument_or_the_first_server(server, base_url, expected):
    conversion = from_openapi(document(servers=[{"url": server}]), base_url=base_url)
    assert conversion.content["tools"][0]["config"]["base_url"] == expected


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ({"swagger": "2.0", "paths": {}}, {}, "openapi: expected 3.0 or 3.1, got None.* swagger2openapi"),
        (document(servers=[{"url": "/v1"}]), {}, "'/v1' has no host.* Give a base_url"),
        (document(servers=[{"url": "https://{a}.b"}]), {}, "has no host"),
        (document(), {"base_url": "api.example.com"}, "has no host"),
        (document({"/x": {"get": {"deprecated": True}}}), {}, r"\(GET /x: deprecated\)"),
        (document([]), {}, "paths: expected a mapping"),
        (document({"/x": {"$ref": "a.json"}}), {}, r"\(/x: is a reference to another document\)"),
        (document({"/things": {"get": {}}}), {"include": ["thing"]}, "'thing' matches no .* Did you mean 'get_things'"),
    ],
)
def test_a_document_that_cannot_be_converted_is_refused(content, options, message):
    with pytest.raises(ConfigError, match=message):
        from_openapi(content, **options)


def test_names_are_valid_and_unique_and_choose_operations(tmp_path):
    paths = {
        "/a/{b}": {
            "get": {"parameters": [{"name": "b", "in": "path", "schema": STRING}]},
            "post": {"operationId": "ä ö"},
        },
        "/a": {
            "get": {"operationId": "get a.b"},
            "put": {"operationId": "get_a_b"},
            "delete": {"operationId": "x" * 99},
        },
    }
    specs, conversion = tools_of(tmp_path, document(paths))
    assert [spec.name for spec in specs] == ["get_a_b", "get_a_b_2", "get_a_b_3", "x" * 60]
    assert [what for what, _ in conversion.skipped] == ["POST /a/{b}"]  # its path's parameter is nowhere described
    specs, _ = tools_of(tmp_path, document(paths), include=["x*", "GET /a", "get_a_b"])
    assert [spec.name for spec in specs] == ["get_a_b", "get_a_b_2", "get_a_b_3", "x" * 60]
    assert [spec.name for spec in tools_of(tmp_path, document(paths), include=["GET /a"])[0]] == ["get_a_b_2"]


def test_parameters_of_all_places_are_one_object(tmp_path):
    shared = [
        {"name": "id", "in": "path", "required": True, "schema": STRING},
        {"name": "q", "in": "query", "schema": STRING},
    ]
    node = operation(
        {"name": "q", "in": "query", "required": True, "schema": {"type": "integer"}, "description": "How many"},
        {"name": "id", "in": "query", "schema": STRING},
        {"name": "filter[a]", "in": "query", "schema": {"type": "array", "items": STRING}},
        {"$ref": "#/components/parameters/Trace"},
        {"name": "Accept", "in": "header", "schema": STRING},
        requestBody={"$ref": "#/components/requestBodies/Thing"},
    )
    components = {
        "parameters": {"Trace": {"name": "X-Trace", "in": "header", "schema": STRING}},
        "requestBodies": {"Thing": body({"$ref": "#/components/schemas/Thing"})["requestBody"]},
        "schemas": {"Thing": {**THING, "properties": {**THING["properties"], "id": STRING}}},
    }
    paths = {"/x/{id}": {"parameters": shared, "post": node}}
    (spec,), conversion = tools_of(tmp_path, document(paths, components=components))
    assert conversion.skipped == []
    assert spec.config["request"]["places"] == {
        "id": "path",
        "q": "query",
        "id_query": "query:id",
        "filter_a": "query:filter[a]",
        "X_Trace": "header:X-Trace",
        "n": "body",
        "id_body": "body:id",
    }
    assert spec.parameters["properties"]["q"] == {"type": "integer", "description": "How many"}
    assert spec.parameters["required"] == ["id", "q", "n"]


@pytest.mark.parametrize(
    ("schema", "required", "place"),
    [
        (THING, True, {"n": "body"}),
        (THING, False, {"body": "whole_body"}),
        ({**THING, "additionalProperties": True}, True, {"body": "whole_body"}),
        ({"oneOf": [THING, STRING]}, True, {"body": "whole_body"}),
        ({"type": "array", "items": THING}, True, {"body": "whole_body"}),
    ],
)
def test_a_body_becomes_arguments_where_it_can(tmp_path, schema, required, place):
    spec = only(tmp_path, body(schema, required=required))
    assert spec.config["request"]["places"] == place
    assert bool(spec.parameters["required"]) == required


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"allOf": [THING], "nullable": True}, {"anyOf": [{"allOf": [THING]}, {"type": "null"}]}),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 1}),
        ({"type": "string", "title": "T", "example": "x", "xml": {}, "x-own": 1, "deprecated": True}, STRING),
        ({"type": "string", "pattern": r"^a\${b}$"}, {"type": "string", "pattern": r"^a\${b}$"}),
        ({"type": "string", "enum": ["no", "1e3", "012", "null", "???x", "2020-01-01"]}, None),
        (
            {
                "type": "object",
                "properties": {"example": {"type": "string", "example": 1}, "n": {"type": "string", "readOnly": True}},
                "required": ["n"],
            },
            {"type": "object", "properties": {"example": STRING}, "required": []},
        ),
        ({"$ref": "#/components/schemas/A", "minLength": 1}, {"$ref": "#/$defs/A", "minLength": 1}),
    ],
)
def test_schemas_are_translated(tmp_path, old, new):
    node = body({"type": "object", "properties": {"p": old}, "required": ["p"]})
    spec = only(tmp_path, node, components={"schemas": {"A": STRING}})
    assert spec.parameters["properties"]["p"] == (old if new is None else new)


def test_references_are_kept_also_circular_ones_and_such_as_would_grow_large(tmp_path):
    def both(depth):
        below = {"$ref": f"#/components/schemas/S{(depth - 1) % 30}"}
        return {"type": "object", "properties": {"n": {"type": "integer"}, "a": below, "b": below}}

    schemas = {f"S{depth}": both(depth) for depth in range(30)}  # 2 ** 29 when all are replaced
    spec = only(tmp_path, body(both(30)), components={"schemas": schemas})
    assert len(json.dumps(spec.parameters)) < 10_000
    for leaf, fits in ((1, True), ("x", False)):
        value: dict = {"n": leaf}
        for _ in range(58):
            value = {"a": value}
        assert spec.validator.is_valid(value) is fits


def parameter(schema, name="o", place="query", **more):
    return operation({"name": name, "in": place, "required": True, "schema": schema, **more})


COOKIE = {"type": "apiKey", "in": "cookie", "name": "c"}


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (parameter({}, "c", "cookie"), "parameter 'c' is a cookie"),
        (parameter(THING), "parameter 'o' is an object"),
        (parameter({}, style="deepObject"), "parameter 'o' has a style other than form"),
        (parameter({"type": "array", "items": {}}, explode=False), "a style other than form, exploded"),
        (parameter({}, "Host", "header"), "not the policy's to set"),
        (parameter({}, "c", "cookie", required=False), None),
        (parameter({"$ref": "#/components/schemas/A"}), "has no target"),
        (parameter({"items": {"$ref": "#/components/schemas/A"}}), "has no target"),
        (parameter({"$ref": "a.json#/x"}), "no target in the document"),
        (operation({"$ref": "#/components/parameters/Circle"}), "is circular"),
        (parameter({"type": "strin"}), "its schema cannot be used"),
        (parameter([]), "not valid OpenAPI"),
        (operation(None), "not valid OpenAPI"),
        (body(THING), "GET has no body"),
        (operation(requestBody={"required": True, "content": {"text/csv": {}}}), "its body is text/csv"),
        (operation(requestBody={"content": {"text/csv": {}}}), None),
        (operation(servers=[{"url": "https://x"}]), "has its own servers"),
        (operation(security=[{"a": [], "b": []}]), 'an unsupported kind: [{"a": [], "b": []}]'),
        (operation(security=[{"cookie": []}]), 'an unsupported kind: [{"cookie": []}]'),
        (operation(security=[{"cookie": []}, {}]), None),
    ],
)
def test_operations_that_are_left_out_are_named(tmp_path, node, reason):
    circle = {"Circle": {"$ref": "#/components/parameters/Circle"}}
    components = {"securitySchemes": {"cookie": COOKIE}, "parameters": circle}
    content = document({"/x": {"get": node}, "/y": {"get": {"operationId": "y"}}}, components=components)
    specs, conversion = tools_of(tmp_path, content)
    assert [spec.name for spec in specs] == (["y"] if reason else ["x", "y"])
    assert (reason or "") in dict(conversion.skipped).get("GET /x", "")
    assert ("GET /x" in dict(conversion.skipped)) is ("security" not in node or reason is not None)


def test_each_security_scheme_becomes_a_credential(tmp_path, monkeypatch):
    schemes = {
        "token": {"type": "http", "scheme": "Bearer"},
        "basic": {"type": "http", "scheme": "basic"},
        "in-header": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "query": {"type": "apiKey", "in": "query", "name": "key"},
        "oauth": {"type": "oauth2", "flows": {}},
    }
    for name in ("TOKEN", "BASIC", "IN_HEADER", "QUERY"):
        monkeypatch.setenv(f"API_24_{name}", "user:password")
    paths = {f"/{name}": {"get": {"operationId": name, "security": [{"oauth": []}, {name: []}]}} for name in schemes}
    paths["/query"]["get"]["parameters"] = [{"name": "key", "in": "query", "required": True, "schema": STRING}]
    paths["/free"] = {"get": {"operationId": "free", "security": []}}
    paths["/default"] = {"get": {"operationId": "default"}}
    content = document(paths, components={"securitySchemes": schemes}, security=[{"token": []}], info={"title": "24"})
    specs, conversion = tools_of(tmp_path, content)
    assert [what for what, _ in conversion.skipped] == ["GET /oauth"]
    assert {spec.name: spec.config.get("auth") for spec in specs} == {
        "token": {"type": "bearer", "env": "API_24_TOKEN"},
        "default": {"type": "bearer", "env": "API_24_TOKEN"},
        "basic": {"type": "basic", "env": "API_24_BASIC"},
        "in-header": {"type": "header", "env": "API_24_IN_HEADER", "name": "X-Key"},
        "query": {"type": "query", "env": "API_24_QUERY", "name": "key"},
        "free": None,
    }
    assert next(spec for spec in specs if spec.name == "query").parameters["properties"] == {}


def test_text_of_a_document_stays_text(tmp_path):
    """Line breaks in what becomes a comment, and omegaconf's syntax in what becomes a value."""
    hostile = "a\nb: ${oc.env:HOME} \\${x} \\\\${y} '\" # \u2028 \x85 end"
    paths = {
        "/x": {"get": {"operationId": "x", "description": hostile}},
        "/y\ntools: []\u2028tools: []\x85tools: []\x00": {"get": {"deprecated": True}},
    }
    (spec,), _ = tools_of(tmp_path, document(paths))
    assert spec.description == hostile


def test_yaml_values_are_read_as_openapi_reads_them(tmp_path):
    path = tmp_path / "api.yaml"
    path.write_text("enum: [no, 12:30, 2020-01-01, 017, 1, -1.5, true, null, 1e3]")
    assert read_openapi(path) == {"enum": ["no", "12:30", "2020-01-01", "017", 1, -1.5, True, None, 1000.0]}
    path.write_text(json.dumps(document()))
    assert read_openapi(path) == document()


@pytest.mark.parametrize("text", ["{", "a: [", "- a", None])
def test_a_file_that_is_no_document_is_refused(tmp_path, text):
    path = tmp_path / "api.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"api\.json"):
        read_openapi(path)
