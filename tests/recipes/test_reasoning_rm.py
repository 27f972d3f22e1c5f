"""The recipes that train judges: their files fit together, and the twin asks what the recipe asks."""

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data.worlds import World, load_world
from agent_rl.data.worlds.graded_answers import TONES
from agent_rl.evaluation.judges import correlation
from agent_rl.launch.composition import compose
from agent_rl.reasoning_rm import DataSample, RewardModule, find_template
from agent_rl.rewards.custom import configured_reward
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import StopReason, Trajectory, Turn

ROOT = Path(__file__).parents[2]
Rows = dict[str, list[dict[str, Any]]]
TWINS = {
    "pointwise": ("graded_answers", "HelpfulnessTemplate"),
    "pairwise": ("compared_answers", "ComparisonTemplate"),
}


@pytest.fixture(scope="module", params=TWINS)
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, World, Rows]:
    """The recipe's name, its twin's world, and rows of it."""
    world = load_world(TWINS[request.param][0])
    counts = {"test": 300, "train": 1000}
    return request.param, world, world.write(tmp_path_factory.mktemp("world"), 0, counts)


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Graded answers."""
    return load_world("graded_answers").write(tmp_path, 0, {"test": 300})["test"]


def test_the_twin_asks_by_the_recipes_template(twin: tuple[str, World, Rows]) -> None:
    name, _, splits = twin
    template = find_template(f"{ROOT}/recipes/reasoning_rm_{name}/template.py:{TWINS[name][1]}")
    module = RewardModule("twin", template)
    for row in splits["test"][:20]:
        assert module.format(sample=row) == row["prompt"][0]["content"]
        assert DataSample.from_row(row).truth == row["reward_model"]["ground_truth"]


def test_held_out_answers_are_in_no_other_row(twin: tuple[str, World, Rows]) -> None:
    def parts(row: dict[str, Any]) -> set[tuple[str, str]]:
        thing = row["extra_info"]["question"].split()[-1].rstrip(".")
        answers = row["extra_info"]["sample"]["answers"]
        openings = (re.match("|".join(map(re.escape, sum(TONES, ()))), answer) for answer in answers)
        return {
            (found[0], answer[found.end() :].replace(thing, ""))
            for answer, found in zip(answers, openings, strict=True)
            if found
        }

    test, train = (set().union(*map(parts, twin[2][split])) for split in ("test", "train"))
    assert test
    assert train
    assert not test & train


def test_one_feature_alone_ranks_the_answers_less_well(rows: list[dict[str, Any]]) -> None:
    truths = [float(row["reward_model"]["ground_truth"]) for row in rows]
    for feature in ("tone", "deed"):
        alone = correlation([row["extra_info"][feature] for row in rows], truths, "spearman")
        assert alone is not None
        assert alone < 0.8


def test_the_reward_function_scores_the_worlds_habits(twin: tuple[str, World, Rows]) -> None:
    recipe, world, splits = twin
    path = {"path": f"{ROOT}/recipes/reasoning_rm_{recipe}/reward_fn.py", "name": "compute_score"}
    reward = configured_reward(RewardSettings(), path)
    means = {}
    for name, habit in world.habits.items():
        rng = random.Random(0)
        given = [_judged(row, next(habit(row, rng))) for row in splits["test"]]
        scores = asyncio.run(reward.score_group(given))
        means[name] = sum(each.components["correctness"] for each in scores) / len(given)  # type: ignore[union-attr]
    assert means["oracle"] == 1
    assert means["malformed"] == 0
    assert 0.3 < means["random"] < min(means["by_tone"], means["by_deed"])
    assert max(means["by_tone"], means["by_deed"]) < 0.85


@pytest.mark.parametrize("name", ["pointwise", "pairwise"])
def test_the_recipe_composes_for_four_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "")
    config = compose(ROOT / f"recipes/reasoning_rm_{name}", ["trainer.nnodes=4"])
    samples = config.data.train_batch_size * config.actor_rollout_ref.rollout.n
    assert samples % (config.trainer.nnodes * config.trainer.n_gpus_per_node) == 0
    assert (ROOT / config.data.custom_cls.path).is_file()


def _judged(row: dict[str, Any], text: str) -> Trajectory:
    return Trajectory(
        prompt=[], stop_reason=StopReason.ANSWERED, turns=[Turn(text)], answer=text, data_source=row["data_source"],
        ground_truth=row["reward_model"]["ground_truth"], row={"extra_info": row["extra_info"]},
    )  # fmt: skip
