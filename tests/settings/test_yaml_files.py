"""YAML files are read with interpolations; errors name the file and the line."""

from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.settings.yaml_files import line_of, parts_of, read_yaml


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
        ("3", r"a\.yaml: it cannot be read: .*Pass a readable YAML file"),
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
