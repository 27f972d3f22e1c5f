"""What becomes a tool and what a class is loaded from. Classes that cannot work: see `test_mistakes`."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest

from agent_rl import Environment
from agent_rl.environments import EnvironmentType, load_environment
from agent_rl.environments.kind import tool_names
from agent_rl.errors import ConfigError
from agent_rl.tools.inspection import signature
from tests.environments.sessions import LOCKERS, lockers, run, session


class Desk(Environment):
    """Work at the desk."""

    SIZES = {"small": 1}  # noqa: RUF012 - a constant, which is allowed
    kinds = ("pen", "ink")

    def look(self, where: Literal["left", "right"], deep: bool = False) -> str:
        """Look into a drawer.

        Args:
            where: the side.
            deep: whether to look behind.
        """
        return f"{where} {deep}"

    @staticmethod
    def clock() -> str:
        """Tell the time."""
        return "noon"

    @classmethod
    def count(cls) -> str:
        """Count the kinds of things."""
        return str(len(cls.kinds))

    async def wait(self, until: date) -> str:
        """Wait."""
        return until.isoformat()

    def _hidden(self) -> str:
        return ""

    @property
    def size(self) -> int:
        return 1

    def get_reward(self) -> float:
        return 0.0


class BigDesk(Desk):
    """Work at the big desk."""

    def search(self) -> str:
        """Search."""
        return "nothing"

    def clock(self) -> str:  # type: ignore[override]
        """Tell the time at the big desk."""
        return "evening"


def test_public_methods_are_tools_static_and_inherited_ones_too() -> None:
    assert tool_names(Desk) == ["look", "clock", "count", "wait"]
    assert tool_names(BigDesk) == ["look", "clock", "count", "wait", "search"]
    kind = EnvironmentType("desk", "", BigDesk)
    shown = ["look(where: string, deep?: boolean)", "clock()", "count()", "wait(until: string)", "search()"]
    assert list(map(signature, kind.specs)) == shown
    look, clock = kind.specs[:2]
    assert (look.description, clock.description) == ("Look into a drawer.", "Tell the time at the big desk.")
    assert look.parameters["properties"]["where"] == {
        "type": "string",
        "enum": ["left", "right"],
        "description": "the side.",
    }


def test_every_kind_of_method_can_be_called() -> None:
    calls = {"look": {"where": "left"}, "clock": {}, "count": {}, "wait": {"until": "2024-02-29"}, "search": {}}

    async def work(world: Any) -> list[str]:
        return [(await world.call(name, arguments)).text for name, arguments in calls.items()]

    assert run(session(BigDesk), work) == ["left False", "evening", "2", "2024-02-29", "nothing"]


def test_a_file_a_class_in_it_and_an_import_path_name_the_same_class(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = lockers()
    assert kind.target == f"{LOCKERS}:Lockers"
    monkeypatch.chdir(LOCKERS.parent)
    assert load_environment("lockers", "lockers.py:Lockers").cls is kind.cls
    assert load_environment("lockers", "lockers.py").target == kind.target
    assert load_environment("own", "recipes.lockers.lockers.Lockers").cls.__name__ == "Lockers"


def test_optional_methods() -> None:
    kind = lockers()
    assert [kind.has(method) for method in ("solve", "reset", "step", "state_key")] == [True, True, False, False]
    assert not kind.rewards_turns


def test_a_class_that_rewards_turns_is_recognised_through_its_bases() -> None:
    class Generous(Desk):
        def give(self) -> str:
            """Give."""
            self.reward_turn(1.0)
            return "given"

    class Heir(Generous):
        """Inherit."""

    assert EnvironmentType("heir", "", Heir).rewards_turns
    assert not EnvironmentType("desk", "", Desk).rewards_turns


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no/such.py", r"agent_rl\.environments\.desk: there is no file .*no/such\.py"),
        ("recipes.lockers.lockers.Locker", r"has no 'Locker'. Did you mean 'Lockers'"),
        ("tests.environments.sessions.LOCKERS", "is not a subclass of agent_rl.Environment"),
    ],
)
def test_what_cannot_be_loaded_names_the_key(target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_environment("desk", target)
    assert caught.value.key == "agent_rl.environments.desk"


def test_helpers_next_to_the_file_can_be_imported_by_it(tmp_path: Path) -> None:
    text = LOCKERS.read_text().replace("class Lockers", "from tests.environments.sessions import say\n\n\nclass Boxes")
    (tmp_path / "boxes.py").write_text(text)
    assert load_environment("boxes", str(tmp_path / "boxes.py")).cls.__name__ == "Boxes"
