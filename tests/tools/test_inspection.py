"""What the command line shows of a tool file."""

import textwrap

import pytest
import yaml

from agent_rl.errors import ConfigError
from agent_rl.tools import load_tools
from agent_rl.tools.builtin import built_in_names
from agent_rl.tools.inspection import built_in, call, expand, signature
from agent_rl.trajectory import ToolStatus

OWN = """
from agent_rl.tools import Tool, ToolSpec, Toolset

class Echo(Tool):
    name = "echo"
    description = "Repeat."
    parameters = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": ["integer", "null"]}, "any": {}},
        "required": ["text"],
    }
    idempotent = reusable = True

    async def call(self, arguments):
        return f"{self.config.get('before', '')}{self.create_kwargs.get('name', '')}{arguments['text']}"

class Both(Toolset):
    @classmethod
    def tools(cls, config):
        return [ToolSpec(f"echo_{n}", "d", Echo.parameters, Echo, {"before": n}) for n in "ab"]
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "own.py").write_text(OWN)

    def file(text):
        (tmp_path / "tools.yaml").write_text(textwrap.dedent(text))
        return tmp_path / "tools.yaml"

    return file


def test_every_built_in_tool_says_what_it_is():
    rows = built_in()
    assert [row[0] for row in rows] == sorted(built_in_names())
    for _, kind, summary in rows:
        assert kind in ("tool", "toolset")
        assert len(summary) > 20


def test_a_signature_has_names_types_and_optional_arguments(file):
    (spec,) = load_tools(file("tools: [{class_name: 'own.py:Echo'}]"))
    assert signature(spec) == "echo(text: string, times?: integer|null, any?: any)"


def test_a_tool_is_called_by_its_name_in_the_file(file):
    specs = load_tools(file("tools: [{class_name: 'own.py:Echo', config: {before: '> '}}, {name: calculator}]"))
    assert call(specs, "echo", {"text": "hello"}, {"name": "you: "}).text == "> you: hello"
    assert call(specs, "calculator", {"expression": "1/0"}, {}).status is ToolStatus.ERROR
    with pytest.raises(ConfigError, match=r"no tool 'ecko' in this file\. Did you mean 'echo'"):
        call(specs, "ecko", {}, {})


def test_an_expanded_file_gives_the_same_tools(file, tmp_path):
    specs = load_tools(
        file("""
        tools:
          - {class_name: "own.py:Both", timeout_s: 3, cache: shared, retries: 0}
          - {name: python, reusable: true}
          - {name: calculator, description: 'Ünusual: \\${x} and 1e3.'}
    """)
    )
    text = expand(specs)
    assert "Ünusual" in text
    assert [entry["name"] for entry in yaml.safe_load(text)["tools"]] == ["echo_a", "echo_b", "python", "calculator"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "expanded.yaml").write_text(text)
    again = load_tools(elsewhere / "expanded.yaml")
    assert again == specs
    assert expand(again) == text


@pytest.mark.trainer
def test_an_expanded_verl_tool(file, tmp_path):
    (tmp_path / "foreign.py").write_text(
        textwrap.dedent("""
        from verl.tools.base_tool import BaseTool
        class Foreign(BaseTool):
            async def execute(self, instance_id, parameters, **kwargs):
                return "x", 0.0, {}
    """)
    )
    schema = "{type: function, function: {name: foreign, description: d, parameters: {type: object, properties: {}}}}"
    specs = load_tools(file(f"tools: [{{class_name: 'foreign.py:Foreign', tool_schema: {schema}}}]"))
    (tmp_path / "expanded.yaml").write_text(expand(specs))
    assert load_tools(tmp_path / "expanded.yaml") == specs
