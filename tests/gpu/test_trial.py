"""The trial before a run on GPUs: three training runs on a CPU, by command, whose figures docs/support.md shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_tokenizer
from agent_rl.data import arithmetic, write_parquet
from tests.e2e.conftest import tiny_model

ROOT = Path(__file__).parents[2]
DIFF, STALENESS = "training/rollout_probs_diff_mean", "training/off_policy/trajectory_staleness_worst/max"
LIMIT = 1e-6
STEPS = 4
RUNS = {
    "quickstart": ["quickstart", "actor_rollout_ref.model.path=recipes/quickstart/model"],
    "colocate_async": ["quickstart", "actor_rollout_ref.model.path=recipes/quickstart/model", "mode=colocate_async"],
    "colocate_async, no older trajectories": [
        "quickstart", "actor_rollout_ref.model.path=recipes/quickstart/model", "mode=colocate_async",
        "trainer.v1.sampler.max_off_policy_threshold=1",
    ],
    "served classifier": [
        "bt_reward_model", "actor_rollout_ref.model.path={model}", "data.max_response_length=128",
        "agent_rl.reward.models.preference.path={classifier}", "agent_rl.reward.models.preference.placement=shared",
    ],
}  # fmt: skip

__all__ = ["tiny_model"]
pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_trains_and_its_engine_samples_from_the_trainers_weights(
    name: str, tiny_model: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    classifier = tmp_path / "classifier"
    tokenizer = make_tokenizer(CORPUS, classifier, 512)
    make_classifier(classifier, tokenizer, hidden=48, layers=2, max_positions=4096)
    for split, problems in zip(("train", "test"), arithmetic.train_test(0, 16 * STEPS, 16), strict=True):
        rows = [arithmetic.to_row(each, split, index) for index, each in enumerate(problems)]
        write_parquet(rows, tmp_path / f"{split}.parquet")
    recipe, *overrides = (word.format(model=tiny_model, classifier=classifier) for word in RUNS[name])
    settings = {
        "data.train_files": f"{tmp_path}/train.parquet",
        "data.val_files": f"{tmp_path}/test.parquet",
        "data.train_batch_size": 8,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.rollout.n": 4,
        "trainer.total_training_steps": STEPS,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": -1,
        "trainer.logger": "[console]",
        "agent_rl.run.folder": tmp_path / "run",
        "agent_rl.run.progress": "lines",
    }
    command = [sys.executable, "-m", "agent_rl.cli.main", "train", recipe, *overrides]
    command += [f"{key}={value}" for key, value in settings.items()]
    env = {**os.environ, "VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    steps: dict[int, dict[str, Any]] = {line["step"]: line["data"] for line in lines if DIFF in line["data"]}
    assert sorted(steps) == list(range(1, STEPS + 1))
    assert all(metrics["agent/unscored"] == 0 for metrics in steps.values())
    assert any(metrics["actor/grad_norm"] > 0 for metrics in steps.values())
    current = {step: metrics[DIFF] for step, metrics in steps.items() if not metrics.get(STALENESS)}
    record_property("run", name)
    record_property("steps", len(steps))
    record_property("current", len(current))
    record_property("greatest", max(current.values()))
    assert len(current) >= (1 if name == "colocate_async" else STEPS)
    assert {step: value for step, value in current.items() if value >= LIMIT} == {}
