"""Objects that a configuration names; what tools add to it is tested in tests/tools/test_loading.py."""

from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_class, find_object

PLACE = Place("agent_rl.hooks")


def test_a_file_is_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("made = object()\n")
    assert find_object("mine.py:made", PLACE, tmp_path) is find_object(f"{tmp_path}/mine.py:made", PLACE)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("pathlib.Pat", "'pathlib' has no 'Pat'. Did you mean 'Path'"),
        ("no_such_module_of_mine.Name", "there is no module 'no_such_module_of_mine'"),
        ("Name", "not an import path"),
        ("missing.py:Name", "there is no file"),
    ],
)
def test_the_error_names_the_key_and_what_is_missing(path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^agent_rl\.hooks: .*{message}"):
        find_object(path, PLACE, tmp_path)


def test_a_class_must_be_of_the_base_and_complete() -> None:
    assert find_class("collections.OrderedDict", dict, PLACE)
    with pytest.raises(ConfigError, match=r"'pathlib.Path' is not a subclass of builtins.dict. Derive it from dict"):
        find_class("pathlib.Path", dict, PLACE)
    with pytest.raises(ConfigError, match=r"'os\.getcwd' is a builtin_function_or_method, not a subclass"):
        find_class("os.getcwd", (dict, list), PLACE)
    with pytest.raises(ConfigError, match="does not define __getitem__"):
        find_class("collections.abc.Sequence", object, PLACE)


def test_a_file_that_fails_is_tried_again_and_its_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import json\n\njson.loads('[')\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"failed at .*/mine\.py:3: JSONDecodeError: "):
            find_object("mine.py:made", PLACE, tmp_path)


def test_the_line_is_in_the_last_of_the_users_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "outer_of_mine.py").write_text("import inner_of_mine\n")
    (tmp_path / "inner_of_mine.py").write_text("\nraise RuntimeError('no licence')\n")
    with pytest.raises(ConfigError, match=r"failed at .*/inner_of_mine\.py:2: RuntimeError: no licence"):
        find_object("outer_of_mine.made", PLACE)
