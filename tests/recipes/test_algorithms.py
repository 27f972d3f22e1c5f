"""Every entry of the matrix trains for two real steps on a CPU: `make test-recipes`."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import arithmetic, write_parquet
from agent_rl.launch.command import trainer_command
from agent_rl.trajectory import trace
from tests.e2e.training import run_alone
from tests.recipes.matrix import ENTRIES, Entry

ROOT = Path(__file__).parents[2]
PROMPTS, SAMPLES = 4, 2
VARIED = [
    f"++agent_rl.reward.components.varied={{kind: '{Path(__file__).with_name('varied.py')}:Varied', weight: 0.1}}"
]
"""Without it, all samples of a step get the same reward when each of them reaches the limit of tokens."""

pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.usefixtures("run_processes")]


@pytest.mark.parametrize("name", ENTRIES)
def test_every_combination_trains_two_steps(name: str, tmp_path: Path, tiny_model: Path) -> None:
    train(ENTRIES[name], tmp_path, tiny_model)


def train(entry: Entry, folder: Path, model: Path) -> None:
    """Run the entry and check what every algorithm must show, then what it must show itself."""
    problems, _ = arithmetic.train_test(0, 16, 1)
    rows = [arithmetic.to_row(each, "train", i, agent_name=entry.agent) for i, each in enumerate(problems)]
    write_parquet(rows, folder / "rows.parquet")
    logged: dict[int, dict[str, Any]] = {}
    script = entry.script and Path(__file__).parent / entry.script
    overrides = [*settings(folder, model, entry.tokens), *entry.overrides, *(VARIED if entry.varied else [])]
    command = trainer_command(ROOT / "recipes" / entry.recipe, overrides, script)
    run_alone(command, folder / "out", on_metrics=logged.__setitem__, timeout_s=500)

    assert sorted(logged) == [1, 2]
    for metrics in logged.values():
        assert metrics["training/rollout_probs_diff_mean"] < entry.difference
        assert math.isfinite(metrics["actor/grad_norm"])
        assert 0 <= metrics["actor/pg_clipfrac"] <= 1
        assert metrics["critic/score/max"] > metrics["critic/score/min"]  # else there would be nothing to learn from
        assert entry.script or metrics["agent/unscored"] == 0
    assert logged[1]["actor/ppo_kl"] or logged[2]["actor/ppo_kl"]  # a mini-batch met a policy that another had changed
    assert entry.evidence(logged[1], logged[2]), json.dumps([interesting(logged[1]), interesting(logged[2])])
    greedy = "algo=remax" in entry.overrides
    ahead = {"algo=dapo", "mode=colocate_async", "mode=separate_async"}  # these sample what they need, or ahead
    if not ahead & {*entry.overrides}:
        lost = logged[1]["agent/unscored"] + logged[2]["agent/unscored"]
        assert len(list(trace.read(folder / "trace.jsonl"))) == 2 * PROMPTS * (SAMPLES + greedy) - lost


def settings(folder: Path, model: Path, tokens: int) -> list[str]:
    """As few prompts and tokens as show the algorithm, with two mini-batches a step.

    An untrained model's answers are all wrong and malformed: what tells them apart is their length.
    """
    values = {
        "data.train_files": f"{folder}/rows.parquet",
        "data.val_files": f"{folder}/rows.parquet",
        "data.train_batch_size": PROMPTS,
        "data.max_response_length": tokens,
        "data.seed": 0,
        "actor_rollout_ref.model.path": model,
        "actor_rollout_ref.actor.optim.lr": 0.01,
        "actor_rollout_ref.actor.ppo_mini_batch_size": PROMPTS // 2,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": PROMPTS // 2 * SAMPLES,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": PROMPTS * SAMPLES,
        "actor_rollout_ref.rollout.n": SAMPLES,
        "trainer.total_training_steps": 2,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.logger": "[console,file]",
        "agent_rl.run.folder": folder,
        "agent_rl.reward.overlong.penalty": 1.0,
        "agent_rl.reward.overlong.buffer_tokens": tokens,
        "agent_rl.budget.max_malformed": 1,
        "hydra.run.dir": f"{folder}/hydra",
    }
    return [f"{key}={value}" for key, value in values.items()]


def interesting(metrics: dict[str, Any]) -> dict[str, Any]:
    """What evidence is looked for in, for the message of a failure."""
    sections = ("actor/", "critic/", "agent/", "training/")
    return {key: value for key, value in sorted(metrics.items()) if key.startswith(sections)}
