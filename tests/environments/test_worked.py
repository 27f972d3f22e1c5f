"""The expert's episodes, their spoiled copies, and the world of the cold start."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from typing import Any

import pytest

from agent_rl import Environment
from agent_rl.environments import EnvironmentType
from agent_rl.environments.kind import environment_rows, row_values
from agent_rl.environments.worked import (
    ExpertTurn,
    _with_other_digits,
    expert_turns,
    habit_shares,
    require_expert,
    worked_world,
)
from agent_rl.errors import ConfigError, ToolError
from tests.environments.sessions import LOCKERS, lockers


class Kitchen(Environment):
    """Cook."""

    def rows(self, split: str, seed: int) -> Any:
        for number in range(16):
            yield {"prompt": f"Cook dish {number}.", "dish": number}

    def reset(self, dish: int = 0, **row: Any) -> None:
        self.dish, self.log = dish, []

    def cut(self, what: str, pieces: list[int] | None = None) -> str:
        """Cut something."""
        self.log.append(what)
        return "cut"

    async def boil(self, what: str) -> str:
        """Boil something, which is cut first."""
        await asyncio.sleep(0)
        self.cut(what)
        return "boiled"

    def serve(self, dish: int) -> str:
        """Serve the dish."""
        self.cut("bread")
        self.done = dish == self.dish
        if not self.done:
            raise ToolError("wrong dish")
        self.reward_turn(0.5)
        return "served"

    def step(self, message: str) -> str | None:
        return None if message == "bye" else f"chef heard {message}"

    def get_reward(self) -> float:
        return 0.5 * (len(self.log) > 1)

    async def solve(self) -> str:
        pieces = [1]
        self.cut("onion", pieces)
        pieces.append(2)
        await self.boil(what="rice")
        assert self.say("hungry?") == "chef heard hungry?"
        self.serve(self.dish)
        return "enjoy"


def kind_of(cls: type[Environment], **methods: Any) -> EnvironmentType:
    return EnvironmentType(cls.__name__.lower(), "", type(cls.__name__, (cls,), {"__doc__": cls.__doc__, **methods}))


def rows_of(kind: EnvironmentType, split: str = "train") -> list[dict[str, Any]]:
    return environment_rows(kind, split, seed=0)


def test_each_outer_call_of_the_expert_is_a_step_with_its_arguments_by_name() -> None:
    assert expert_turns(kind_of(Kitchen), {"dish": 3}) == (
        ExpertTurn("cut", {"what": "onion", "pieces": [1]}),
        ExpertTurn("boil", {"what": "rice"}),
        ExpertTurn("", {}, "hungry?"),
        ExpertTurn("serve", {"dish": 3}),
        ExpertTurn("", {}, "enjoy"),
    )


def test_the_expert_of_the_documentation() -> None:
    look_up, open_, answer = expert_turns(lockers(), {"number": 182, "code": 5515})
    assert (look_up, open_) == (
        ExpertTurn("look_up", {"number": 182}),
        ExpertTurn("open", {"number": 182, "code": 5515}),
    )
    assert answer == ExpertTurn("", {}, "done")


def test_an_expert_that_raises_names_its_line() -> None:
    def solve(self: Kitchen) -> None:
        self.serve(1000)

    with pytest.raises(ConfigError, match=r"Kitchen\.solve failed at .*test_worked\.py:\d+: ToolError: wrong dish"):
        expert_turns(kind_of(Kitchen, solve=solve), {"dish": 3})


def test_an_expert_says_nothing_where_nobody_answers() -> None:
    def solve(self: Any) -> None:
        self.say("hello")

    with pytest.raises(ConfigError, match=r"Lockers\.solve failed at .*the class has no step"):
        expert_turns(kind_of(lockers().cls, solve=solve), {"number": 1, "code": 2})


def test_an_environment_without_an_expert_is_refused() -> None:
    kind = kind_of(Kitchen, solve=Environment.solve)
    for call in (lambda: require_expert(kind), lambda: expert_turns(kind, {})):
        with pytest.raises(ConfigError, match=r"has no solve.*--model"):
            call()


def test_the_mix_succeeds_in_about_half_of_the_episodes() -> None:
    kind = lockers()
    shares = habit_shares(kind, rows_of(kind))
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.05)
    assert shares.keys() == {"oracle", "left_out", "other_argument", "at_once", "unreadable"}
    assert 0.2 <= shares["oracle"] <= 0.4


def test_rewards_of_turns_count_for_the_expert() -> None:
    kind = kind_of(Kitchen, get_reward=lambda self: 0.0)
    shares = habit_shares(kind, rows_of(kind))
    assert shares["oracle"] >= 0.2


def test_an_expert_that_is_no_better_than_its_spoiled_copies_is_refused() -> None:
    kind = kind_of(lockers().cls, get_reward=lambda self: 1.0)
    with pytest.raises(ConfigError, match=r"Lockers\.solve \(.*lockers\.py:\d+\): solve has a mean reward of 1\.00"):
        habit_shares(kind, rows_of(kind))


def test_habits_are_the_expert_and_spoiled_copies_of_it() -> None:
    world = worked_world({"lockers": str(LOCKERS)})
    rows = [{**row, "agent_name": "react_agent"} for row in rows_of(lockers())[:20]]
    values, rng = row_values(rows[0]), random.Random(0)
    turns = {name: list(habit(rows[0], rng)) for name, habit in world.habits.items()}
    look_up = f'Thought: Step by step.\nAction: look_up\nAction Input: {{"number": {values["number"]}}}'
    assert turns["oracle"][0] == look_up
    assert [len(turns[name]) for name in ("oracle", "left_out", "at_once", "unreadable")] == [3, 2, 1, 2]
    assert turns["oracle"][-1] == "Thought: Step by step.\nFinal Answer: done"
    assert turns["at_once"] == ["Thought: No need.\nFinal Answer: done"]
    assert turns["unreadable"][0] == "Thought: Be quick.\nAction"
    spoiled = [list(world.habits["other_argument"](row, rng)) for row in rows]
    right = [list(world.habits["oracle"](row, rng)) for row in rows]
    differing = [
        sum(a.split("\n")[1:] != b.split("\n")[1:] for a, b in zip(*pair, strict=True))
        for pair in zip(spoiled, right, strict=True)
    ]
    assert set(differing[5:]) == {1}


def test_habits_are_written_for_the_rows_agent() -> None:
    world = worked_world({"lockers": str(LOCKERS)})
    row = {**rows_of(lockers())[0], "agent_name": "tool_call_agent"}
    first, *_, answer = world.habits["oracle"](row, random.Random(0))
    assert '"name": "look_up"' in first
    assert "Action:" not in first
    assert answer == "done"


def test_copies_with_other_digits_have_no_prompt_of_the_test_rows() -> None:
    kind = lockers()
    world, train = worked_world({"lockers": str(LOCKERS)}), rows_of(kind)[:300]
    test = [
        {**row, "prompt": [row["prompt"][0], {"role": "user", "content": f"Open locker {number}."}]}
        for row, number in zip(itertools.cycle(train), range(100, 1000, 2))
    ]
    copies = world.more(train, test)
    assert len(copies) > 100
    prompts = {json.dumps(row["prompt"]) for row in test}
    assert not prompts & {json.dumps(row["prompt"]) for row in copies}
    for copy in copies[:50]:
        values = row_values(copy)
        assert copy["prompt"][1]["content"] == values["prompt"] == f"Open locker {values['number']}."
        assert copy["prompt"][0] == train[0]["prompt"][0]


def test_there_are_no_copies_where_other_digits_are_another_task() -> None:
    def reset(self: Any, number: int, code: int, **row: Any) -> None:
        if number % 2:
            raise ToolError("only even numbers")
        self.number, self.code, self.is_open = number, code, False

    kind = kind_of(lockers().cls, reset=reset)
    assert _with_other_digits({"lockers": kind}, rows_of(kind)[:60], set()) == []


def test_the_version_of_the_world_is_that_of_its_files(tmp_path: Any) -> None:
    file = tmp_path / "boxes.py"
    file.write_text(LOCKERS.read_text().replace("Lockers", "Boxes"))
    versions = {worked_world(names).version for names in ({"a": str(file)}, {"a": str(file)}, {"a": str(LOCKERS)})}
    assert len(versions) == 2


def test_the_version_of_the_world_covers_base_classes_in_other_files(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = set()
    for answer in ("opened", "done"):
        folder = tmp_path / answer
        folder.mkdir()
        (folder / "locker_base.py").write_text(LOCKERS.read_text().replace("done", answer))
        (folder / "task.py").write_text('from locker_base import Lockers\nclass Task(Lockers):\n    """Open it."""\n')
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, "locker_base", raising=False)
        versions.add(worked_world({"task": f"{folder / 'task.py'}:Task"}).version)
    assert len(versions) == 2
