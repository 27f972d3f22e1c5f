"""A twin learns to judge, is measured as a judge, and judges an agent in training: the whole way of self_judged."""

from pathlib import Path

import pytest

from agent_rl.evaluation.experiments.cold_start import ColdStart
from agent_rl.launch.training import train
from agent_rl.trajectory import trace
from tests.e2e.training import diffs, sums, train_recipe
from tests.support.cli import printed

pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.timeout(1800)]

JUDGE = "reasoning_rm_pointwise"
TEMPLATE = f"recipes/{JUDGE}/template.py:HelpfulnessTemplate"


@pytest.mark.usefixtures("run_processes")
def test_a_model_that_learned_to_judge_judges_an_agent(tmp_path: Path) -> None:
    world, run, judge = tmp_path / "world", tmp_path / "run", tmp_path / "judge"
    words = [
        f"actor_rollout_ref.model.path={world}/model",
        f"data.train_files={world}/train.parquet",
        f"data.val_files={world}/test.parquet",
    ]
    start = ColdStart(f"recipes/{JUDGE}", words)
    assert start.make()
    short = ["trainer.total_training_steps=12", "trainer.test_freq=-1", "trainer.save_freq=12"]
    assert train(f"recipes/{JUDGE}", [*words, *short, f"agent_rl.run.folder={run}"]) is None
    printed("export", run, "--to", judge)
    before, after = (
        printed("rm", "eval", model, world / "test.parquet", "--template", TEMPLATE, "--max-tokens", 48)
        for model in (world / "model", judge)
    )
    assert after["samples"] == 300
    assert after["spearman"] >= max(0.7, before["spearman"] + 0.15)

    logged = train_recipe("self_judged", tmp_path / "agent", sums(8, 4), f"agent_rl.reward.models.trained.path={judge}")
    assert list(logged) == [1, 2]
    assert max(diffs(logged)) < 1e-5
    judged = [each for each in trace.read(tmp_path / "agent/trace.jsonl") if each.score is not None]
    assert all(metrics["agent/unscored"] < 8 for metrics in logged.values())  # of 8 that are trained on
    assert len({each.score.components["helpful"] for each in judged if each.score}) > 1
