"""Reading a YAML file of tools: both forms, and what every mistake is answered with."""

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.tools import load_tools
from agent_rl.tools.builtin import built_in_class, built_in_names
from tests.tools import use

OWN = """
    from agent_rl.tools import Tool, ToolSpec, Toolset

    class Search(Tool):
        name = "search"
        description = "Search."
        parameters = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
        timeout_s = 7

        async def call(self, arguments):
            return arguments["query"]

    class Bare(Tool):
        async def call(self, arguments):
            return "bare"

    class Abstract(Tool):
        name = "abstract"

    class SyncStart(Search):
        def start(self):
            pass

    class Picky(Search):
        @classmethod
        def check_config(cls, config):
            if "index" not in config:
                raise ValueError("no index")

    class Repeatable(Search):
        idempotent = reusable = True

    class Pair(Toolset):
        @classmethod
        def check_config(cls, config):
            if not config:
                raise ValueError("names: missing")

        @classmethod
        def tools(cls, config):
            if len(config["names"]) > 2:
                raise ValueError("a pair has two")
            schema = config.get("schema", {"type": "object"})
            return [ToolSpec(name, "d", schema, Repeatable, {"of": name}) for name in config["names"]]

    class NotATool:
        pass

    def function():
        pass

    class VerlTool:
        def __init__(self, config, tool_schema):
            raise RuntimeError("must not be constructed for its schema")
        async def create(self, instance_id=None, **kwargs): ...
        async def execute(self, instance_id, parameters, **kwargs): ...
        async def release(self, instance_id, **kwargs): ...
        def get_openai_tool_schema(self):
            return self.tool_schema

    class VerlOwnSchema(VerlTool):
        def get_openai_tool_schema(self):
            function = {"name": "own", "description": "d", "parameters": {"type": "object"}}
            return {"type": "function", "function": function}
"""


@pytest.fixture
def load(tmp_path):
    (tmp_path / "own.py").write_text(textwrap.dedent(OWN))
    (tmp_path / "needy.py").write_text("import a_package_that_is_not_there")

    def load(text):
        (tmp_path / "tools.yaml").write_text(textwrap.dedent(text))
        return load_tools(tmp_path / "tools.yaml")

    yield load
    for name in [name for name in sys.modules if name.startswith("agent_rl_user_")]:
        del sys.modules[name]


def test_the_short_form_overrides_the_class(load):
    first, second = load("""
        tools:
          - class_name: own.py:Search
          - {name: wiki, class_name: "own.py:Search", description: Wikipedia., config: {top_k: 3}, timeout_s: 2}
    """)
    assert (first.name, first.description, first.timeout_s) == ("search", "Search.", 7.0)
    assert (second.name, second.description, second.config) == ("wiki", "Wikipedia.", {"top_k": 3})
    assert second.timeout_s == 2.0
    assert first.cls is second.cls
    assert sys.modules[first.cls.__module__].Search is first.cls  # stable, so that instances can be pickled


def test_a_class_without_a_schema_takes_the_entrys(load):
    (spec,) = load("""
        tools:
          - name: bare
            class_name: own.py:Bare
            description: Nothing.
            parameters: {type: object}
    """)
    assert spec.parameters == {"type": "object", "properties": {}}


def test_an_entry_in_verls_form_is_read(load):
    (spec,) = load("""
        tools:
          - class_name: agent_rl.tools.builtin.calculator.Calculator
            config: {type: native}
            tool_schema:
              type: function
              function:
                name: calc
                description: Computes.
                parameters: {type: object, properties: {expression: {type: string}}, required: [expression]}
                strict: false
    """)
    assert (spec.name, spec.description, spec.config, spec.is_verl) == ("calc", "Computes.", {}, False)


def test_verls_own_tool_classes_are_loaded(load):
    given, own = load("""
        tools:
          - class_name: own.py:VerlTool
            config: {type: native, url: u}
            tool_schema: {type: function, function: {name: v, description: d}}
          - class_name: own.py:VerlOwnSchema
    """)
    assert (given.name, given.config, given.is_verl) == ("v", {"url": "u"}, True)
    assert (own.name, own.is_verl, own.parameters) == ("own", True, {"type": "object", "properties": {}})


def test_limits_of_a_tool(load):
    search, repeatable, eager, declared, refused = load("""
        tools:
          - {class_name: "own.py:Search", max_concurrency: 4}
          - {class_name: "own.py:Repeatable", name: other}
          - {class_name: "own.py:Repeatable", name: eager, retries: 0, cache: shared}
          - {class_name: "own.py:Search", name: a, reusable: true, cache: shared}
          - {class_name: "own.py:Repeatable", name: d, reusable: false}
    """)
    assert [spec.may_be_reused for spec in (search, repeatable, declared, refused)] == [False, True, True, False]
    assert (search.timeout_s, search.max_concurrency, search.retries, search.cache) == (7.0, 4, 0, "off")
    assert (repeatable.max_concurrency, repeatable.retries, repeatable.cache) == (None, 2, "off")
    assert (eager.retries, eager.cache) == (0, "shared")


SHIPPED = [
    *("calculator", "check_answer", "http", "python", "run_tests", "sandbox_fusion", "search_remote", "sql"),
    *("submit_answer", "sympy"),
]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_files_load_without_a_service(name, tmp_path, monkeypatch):
    """tests/agents/test_tool_configs.py calls their tools, and those of search.yaml and mcp.yaml."""
    monkeypatch.setenv("SQL_DATABASES", str(tmp_path))
    (spec,) = load_tools(Path(__file__).parents[2] / "tool_configs" / f"{name}.yaml")
    assert spec.name == {"http": "get_weather", "search_remote": "search"}.get(name, name)
    assert spec.may_be_repeated is (name not in {"http", "search_remote", "sandbox_fusion"})
    own_limit = spec.config.get("timeout_s")
    assert own_limit is None or spec.timeout_s is None or spec.timeout_s > own_limit
    if name == "python":
        assert all(package in spec.description for package in spec.config["packages"])


@pytest.mark.parametrize("name", built_in_names())
def test_which_built_in_tools_are_reusable(name):
    """What a call answers depends on its arguments alone: nothing behind them changes while the policy works."""
    assert getattr(built_in_class(name), "reusable", False) is (name in {"calculator", "search", "sql", "sympy"})


def test_a_toolset_gives_several_tools_with_the_limits_of_the_entry(load):
    specs = load("""
        tools:
          - {class_name: "own.py:Pair", config: {names: [a, b]}, timeout_s: 3, retries: 1, cache: off}
          - {class_name: "own.py:Search"}
    """)
    assert [(spec.name, spec.config, spec.timeout_s, spec.retries) for spec in specs] == [
        ("a", {"of": "a"}, 3.0, 1),
        ("b", {"of": "b"}, 3.0, 1),
        ("search", {}, 7.0, 0),
    ]


def entry(text):
    return "tools:\n  - " + text


BROKEN = [  # YAML, and what the message must say
    ("tools: [", ["invalid YAML", "Fix the syntax"]),
    ("3", ["cannot be read", "Pass a readable YAML file"]),
    ("tool: []", ["tool: unknown key", "Did you mean 'tools'?"]),
    ("tools: {name: calculator}", ["tools: expected a list", "Change the value"]),
    ("tools: [{name: calculator}]\nextra: 1", ["extra: unknown key"]),
    (entry("calculator"), ["tools[0]: expected a mapping, got 'calculator'", "Write `- name: calculator`"]),
    (entry("{name: calculator, timeout: 3}"), ["(calculator).timeout: unknown key (value 3)", "'timeout_s'"]),
    (entry("{config: {a: 1}}"), ["tools[0]: the entry has no name, class_name"]),
    (entry("{name: calculater}"), ["(calculater).name", "not a built-in tool", "Did you mean 'calculator'?"]),
    (entry("{class_name: agent_rl.tools.builtin.calculater.Calculator}"), ["no module", "Did you mean 'calculator'"]),
    (entry("{class_name: 'onw.py:Search'}"), ["there is no file", "Did you mean 'own.py'?"]),
    (entry("{class_name: 'own.py:Serach'}"), ["'own.py' has no 'Serach'", "Did you mean 'Search'?"]),
    (entry("{class_name: 'needy.py:Search'}"), ["needy.py:1: ModuleNotFoundError", "a_package_that_is_not_there"]),
    (
        entry("{class_name: 'own.py:NotATool'}"),
        ["NotATool' is not a subclass of", "Derive it from Tool"],
    ),
    (entry("{class_name: 'own.py:function'}"), ["is a function, not a class"]),
    (entry("{class_name: 'own.py:Abstract'}"), ["Abstract' (", "own.py:17) does not define call"]),
    (entry("{class_name: 'own.py:SyncStart'}"), ["SyncStart.start (", "own.py:", ") is not `async def`"]),
    (entry("{class_name: 'own.py:Bare'}"), [".name: Bare has no name"]),
    (entry("{name: bare, class_name: 'own.py:Bare'}"), [".description: Bare has no description"]),
    (entry("{name: bare, class_name: 'own.py:Bare', description: d}"), [".parameters: Bare has no schema"]),
    (entry("{class_name: 'own.py:VerlTool'}"), [".name: VerlTool has no name"]),
    (entry("{class_name: 'own.py:Picky', config: {top: 1}}"), [".config: no index"]),
    (entry("{name: calculator, config: {digits: 3}}"), ["yaml:2: tools[0] (calculator).config.digits: unknown key"]),
    (entry("{name: calculator, timeout_s: 0}"), [".timeout_s: expected a number above 0"]),
    (entry("{name: calculator, max_concurrency: 0}"), [".max_concurrency: expected a number of at least 1, got 0"]),
    (entry("{class_name: 'own.py:Repeatable', cache: share}"), [".cache", "'share'", "Did you mean 'shared'?"]),
    (entry("{class_name: 'own.py:Search', cache: shared}"), [".cache: Search is not reusable (value 'shared')"]),
    (entry("{name: calculator, cache: shared, reusable: false}"), [".cache: Calculator is not reusable"]),
    (entry("{class_name: 'own.py:VerlOwnSchema', cache: shared}"), [".cache: VerlOwnSchema is a verl class"]),
    (entry("{name: run_tests, cache: trajectory}"), [".cache: RunTests is not reusable", "reusable: true"]),
    (entry("{class_name: 'own.py:Search', retries: 2}"), [".retries", "idempotent = True"]),
    (entry("{class_name: 'own.py:Pair'}"), [".config: names: missing"]),
    (entry("{class_name: 'own.py:Pair', config: {names: [a, b, c]}}"), [".config: a pair has two"]),
    (entry("{class_name: 'own.py:Pair', config: {names: [a, a]}}"), [".name: 'a' is already the name of tools[0]"]),
    (entry("{class_name: 'own.py:Pair', config: {names: ['a b']}}"), [".name: 'a b' cannot be a tool's name"]),
    (entry("{class_name: 'own.py:Pair', config: {names: [a]}, description: d}"), [".description: Pair is a toolset"]),
    (entry("{class_name: 'own.py:Pair', config: {names: [a], schema: {type: text}}}"), ["(tool 'a').parameters: type"]),
    (entry("{name: a b, class_name: 'own.py:Search'}"), [".name: 'a b' cannot be a tool's name"]),
    (entry("{name: calculator, parameters: text}"), [".parameters: expected a JSON schema", "'text'"]),
    (entry("{name: calculator, parameters: {type: array}}"), ["type must be 'object', got 'array'"]),
    (entry("{name: calculator, parameters: {type: object, properties: [a]}}"), ["properties must be a mapping"]),
    (entry("{name: calculator, parameters: {type: object, properties: {a: {type: int}}}}"), ["properties.a.type"]),
    (
        entry("{name: calculator, parameters: {expression: strng}}"),
        ["not a JSON schema: at properties.expression"],
    ),
    (entry("{name: calculator, parameters: {type: object, properties: {on: {}}}}"), ["the True key is not text"]),
    (
        entry("{name: calculator, parameters: {type: object, patternProperties: {a: {}}, unevaluatedProperties: {}}}"),
        ["patterns under unevaluatedProperties have no time limit", "additionalProperties"],
    ),
    (
        entry("{name: calculator, parameters: {type: object, properties: {query: {}}, required: [querry]}}"),
        ["required names 'querry'", "Did you mean 'query'?"],
    ),
    (
        entry("{name: calculator, parameters: {type: object, properties: {a: {$ref: '#/$defs/a'}}}}"),
        ["$ref '#/$defs/a' has no target"],
    ),
    (entry("{name: calculator}\n  - name: calculator"), ["tools[1] (calculator).name", "already the name of tools[0]"]),
    (entry("{name: calculator, config: {a: '${oc.env:NOT_SET_AT_ALL}'}}"), ["tools[0].config.a", "NOT_SET_AT_ALL"]),
    (entry("{tool_schema: {function: {}}}"), ["class_name: this key is required with tool_schema"]),
    (entry("{class_name: 'own.py:Bare', tool_schema: [a]}"), ["tool_schema: expected a mapping", "type, function"]),
    (entry("{class_name: 'own.py:Bare', tool_schema: {type: tool, function: {}}}"), ["tool_schema.type", "'tool'"]),
    (entry("{class_name: 'own.py:Bare', tool_schema: {function: {nam: a}}}"), ["function.nam: unknown", "'name'"]),
    (entry("{class_name: 'own.py:Bare', tool_schema: {function: {name: a}}}"), ["function.description: Bare"]),
    (entry("{class_name: 'own.py:Bare', name: a, tool_schema: {function: {name: a}}}"), ["also set in tool_schema"]),
]


@pytest.mark.parametrize(("text", "expected"), BROKEN, ids=[str(number) for number in range(len(BROKEN))])
def test_every_mistake_says_where_and_what_to_do(load, tmp_path, text, expected):
    with pytest.raises(ConfigError) as caught:
        load(text)
    message = str(caught.value)
    assert re.match(
        rf"{tmp_path}/tools\.yaml:\d+: tools\[" if "tools[" in message else f"{tmp_path}/tools.yaml", message
    )
    assert "\n" not in message or "invalid YAML" in message
    assert caught.value.remedy
    for part in expected:
        assert part in message


NUMERIC = "agent_rl.rewards.scorers.math.numeric"
CONFIGS = [  # of a built-in tool, and what its message must say
    ("check_answer", {"scorer": f"{NUMERIC}.numeric_mach"}, "Did you mean 'numeric_match'?"),
    ("check_answer", {"scorer": "nowhere.score"}, "scorer: there is no module 'nowhere'"),
    ("check_answer", {"scorer": f"{NUMERIC}.__doc__"}, "is a str, not a function"),
    ("check_answer", {"scorer": f"{NUMERIC}.numeric_match", "repeat_penalty": -1}, "at least 0, got -1"),
    ("check_answer", {"repeat_penlty": 1}, "repeat_penlty: unknown key (value 1). Did you mean 'repeat_penalty'"),
    ("mcp", {}, "command, url: neither is set"),
    ("mcp", {"command": ["x"], "url": "http://h/mcp"}, "command, url: both are set"),
    ("mcp", {"command": "python x.py"}, "command: expected a list, got 'python x.py'"),
    ("mcp", {"url": "localhost:8000/mcp"}, "url: this is not an HTTP address"),
    ("mcp", {"url": "http://user:hunter2@h/mcp"}, "url: the URL contains a password"),
    ("mcp", {"url": "http://h/mcp", "env": {"A": "b"}}, "env: this key has no effect"),
    ("mcp", {"command": ["x"], "prefix": "a b"}, "prefix: "),
    ("python", {"mode": "sessions"}, "mode: expected `session` or `stateless`, got 'sessions'"),
    ("python", {"timeout": 3}, "timeout: unknown key (value 3). Did you mean 'timeout_s'"),
    ("python", {"timeout_s": 0}, "timeout_s: "),
    ("python", {"packages": ["no-such-package"]}, "packages: 'no-such-package' is not installed"),
    ("sandbox_fusion", {}, "url: missing"),
    ("sandbox_fusion", {"url": "http://h", "memory_limit": 5}, "unknown key (value 5). Did you mean 'memory_limit_mb'"),
    ("sandbox_fusion", {"url": "http://h", "api_key_env": "NO_SUCH_KEY_AT_ALL"}, "NO_SUCH_KEY_AT_ALL is not set"),
    ("search", {}, "expected either `corpus` or `url`, got none"),
    ("search", {"corpus": "a", "url": "b"}, "expected either `corpus` or `url`, got corpus, url"),
    ("search", {"corpus": "missing.jsonl"}, "there is no file"),
    ("search", {"corpus": "a", "topk": 5}, "topk: unknown key (value 5). Did you mean 'top_k'?"),
    ("search", {"corpus": "a", "top_k": 0}, "top_k: expected a number of at least 1, got 0"),
    ("search", {"url": "localhost:8000"}, "url: "),
    ("search", {"url": "http://localhost", "index": "x"}, "index: unknown key"),
    ("search", {"url": "http://localhost", "api_key_env": "NO_SUCH_KEY_AT_ALL"}, "NO_SUCH_KEY_AT_ALL is not set"),
    ("sql", {"max_row": 5}, "max_row: unknown key (value 5). Did you mean 'max_rows'"),
    ("sql", {"max_rows": 0}, "max_rows: expected a number of at least 1, got 0"),
    ("sql", {"root": "/no/such/folder"}, "root: '/no/such/folder' is not a folder"),
    ("sql", {"database": "/no/such/file"}, "Use an existing database"),
    ("sql", {"database": __file__}, "is not an SQLite file"),
    ("submit_answer", {"schema": {}}, "schema: unknown key"),
]


@pytest.mark.parametrize(("tool", "config", "text"), CONFIGS)
def test_a_config_that_cannot_work_is_refused_with_its_key(tmp_path, tool, config, text):
    with pytest.raises(ConfigError) as caught:
        use.load(tmp_path, tool, config)
    message = str(caught.value)
    assert re.match(rf"{tmp_path}/tools\.yaml:\d+: tools\[0\] \({tool}\)\.config", message)
    assert text in message
    assert "hunter2" not in message
    assert caught.value.remedy


def test_an_unreadable_file_is_refused_with_the_reason(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tools(tmp_path)
    (tmp_path / "empty.yaml").touch()
    with pytest.raises(ConfigError, match="tools: missing"):
        load_tools(tmp_path / "empty.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"tools: \xff\xfe")
    with pytest.raises(ConfigError, match="invalid YAML"):
        load_tools(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("parameters", "properties", "required"),
    [
        ("{expression: string}", {"expression": {"type": "string"}}, ["expression"]),
        (
            "{expression: {type: str, description: what}, digits: {type: int, default: 3}}",
            {"expression": {"type": "string", "description": "what"}, "digits": {"type": "integer", "default": 3}},
            ["expression"],
        ),
        (
            "{expression: {type: string, required: true}, exact: {type: boolean, required: false}}",
            {"expression": {"type": "string"}, "exact": {"type": "boolean"}},
            ["expression"],
        ),
    ],
)
def test_parameters_may_be_a_mapping_of_each_argument_to_its_type(
    tmp_path: Path, parameters: str, properties: dict[str, Any], required: list[str]
) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(f"tools:\n  - name: calculator\n    description: Compute.\n    parameters: {parameters}\n")
    (spec,) = load_tools(file)
    assert spec.parameters == {"type": "object", "properties": properties, "required": required}
