"""Environments of all families with a Python of their own train two steps in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.environments.install import PACKAGES, python_of
from tests.environments.families.served_family import needs

pytestmark = [*(needs(family) for family in PACKAGES), pytest.mark.recipes, pytest.mark.engine, pytest.mark.trainer]

TARGETS = (
    *("bfcl:TravelAPI", "bfcl:TicketAPI+TravelAPI", "tau2:mock", "nemo_gym:blackjack"),
    "nemo_gym:example_session_state_mgmt",
)


def test_two_steps(tmp_path: Path) -> None:
    from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

    model = tmp_path / "model"
    make_model(model, make_tokenizer(CORPUS, model, 512), hidden=48, layers=2, heads=4, max_positions=32768)
    subprocess.run([str(python_of("openenv").with_name("openenv")), "init", "echo"], cwd=tmp_path, check=True)
    command = [str(Path(sys.executable).with_name("agent-rl")), "train", ",".join((*TARGETS, "openenv:echo"))]
    command += ["size=own_model", "--model", str(model), "data.train_batch_size=8", "data.max_prompt_length=30000"]
    command += ["data.max_response_length=64", "actor_rollout_ref.rollout.n=2", "trainer.total_training_steps=2"]
    command += [
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    ]
    command += ["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1", "trainer.val_before_train=False"]
    command += ["trainer.test_freq=-1", "trainer.save_freq=-1", "trainer.experiment_name=run"]
    folder = python_of("openenv").parents[2]
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "AGENT_RL_ENVIRONMENTS": str(folder)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    steps = [json.loads(line) for line in (tmp_path / "outputs/run/metrics.jsonl").read_text().splitlines()]
    assert len(steps) == 2
    assert all(step.get("data", step)["agent/unscored"] == 0 for step in steps)
    rows = [json.loads(line) for line in (tmp_path / "outputs/run/trace.jsonl").read_text().splitlines()]
    print(sorted({row["data_source"] for row in rows}))
