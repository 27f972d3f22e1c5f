"""Objects that a configuration names; what tools add to it is tested in tests/tools/test_loading.py."""

from pathlib import Path

import pytest

from agent_rl.settings.importing import ClassNameError, find_object


def test_a_file_is_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("made = object()\n")
    assert find_object("mine.py:made", tmp_path) is find_object(f"{tmp_path}/mine.py:made", Path("/"))


def test_a_dotted_path() -> None:
    assert find_object("pathlib.Path", Path()) is Path


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("pathlib.Pat", "'pathlib' has no 'Pat'. Did you mean 'Path'"),
        ("no_such_module_of_mine.Name", "there is no module 'no_such_module_of_mine'"),
        ("Name", "not an import path"),
        ("missing.py:Name", "there is no file"),
    ],
)
def test_what_cannot_be_found_is_said(path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ClassNameError, match=message):
        find_object(path, tmp_path)


def test_a_file_that_fails_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise RuntimeError('no licence')\n")
    for _ in range(2):
        with pytest.raises(ClassNameError, match="failed: RuntimeError: no licence"):
            find_object("mine.py:made", tmp_path)
