import asyncio
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_rl.data import arithmetic
from agent_rl.errors import ConfigError
from agent_rl.evaluation.recipe import recipe_values, run_values, split_words
from agent_rl.evaluation.runner import Evaluation
from agent_rl.evaluation.settings import EvaluationSettings, read_settings
from agent_rl.launch.composition import compose, resolved
from agent_rl.launch.recipes import copy_recipe
from agent_rl.trajectory import StopReason, Trajectory, Turn


@pytest.fixture
def recipe(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a recipe with its own data, whose rows name no agent."""
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    copy_recipe("gsm8k_calculator", folder := here / "mine")
    rows = [arithmetic.to_row(problem, "test", i) for i, problem in enumerate(arithmetic.generate(0, 3))]
    pq.write_table(pa.Table.from_pylist(rows).drop_columns(["agent_name"]), folder / "test.parquet")
    (folder / "train.parquet").touch()
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace("${oc.env:HOME}/data/gsm8k_multiturn_w_tool/", ""))
    return folder


def read(recipe: Path, *words: str, **flags: object) -> EvaluationSettings:
    return read_settings({"model": "m", **flags}, words, recipe_values(str(recipe)))


def test_a_recipe_gives_agent_tools_limits_reward_and_data(recipe: Path) -> None:
    settings = read(recipe)
    assert settings.data == str(recipe / "test.parquet")
    assert settings.tools == str(recipe / "calculator.yaml")
    assert (settings.loop, settings.default_loop, settings.n, settings.limit) == (None, "react_agent", 1, None)
    assert (settings.sampling.temperature, settings.sampling.top_k) == (0, None)
    assert (settings.sampling.max_response_tokens, settings.multi_turn.max_assistant_turns) == (2048, 8)
    assert settings.agent_rl.reward.efficiency.free_calls == 3
    evaluation = Evaluation.load(settings)
    assert [evaluation.agent(row) for row in evaluation.rows] == ["react_agent"] * 3


def test_flags_and_words_win_over_the_recipe(recipe: Path) -> None:
    words = ["sampling.temperature=1", "agent_rl.reward.efficiency.free_calls=1", "limit=2"]
    settings = read(recipe, *words, n=4, data="other.parquet")
    assert (settings.data, settings.n, settings.limit, settings.sampling.temperature) == ("other.parquet", 4, 2, 1)
    reward = settings.agent_rl.reward
    assert (reward.efficiency.free_calls, reward.efficiency.penalty) == (1, 0.1)


def test_a_run_is_evaluated_as_it_was_trained(recipe: Path, tmp_path: Path) -> None:
    words = ["agent_rl.reward.efficiency.free_calls=7", f"trainer.default_local_dir={tmp_path}/checkpoints"]
    about = {"configuration": resolved(compose(str(recipe), words)), "files": {"--script": [{"path": "mine.py"}]}}
    with pytest.raises(ConfigError, match=r"run\.json cannot be read"):
        run_values(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(ConfigError, match=r"has saved no checkpoint.*trainer\.save_freq=N"):
        run_values(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/latest_checkpointed_iteration.txt").write_text("2")
    settings = read_settings({"n": 3}, ["limit=2"], run_values(tmp_path))
    assert (settings.model, settings.n, settings.limit) == (f"{tmp_path}/checkpoints", 3, 2)
    assert (settings.data, settings.script) == (str(recipe / "test.parquet"), "mine.py")
    assert settings.agent_rl.reward.efficiency.free_calls == 7


def test_words_that_choose_an_option_of_the_recipe_compose_it() -> None:
    words = ["size=smollm2", "seed=1", "algo=gspo", "data=other.parquet", "sampling.temperature=0"]
    choices, settings = split_words("svamp_calculator", words)
    assert (choices, settings) == (words[0:3:2], words[1:2] + words[3:])
    greedy = recipe_values("svamp_calculator")["sampling"]["temperature"]
    assert (greedy, recipe_values("svamp_calculator", choices)["sampling"]["temperature"]) == (0, 1)
    with pytest.raises(ConfigError, match=r"size: there is no option 'smol'.*'smollm2'"):
        recipe_values("svamp_calculator", ["size=smol"])


def test_a_reward_that_only_the_trainer_computes_is_refused(recipe: Path) -> None:
    with open(recipe / "config.yaml", "a") as file:
        file.write("\nreward: {reward_manager: {name: dapo}}\n")
    with pytest.raises(ConfigError, match=r"reward_manager\.name: .*'dapo'"):
        recipe_values(str(recipe))


def test_a_recipes_reward_function_scores(recipe: Path) -> None:
    (recipe / "mine.py").write_text(
        "def grade(solution_str, extra_info, bonus):\n    return len(solution_str) + bonus + extra_info['num_turns']\n"
    )
    with open(recipe / "config.yaml", "a") as file:
        file.write("\nreward: {custom_reward_function: {path: mine.py, name: grade, reward_kwargs: {bonus: 100}}}\n")
    evaluation = Evaluation.load(read(recipe, "agent_rl.reward.format.weight=0"))
    turns = [Turn("seven..")]
    trajectory = Trajectory([], StopReason.ANSWERED, turns, data_source="without a scorer", answer="seven..")
    assert (
        asyncio.run(evaluation.reward.score(trajectory)).components["correctness"] == 7 + 100 + 2
    )  # as verl counts turns
