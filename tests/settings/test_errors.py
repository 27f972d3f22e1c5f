"""Every way in which a value can be wrong becomes one sentence with place, value, expectation and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, field_validator

from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.errors import InvalidValueError, Place, Section, line_of, parts_of, read_yaml, validated


class Limits(Section):
    rows: int = Field(default=5, ge=1)


class Needed(Section):
    file: str


class Model(Section):
    path: str
    limits: Limits = Limits()
    names: tuple[str, ...] = ()
    pair: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    scale: Literal["group", "tanh"] | Annotated[list[float], Field(min_length=2, max_length=2)] = "group"
    weight: float | Limits = 1.0
    share: float = Field(default=0.5, ge=0, le=1)
    is_on: bool = False
    word: str = Field(default="a", min_length=1)
    needed: Needed | None = None
    by_name: dict[str, Limits] = Field(default_factory=dict)
    either: str | dict[str, Any] | None = None
    even: int = 2
    range: tuple[float, float] | None = None

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise InvalidValueError("an odd number", "Write an even one")
        if value > 100:
            raise ValueError("too large")
        return value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": None}, "path: expected text, got null. Change the value"),
        ({"needed": {}}, "needed.file: missing. Write `file: ...`"),
        ({"range": [1]}, "range[1]: missing in the list [1]. Add the element"),
        ({"range": []}, "range[0]: missing in the list []. Add the element"),
        ({"by_name": None}, "by_name: expected a mapping, got null. Change the value or remove the key"),
        ({"by_name": ["a"]}, "by_name: expected a mapping, got ['a']. Change the value or remove the key"),
        ({"pth": "a"}, "pth: unknown key (value 'a'). Did you mean 'path'?"),
        ({"names": [1]}, "names[0]: expected text, got 1"),
        ({"pair": [1]}, "pair: expected a list of at least 2, got [1]. Change the value or remove the key"),
        ({"scale": "tan"}, "scale: expected `group` or `tanh` or a list, got 'tan'. Did you mean 'tanh'?"),
        ({"weight": "much"}, "weight: expected a number or a mapping, got 'much'. Write, for example, `weight: 1.0`"),
        ({"weight": {"rows": 0}}, "weight.rows: expected a number of at least 1, got 0"),
        ({"weight": {"row": 1}}, "weight.row: unknown key (value 1). Did you mean 'rows'?"),
        ({"weight": float("nan")}, "weight: expected a finite number or a mapping, got nan"),
        ({"share": 2}, "share: expected a number of at most 1, got 2. Write, for example, `share: 0.5`, or remove"),
        ({"is_on": "maybe"}, "is_on: expected true or false, got 'maybe'. Write, for example, `is_on: false`"),
        ({"word": ""}, "word: expected text of at least 1 characters, got ''. Write, for example, `word: \"a\"`"),
        ({"limits": 3}, "limits: expected a mapping, got 3. Write a mapping with these keys: rows"),
        ({"limits": {"rows": 1.5}}, "limits.rows: expected a whole number, got 1.5. Write, for example, `rows: 5`"),
        ({"by_name": {"a": {"rows": 0}}}, "by_name.a.rows: expected a number of at least 1, got 0"),
        ({"either": 3}, "either: expected text or a mapping, got 3"),
        ({"even": 3}, "even: an odd number (value 3). Write an even one"),
        ({"even": 102}, "even: too large (value 102). Change the value or remove the key"),
    ],
)
def test_a_wrong_value_gets_one_sentence_with_an_example(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validated(Model, {"path": "a", **given} if "pth" not in given else given, Place("section"))
    assert str(caught.value).startswith(f"section.{message}")


def test_the_line_of_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("trainer: {}\nagent_rl:\n  react:\n    # ours\n    examples: default\n")
    with pytest.raises(ConfigError, match=rf"^{file}:5: agent_rl\.react\.examples: expected a list"):
        validated(AgentRLSettings, {"react": {"examples": "default"}}, Place(file=file) / "agent_rl")
    with pytest.raises(ConfigError, match=rf"^{file}:3: agent_rl\.react\.parsing: "):  # the innermost that is there
        validated(AgentRLSettings, {"react": {"parsing": "lax"}}, Place(file=file) / "agent_rl")


def test_an_error_of_a_check_gets_its_place_in_front(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text("tools:\n- name: search\n  config:\n    top:\n    - 3\n")
    place = (Place(file=file) / "tools" / 0).labelled("search") / "config"
    with pytest.raises(ConfigError, match=rf"^{file}:5: tools\[0\] \(search\)\.config\.top\[0\]: too few. Write more"):
        with place.around():
            raise ConfigError("top[0]", "too few", "Write more")
    with pytest.raises(ConfigError, match=rf"^{file}:3: tools\[0\] \(search\)\.config: too few. See there"):
        with place.around("See there"):
            raise ValueError("too few.")


def test_interpolations_are_resolved_and_words_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PORT", "9000")
    path = tmp_path / "a.yaml"
    path.write_text("port: ${oc.env:MY_PORT}\nnested: {a: 1, b: 2}\n")
    assert read_yaml(path, ["nested.a=3"]) == {"port": "9000", "nested": {"a": 3, "b": 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [\n", r"a\.yaml:3:1: invalid YAML: expected the node content"),
        ("a: 1\na: 2\n", r"a\.yaml:2:1: invalid YAML: found duplicate key a"),
        ("a: 1\nb:\n  c: ${oc.env:NOT_SET_ANYWHERE}\n", r"a\.yaml:3: b\.c: .*NOT_SET_ANYWHERE.*Set the variable"),
        ("3", r"a\.yaml: the file cannot be read: .*Pass a readable YAML file"),
    ],
)
def test_the_line_of_a_mistake_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_yaml(tmp_path / "a.yaml")


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").touch()
    with pytest.raises(ConfigError, match=r"no such file\. Did you mean 'tools\.yaml'"):
        read_yaml(tmp_path / "tool.yaml")


def test_the_line_is_that_of_the_innermost_key(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("tools:\n  - name: a\n    config:\n      x: 1\n  - name: b\n")
    assert line_of(path, parts_of("tools[0] (a).config.x")) == 4
    assert line_of(path, ["tools", 1, "name"]) == 5
    assert line_of(path, ["tools", 0, "config", "y"]) == 3
    assert line_of(path, ["other"]) is None
    assert line_of(tmp_path / "none.yaml", ["tools"]) is None
