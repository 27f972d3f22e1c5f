"""Every world gives the same rows for a seed, keeps its splits apart, and can be solved."""

import json
import random

import pytest

from agent_rl.data import check_rows
from agent_rl.data.worlds import load_world, world_names
from agent_rl.errors import ConfigError

COUNTS = {"test": 30, "episodes": 40, "train": 50}


@pytest.mark.parametrize("name", world_names())
def test_a_world_keeps_its_promises(name, tmp_path):
    world = load_world(name)
    assert {"oracle", "random", *world.baselines} <= world.habits.keys()
    splits = world.write(tmp_path, 3, COUNTS)
    assert {split: len(rows) for split, rows in splits.items()} == COUNTS
    for rows in splits.values():
        check_rows(rows, source=name)
    assert all(row["data_source"] == f"agent_rl/{name}" for row in splits["train"])
    assert json.dumps(world.write(tmp_path, 3, {**COUNTS, "train": 10})["test"]) == json.dumps(splits["test"])

    def asked(split):
        return {json.dumps([row["prompt"], row["reward_model"]], sort_keys=True) for row in splits[split]}

    assert not asked("test") & (asked("train") | asked("episodes"))
    assert not asked("train") & asked("episodes")


@pytest.mark.parametrize("name", world_names())
def test_a_habit_is_the_same_for_a_seed(name, tmp_path):
    world = load_world(name)
    row = world.write(tmp_path, 0, {"test": 1})["test"][0]
    for habit in world.habits.values():
        first, second = (next(habit(row, random.Random(5))) for _ in range(2))
        assert first == second


def test_an_unknown_world_is_named():
    with pytest.raises(ConfigError, match="Did you mean 'text_to_sql'"):
        load_world("text_to_sq")
