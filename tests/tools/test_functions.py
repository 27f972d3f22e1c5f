"""Functions as tools: their schema, their calls, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.tools import load_tools
from agent_rl.tools.inspection import call, expand, signature
from agent_rl.trajectory import ToolStatus

TOOLS = '''
from __future__ import annotations

import asyncio
from datetime import date
from typing import Annotated, Any, Literal, Optional

from pydantic import BaseModel, Field

from agent_rl.tools import ToolOutput


class Place(BaseModel):
    city: str
    country: str = "NL"


def weather(
    place: Place,
    day: date,
    days: Annotated[int, Field(ge=1)] = 1,
    unit: Literal["C", "F"] = "C",
    near: Optional[list[str]] = None,
) -> str:
    """The weather in a city.

    It knows this year alone.

    Args:
        place (Place): where.
        day: the first day,
            as YYYY-MM-DD.
        days: how many days.

    Returns:
        A sentence.
    """
    return f"{place.city} {place.country} {day:%d.%m.} {days} {unit} {near}"


async def double(number: float):
    """Twice a number.

    :param number: any number
    :returns: twice that
    """
    await asyncio.sleep(0)
    return {"twice": 2 * number}


def give(kind: str) -> Any:
    """Returns a value of a kind."""
    return {
        "reward": ("text", 0.5, {"tries": 2}),
        "only": ("text",),
        "list": [1, "ä"],
        "true": True,
        "nothing": None,
        "long": ("a", 1, {}, 2),
        "output": ToolOutput("the end", answer="42"),
    }[kind]


def silent(city: str):
    """The weather."""
    print(city)


def no_docstring(city: str):
    return city


class Weather: ...


number = 3
'''
for _head in (
    "no_hint(city, days: int = 1)",
    "hidden(*cities: str)",
    "unknown(city: Nowhere)",
    "no_schema(city: asyncio.Task)",
):
    TOOLS += f'\n\ndef {_head}:\n    """The weather."""\n    return "sunny"\n'


@pytest.fixture
def load(tmp_path: Path) -> Any:
    (tmp_path / "my_tools.py").write_text(TOOLS)

    def _load(*entries: str) -> Any:
        file = tmp_path / "tools.yaml"
        file.write_text("tools:\n" + "".join(f"  - {entry}\n" for entry in entries))
        return load_tools(file)

    return _load


def test_the_schema_comes_from_hints_and_docstring(load: Any) -> None:
    (spec,) = load("function: my_tools.py:weather")
    assert (spec.name, spec.description) == ("weather", "The weather in a city.\n\nIt knows this year alone.")
    place = spec.parameters.pop("$defs")["Place"]
    assert place["properties"] == {"city": {"type": "string"}, "country": {"type": "string", "default": "NL"}}
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "where."},
            "day": {"type": "string", "format": "date", "description": "the first day, as YYYY-MM-DD."},
            "days": {"type": "integer", "minimum": 1, "default": 1, "description": "how many days."},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "near": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["place", "day"],
    }


ABOUT = {"kind": "what to find, for example: a tree, or note: nothing.", "unit": "one of c: Celsius f: Fahrenheit"}
GOOGLE = '''
def find(kind: str, unit: str = "c") -> str:
    """Finds things.

    Args:
        kind: what to find, for
            example: a tree, or
            note: nothing.
        unit: one of
            c: Celsius
            f: Fahrenheit

    Warning:
        It is slow.
    """
    return kind
'''
REST = '''
def find(kind: str, unit: str = "c") -> str:
    """Finds things.

    :param kind: what to find, for
        example: a tree, or
        note: nothing.
    :type kind: str, which
        must not be empty
    :param str unit: one of
        c: Celsius
        f: Fahrenheit
    :raises ValueError: if there is
        nothing
    """
    return kind
'''


@pytest.mark.parametrize("source", [GOOGLE, REST], ids=["google", "rest"])
def test_a_description_of_several_lines_is_complete(tmp_path: Path, source: str) -> None:
    (tmp_path / "finding.py").write_text(source)
    (tmp_path / "tools.yaml").write_text("tools: [{function: finding.py:find}]")
    (spec,) = load_tools(tmp_path / "tools.yaml")
    properties = spec.parameters["properties"].items()
    assert (spec.description, {name: part["description"] for name, part in properties}) == ("Finds things.", ABOUT)


HINTED = '''
from typing import Annotated
from pydantic import Field

def find(kind: Annotated[str, Field(description="what")], unit: Annotated[str, Field(description="no")] = "c") -> str:
    """Finds things.

    Args:
        unit: which unit
    """
    return kind
'''


def test_a_hint_may_describe_its_argument(tmp_path: Path) -> None:
    (tmp_path / "finding.py").write_text(HINTED)
    (tmp_path / "tools.yaml").write_text("tools: [{function: finding.py:find}]")
    (spec,) = load_tools(tmp_path / "tools.yaml")
    assert spec.parameters["properties"]["kind"] == {"type": "string", "description": "what"}
    assert spec.parameters["properties"]["unit"]["description"] == "which unit", "the docstring overrides the hint"


def test_arguments_arrive_as_their_hints_say(load: Any) -> None:
    specs = load("function: my_tools.py:weather")
    given = {"place": {"city": "Delft"}, "day": "2026-05-01"}
    assert call(specs, "weather", given, {}).text == "Delft NL 01.05. 1 C None"
    assert call(specs, "weather", {**given, "near": ["The Hague"]}, {}).text.endswith("['The Hague']")
    for wrong in ({"day": "in May"}, {"days": 0}, {"unit": "K"}, {"month": 5}):
        assert call(specs, "weather", {**given, **wrong}, {}).status is ToolStatus.INVALID_ARGUMENTS, wrong


def test_a_coroutine_function_is_a_tool(load: Any) -> None:
    (spec,) = load("function: my_tools.py:double")
    assert spec.description == "Twice a number."
    assert spec.parameters["properties"]["number"] == {"type": "number", "description": "any number"}
    assert call([spec], "double", {"number": "1.5"}, {}).text == '{"twice": 3.0}'


@pytest.mark.parametrize(
    ("kind", "text", "reward", "metrics"),
    [
        ("reward", "text", 0.5, {"tries": 2}),
        ("only", "text", None, {}),
        ("list", '[1, "ä"]', None, {}),
        ("true", "true", None, {}),
        ("output", "the end", None, {}),
    ],
)
def test_what_a_function_may_return(load: Any, kind: str, text: str, reward: float | None, metrics: Any) -> None:
    result = call(load("function: my_tools.py:give"), "give", {"kind": kind}, {})
    assert (result.text, result.reward, result.metrics) == (text, reward, metrics)
    assert result.answer == ("42" if kind == "output" else None)


def test_the_entry_overrides_and_limits_the_function(load: Any) -> None:
    (spec,) = load(
        "{function: my_tools.py:no_hint, name: look, description: Look., parameters: {city: str}, timeout_s: 2}"
    )
    assert (spec.name, spec.description, spec.timeout_s, signature(spec)) == ("look", "Look.", 2, "look(city: string)")


def test_the_expanded_file_calls_the_same_function_from_elsewhere(load: Any, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    (other / "tools.yaml").write_text(expand(load("function: my_tools.py:double")))
    specs = load_tools(other / "tools.yaml")
    assert call(specs, "double", {"number": 2}, {}).text == '{"twice": 4.0}'


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("no_hint", "no_hint ({file}:{line}): the 'city' parameter has no type hint. Write, for example, `city: str`"),
        ("hidden", "hidden ({file}:{line}): *cities: 'str' has no name that the policy could use"),
        ("unknown", "unknown ({file}:{line}): a type hint cannot be read: name 'Nowhere' is not defined"),
        ("no_schema", "no_schema ({file}:{line}): a type hint has no JSON schema"),
        ("silent", "silent ({file}:{line}) returns nothing. Return the text that the policy reads"),
        ("Weather", "Weather is a class, not a function. Write class_name: instead"),
        ("number", "the object is a int, not a function"),
        ("wether", "has no 'wether'. Did you mean 'weather' or 'Weather'?"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_named_with_its_line(
    load: Any, tmp_path: Path, function: str, problem: str
) -> None:
    file = tmp_path / "my_tools.py"
    line = next((n for n, text in enumerate(TOOLS.splitlines(), 1) if text.startswith(f"def {function}(")), 0)
    with pytest.raises(ConfigError) as caught:
        load(f"function: my_tools.py:{function}")
    assert caught.value.key == f"{tmp_path / 'tools.yaml'}:2: tools[0] (my_tools.py:{function}).function"
    assert problem.format(file=file, line=line) in str(caught.value)


def test_a_tool_needs_a_description(load: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"description: my_tools\.py:no_docstring has no description\. Write .* docstring"
    ):
        load("function: my_tools.py:no_docstring")
    (spec,) = load("{function: my_tools.py:no_docstring, description: The weather.}")
    assert spec.description == "The weather."


def test_a_function_has_no_config_and_no_state(load: Any) -> None:
    with pytest.raises(ConfigError, match="config: this key is not allowed with function"):
        load("{function: my_tools.py:double, config: {a: 1}}")
    with pytest.raises(ConfigError, match="not a class"):
        load("{name: double, class_name: my_tools.py:double}")
    with pytest.raises(ConfigError, match=r"a function has no state to create, but the row has \['unit'\]"):
        call(load("function: my_tools.py:double"), "double", {"number": 1}, {"unit": "m"})
