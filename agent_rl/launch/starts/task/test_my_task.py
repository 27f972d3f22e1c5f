"""Tests of the task and its expert; run them with `pytest my_task`."""

from pathlib import Path

from agent_rl.environments import load_environment
from agent_rl.environments.worked import ExpertTurn, expert_turns

FILE = Path(__file__).with_name("my_task.py")


def test_the_expert_looks_up_the_shelf_first() -> None:
    turns = expert_turns(load_environment("my_task", str(FILE)), {"parcel": 17, "shelf": 4})
    assert turns == (
        ExpertTurn("look_up", {"parcel": 17}),
        ExpertTurn("fetch", {"shelf": 4}),
        ExpertTurn("", {}, "done"),
    )
