"""Objects that a configuration names, and classes checked against their base.

What tools add to it is tested in tests/tools/test_loading.py.
"""

import inspect
from pathlib import Path
from typing import Any

import pytest

from agent_rl import Component, Hooks, Tool, User
from agent_rl.agents.users.llm_user import LLMUser
from agent_rl.errors import ConfigError
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_class, find_object, method_problem

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


class Misspelt(Hooks):
    async def before_trun(self, trajectory: Any) -> None: ...


class Inherits(Misspelt):
    pass


class NoUser(User):
    async def respond(self, message: str, trajectory: Any) -> Any: ...

    @classmethod
    def check_confg(cls, config: Any) -> None: ...


class NoMeasure(Component):
    async def measure(self, trajectory: Any) -> Any: ...

    async def cloze(self) -> None: ...


class Helpers(Hooks):
    """What a user may well write."""

    before = 3

    @property
    def after_turns(self) -> int:
        return 1

    async def before_turn(self, trajectory: Any) -> None:
        self.after_tools(trajectory)
        await getattr(self, "after_tool_")(trajectory, None, None)  # noqa: B009 - named as a text only

    def after_tools(self, trajectory: Any) -> None: ...

    async def after_tool_(self, trajectory: Any, call: Any, result: Any) -> None: ...

    async def after_turn(self, trajectory: Any, turn: Any, verbose: bool = False) -> None: ...

    async def _before_trun(self, trajectory: Any) -> None: ...

    def count(self, trajectory: Any) -> int:
        """Nothing calls it, and it looks like no hook."""
        return 0


class Goal(LLMUser):
    """Overrides what a class of the package adds to the base class."""

    def scores(self) -> float:
        return 0.0

    async def score(self, trajectory: Any) -> float:
        return self.scores()


@pytest.mark.parametrize(("cls", "base"), [(Helpers, Hooks), (Goal, User), (LLMUser, User)])
def test_helper_methods_are_the_users_own(cls: type, base: type) -> None:
    assert method_problem(cls, base) is None


class Blocking(Hooks):
    def before_turn(self, trajectory: Any) -> None: ...  # type: ignore[override]


class TooFew(Hooks):
    async def after_turn(self, trajectory: Any) -> None: ...  # type: ignore[override]


class OwnInit(User):
    def __init__(self) -> None: ...

    async def respond(self, message: str, trajectory: Any) -> Any: ...


class Search(Tool):
    def call(self, arguments: dict[str, Any], top_k: int) -> str:  # type: ignore[override]
        return ""


NEVER = "is a method that agent_rl never calls"


@pytest.mark.parametrize(
    ("cls", "base", "name", "says", "remedy"),
    [
        (Misspelt, Hooks, "Misspelt before_trun", NEVER, "'before_turn'"),
        (Inherits, Hooks, "Misspelt before_trun", NEVER, "'before_turn'"),
        (NoUser, User, "NoUser check_confg", NEVER, "'check_config'"),
        (NoMeasure, Component, "NoMeasure cloze", NEVER, "'close'"),
        (Blocking, Hooks, "Blocking before_turn", "is not `async def`", "async def before_turn(self, trajectory)"),
        (TooFew, Hooks, "TooFew after_turn", "cannot be called with (trajectory, turn)",
         "Write `async def after_turn(self, trajectory, turn)`"),
        (OwnInit, User, "OwnInit __init__", "cannot be called with (config, row)", "def __init__(self, config, row)"),
        (Search, Tool, "Search call", "missing a required argument: 'top_k'", "def call(self, arguments)"),
    ],
)  # fmt: skip
def test_method_that_cannot_work_is_refused_with_its_line_and_the_remedy(
    cls: type, base: type, name: str, says: str, remedy: str
) -> None:
    problem = method_problem(cls, base)
    assert problem is not None
    owner, method = name.split()  # not as code would name it
    line = inspect.getsourcelines(getattr(cls, method))[1]
    assert problem[0].startswith(f"{owner}.{method} ({__file__}:{line}) ")
    assert says in problem[0]
    assert remedy in problem[1]
