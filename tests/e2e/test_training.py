"""Two steps of the GSM8K recipe with verl's real trainer and the real engine, started by a user's own script."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent_rl import trace
from agent_rl.data import arithmetic, gsm8k, write_parquet
from agent_rl.launch.command import trainer_command
from agent_rl.launch.process import run_trainer
from tests.e2e.conftest import outside

ROOT = Path(__file__).parents[2]
GSM8K = ROOT.parent / "shared/data/gsm8k"

pytestmark = pytest.mark.engine


def rows(split: str, count: int) -> list[dict[str, Any]]:
    """GSM8K where it is at hand, generated problems elsewhere."""
    if GSM8K.is_dir():
        examples = gsm8k.load_examples(GSM8K)[split][:count]
        return [gsm8k.to_row(e, split, i, agent_name="weights_probe") for i, e in enumerate(examples)]
    train, test = arithmetic.train_test(0, count, count)
    problems = {"train": train, "test": test}[split]
    return [arithmetic.to_row(p, split, i, agent_name="weights_probe") for i, p in enumerate(problems)]


def test_two_steps_of_the_gsm8k_recipe(
    tmp_path: Path,
    tiny_llama: Path,
    run_processes: Callable[[], list[psutil.Process]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROBE_DIR", str(tmp_path))
    monkeypatch.chdir(ROOT)
    for split in ("train", "test"):
        write_parquet(rows(split, 8), tmp_path / f"{split}.parquet")
    (tmp_path / "tools.yaml").write_text("tools: [{name: calculator}, {name: python}]")
    before = outside()
    command = trainer_command(
        ROOT / "recipes/gsm8k_calculator",
        [
            f"data.train_files={tmp_path}/train.parquet",
            f"data.val_files={tmp_path}/test.parquet",
            f"actor_rollout_ref.model.path={tiny_llama}",
            f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tmp_path}/tools.yaml",
            "actor_rollout_ref.actor.optim.lr=0.01",
            "trainer.save_freq=1",
            f"trainer.default_local_dir={tmp_path}/checkpoints",
            "trainer.logger=[console,file]",
            f"agent_rl.trace.path={tmp_path}/trace.jsonl",
            f"hydra.run.dir={tmp_path}/hydra",
        ],
        script=ROOT / "tests/e2e/probe_train.py",
    )
    logged: dict[int, dict[str, Any]] = {}
    run_trainer(command, tmp_path / "out", on_metrics=logged.__setitem__, timeout_s=400)

    assert sorted(logged) == [0, 1, 2]
    check_metrics(logged)
    check_weights(tmp_path)
    trajectories = list(trace.read(tmp_path / "trace.jsonl"))
    assert len(trajectories) == 8 + 2 * 4 * 2 + 8  # validation, two steps of 4 prompts with 2 samples, validation
    assert {t.agent for t in trajectories} == {"weights_probe"}
    assert run_processes() == []
    check_sandbox(tmp_path)
    assert outside() - before == set()


def check_metrics(logged: dict[int, dict[str, Any]]) -> None:
    for step in (1, 2):
        metrics = logged[step]
        assert metrics["training/rollout_probs_diff_mean"] < 1e-5
        assert metrics["actor/grad_norm"] >= 0
        assert metrics["agent/unscored"] == 0
        for key in ("correctness", "efficiency", "format", "acc", "tool_calls", "malformed_rate", "stop_max_tokens"):
            assert math.isfinite(metrics[f"agent/{key}"])
        assert metrics["actor/kl_loss"] < (1e-6 if step == 1 else 1.0)  # the reference policy is where the policy began
        total = metrics["agent/correctness"] + metrics["agent/efficiency"] + 0.2 * metrics["agent/format"]
        assert metrics["critic/score/mean"] == pytest.approx(total, abs=1e-5)
    names = {key.split("/")[-2] for key in logged[2] if key.startswith("val-")}
    assert {"reward", "acc", "correctness", "efficiency", "format", "tool_calls"} <= names


def check_sandbox(folder: Path) -> None:
    """Programs ran inside verl's workers, and what they were forked from is gone with the workers."""
    for step in (1, 2):
        parent, value = (folder / f"python_{step}.txt").read_text().split()
        assert value == "10"
        assert not psutil.pid_exists(int(parent))


def check_weights(folder: Path) -> None:
    """The engine's weights in step 2 are the trainer's after the update of step 1, and not those of step 1."""
    import torch

    state = torch.load(
        folder / "checkpoints/global_step_1/actor/model_world_size_1_rank_0.pt", weights_only=False, map_location="cpu"
    )
    first = json.loads((folder / "engine_1.json").read_text())
    second = json.loads((folder / "engine_2.json").read_text())
    for name, values in second.items():
        tensor = state[name]
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        assert torch.equal(torch.tensor(values), tensor[: len(values)]), name
    assert first != second
