"""`policy=trace`: a real run, and the same run again from its trace, without an engine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.evaluation.run_certificate import certify_run
from agent_rl.trajectory import trace
from agent_rl.trajectory.run_files import read_metrics
from agent_rl.verl_adapter.checkpoints import model_folder, weights_digest
from tests.e2e.conftest import gone, marked_run
from tests.e2e.training import ROOT, write_problems
from tests.parity.run import TIMES

pytestmark = [pytest.mark.engine, pytest.mark.recipes]

WORDS = (
    *("kl=loss", "algo=turn", "data.train_batch_size=4", "data.max_prompt_length=256", "data.max_response_length=96"),
    *("actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"),
    *("actor_rollout_ref.rollout.n=3", "agent_rl.folding.reserve_tokens=32", "agent_rl.mask_void=turn"),
    *("trainer.val_before_train=false", "trainer.total_training_steps=2", "trainer.save_freq=1"),
    f"actor_rollout_ref.model.path={ROOT}/recipes/quickstart/model",
)


def train(folder: Path, *words: str) -> str:
    """Train as a user does, and return the output of the command."""
    data = [f"data.{key}_files={folder.parent}/{split}.parquet" for key, split in (("train", "train"), ("val", "test"))]
    command = [sys.executable, "-m", "agent_rl.cli.main", "train", "recipes/quickstart"]
    data.append(f"agent_rl.run.folder={folder}")
    with marked_run() as find:
        done = subprocess.run(
            [*command, *data, *WORDS, *words], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
        assert gone(find, 10) == []
    return done.stdout


def test_the_weights_are_bit_equal(tmp_path: Path) -> None:
    """With a reference policy, two updates per step, several sequences per trajectory and rows that fill up a batch."""
    write_problems(tmp_path, "folding_agent", 8, 4)
    assert "engine" in train(tmp_path / "a")
    shown = train(tmp_path / "b", "policy=trace", f"agent_rl.policy.trace={tmp_path}/a")
    assert "without an engine" in shown
    assert "started: engine" not in shown
    assert "bit-equal" not in shown
    digests = [weights_digest(model_folder(str(tmp_path / name), "model")) for name in "ab"]
    assert digests[0] == digests[1] != weights_digest(ROOT / "recipes/quickstart/model")
    assert any(batch.padding for batch in trace.read_batches(tmp_path / "a/trace.jsonl"))
    batches = [list(trace.read_batches(tmp_path / name / "trace.jsonl")) for name in "ab"]
    assert batches[0] == batches[1]
    metrics = [list(read_metrics(tmp_path / name)) for name in "ab"]
    assert len(metrics[0]) == 2
    for one, other in zip(*metrics, strict=True):
        differ = {key for key in {*one, *other} if one.get(key) != other.get(key) and not TIMES.search(key)}
        assert differ == set()
    assert {line.check: line.problems for line in certify_run(tmp_path / "b") if line.status == "problem"} == {}
