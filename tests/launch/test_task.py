"""A file becomes a recipe: its files, its reward, and the sizes for a CPU."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_rl.data import read_parquet
from agent_rl.errors import ConfigError
from agent_rl.launch import recipes, task
from agent_rl.launch.composition import compose
from agent_rl.settings import AgentRLSettings
from tests.environments.sessions import LOCKERS

pytestmark = pytest.mark.usefixtures("here")

WALK = '''\
from agent_rl import Environment


class Walk(Environment):
    """Walk."""

    def rows(self, split, seed):
        for number in range(3):
            yield {"prompt": f"Walk {number}."}

    def reset(self, **row):
        self.way = []

    def go(self, steps: int) -> str:
        """Go."""
        self.way.append(steps)
        self.reward_turn(0.125)
        return "gone"

    def get_reward(self):
        return {"far": float(len(self.way)), "once": float(len(self.way) == 1)}


class Run(Walk):
    """Run."""
'''


@pytest.fixture
def walk(tmp_path: Path) -> str:
    """Two classes in a file of their own."""
    (tmp_path / "walk.py").write_text(WALK)
    return f"{tmp_path}/walk.py:Walk"


@pytest.fixture
def lockers(tmp_path: Path) -> str:
    """A copy of the example, with fewer rows."""
    (tmp_path / "lockers.py").write_text(LOCKERS.read_text().replace("2000", "120").replace("256", "16"))
    return f"{tmp_path}/lockers.py"


def written(folder: Path, name: str = "config.yaml") -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / name).read_text())
    return content


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("lockers.py", True), ("lockers.py + rows.parquet", True), ("a/b.py:Class", True), ("a.py,b.py:Class", True),
        ("quickstart", False), ("my.pyproject/recipe", False), ("a.py,quickstart", False),
        ("recipes/quickstart", False),
    ],
)  # fmt: skip
def test_which_arguments_are_tasks(argument: str, expected: bool) -> None:
    assert task.is_task(argument) is expected


def test_a_file_becomes_a_recipe_in_the_runs_folder(lockers: str, tmp_path: Path) -> None:
    folder = task.task_recipe(lockers)
    assert folder == tmp_path / "outputs/lockers/recipe"
    names = ["config.yaml", "size/0.5b.yaml", "size/cpu.yaml", "size/own_model.yaml", "test.parquet", "train.parquet"]
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*.*")) == names
    assert [len(read_parquet(folder / f"{split}.parquet")) for split in ("train", "test")] == [120, 16]
    config = written(folder)
    assert config["agent_rl"] == {
        "environments": {"lockers": f"{lockers}:Lockers"}, "reward": {"correctness": {"weight": 1.0}}
    }  # fmt: skip
    assert config["trainer"]["experiment_name"] == "lockers"


def test_the_recipe_is_found_by_the_name_of_the_file(lockers: str) -> None:
    assert recipes.recipe_folder(lockers) == task.task_recipe(lockers)


def test_the_cold_start_mixes_the_expert_with_spoiled_copies(lockers: str) -> None:
    size = written(task.task_recipe(lockers), "size/cpu.yaml")
    cold_start = size["agent_rl"]["cold_start"]
    first, second = cold_start["stages"]
    assert first["mix"] == {"oracle": 1.0}
    assert sum(second["mix"].values()) == pytest.approx(1.0, abs=0.05)
    assert (cold_start["world"], cold_start["train_rows"]) == ("environment", 120)
    assert size["actor_rollout_ref"]["model"]["path"] == "outputs/lockers/cold_start/model"


def test_prompts_fit_with_tools_and_the_text_of_reset(lockers: str, walk: str, tmp_path: Path) -> None:
    def lengths(target: str) -> list[int]:
        folder = task.task_recipe(target)
        sizes = [written(folder, f"size/{size}.yaml") for size in ("cpu", "own_model")]
        return [size["data"]["max_prompt_length"] for size in sizes]

    assert lengths(lockers) == [512, 1024]
    assert lengths(walk) == [512, 512]
    text = WALK.replace("self.way = []", "self.way = []\n        return 1000 * 'far '")
    (tmp_path / "far.py").write_text(text)
    assert lengths("far.py:Walk") == [4608, 4608]


def test_named_parts_and_rewards_of_turns_become_components(walk: str) -> None:
    folder = task.task_recipe(walk)
    assert folder.parent.name == "walk_walk"
    assert written(folder)["agent_rl"]["reward"] == {
        "correctness": {"weight": 0.0, "scorer": "none"},
        "components": {
            "far": {"kind": "environment", "weight": 1.0},
            "once": {"kind": "environment", "weight": 1.0},
            "turns": {"kind": "tool_rewards", "weight": 1.0, "config": {"repeats": True}},
        },
    }
    assert "cold_start" not in written(folder, "size/cpu.yaml").get("agent_rl", {})


def test_several_environments_train_in_one_run(lockers: str, walk: str) -> None:
    folder = task.task_recipe(f"{lockers},{walk},{walk.replace('Walk', 'Run')}")
    config = written(folder)["agent_rl"]
    assert list(config["environments"]) == ["lockers", "walk_walk", "walk_run"]
    rewards = config["reward"]["per_data_source"]
    assert rewards["lockers"] == {"correctness": {"weight": 1.0}}
    assert set(rewards["walk_run"]["components"]) == {"far", "once", "turns"}
    rows = read_parquet(folder / "train.parquet")
    assert {row["data_source"]: row["extra_info"]["environment"] for row in rows} == {
        name: name for name in config["environments"]
    }
    assert rows[0]["prompt"][0]["content"] != rows[-1]["prompt"][0]["content"] == "Run."


def test_two_environments_of_one_name_are_refused(lockers: str, tmp_path: Path) -> None:
    other = tmp_path / "other/lockers.py"
    other.parent.mkdir()
    other.write_text(LOCKERS.read_text())
    with pytest.raises(ConfigError, match=r"two environments have the name lockers\. Rename a file"):
        task.task_recipe(f"{lockers},{other}")


def test_a_task_without_an_expert_is_refused_for_a_small_model(lockers: str, walk: str) -> None:
    task.require_experts(lockers)
    with pytest.raises(ConfigError, match=r"Walk .* has no solve"):
        task.require_experts(f"{lockers},{walk}")


def test_a_bad_expert_matters_only_for_a_small_model(tmp_path: Path, lockers: str) -> None:
    (tmp_path / "bad.py").write_text(LOCKERS.read_text().replace('return "done"', "raise KeyError"))
    assert "cold_start" not in written(task.task_recipe("bad.py"), "size/cpu.yaml").get("agent_rl", {})
    with pytest.raises(ConfigError, match=r"Lockers\.solve failed at .*bad\.py:\d+"):
        task.require_experts("bad.py")


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", ""])
def test_the_recipe_composes(lockers: str, walk: str, platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", platform)
    for targets in (lockers, f"{lockers},{walk}"):
        settings = AgentRLSettings.from_config(config := compose(targets, ["algo=rloo"]))
        assert list(settings.environments) == [file.partition("/")[0] for file in settings.environments]
        assert config.actor_rollout_ref.rollout.n == 8
        assert config.data.train_files == str(task.task_recipe(targets) / "train.parquet")
        assert (settings.cold_start is not None) == (platform == "cpu" and targets == lockers)


@pytest.mark.slow
def test_a_model_of_the_user_needs_no_cold_start(lockers: str) -> None:
    config = compose(lockers, ["size=own_model", "actor_rollout_ref.model.path=mine"])
    assert AgentRLSettings.from_config(config).cold_start is None
    assert (config.actor_rollout_ref.model.path, config.trainer.total_training_steps) == ("mine", 20)
