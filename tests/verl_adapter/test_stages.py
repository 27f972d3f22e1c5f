"""Runs in tests/e2e tell their parts; here is what each part of the trainer says."""

import json
from pathlib import Path

import pytest

from agent_rl.launch.run_progress import RunProgress
from agent_rl.verl_adapter.stages import COMPILING, ENGINE, PREFIX, Stage, compiles_kernels, read_stage
from tests.support.forks import EXTENDED, FORKS

TOLD = """
import ray, verl
from unittest.mock import MagicMock
from tests.verl_adapter.trainers import make, nothing
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

OF_A_STEP = ("step", "_compute_old_log_prob", "_update_actor")
parts = dict.fromkeys(("last_step", "train_dataloader", "resource_pool_manager", "actor_rollout_wg"), MagicMock())
trainer = make(**parts, global_steps=1)
for name in ("_init_dataloader", "_init_resource_pool_mgr", "_load_checkpoint", "init", *OF_A_STEP, "_save_checkpoint",
             "_validate"):
    setattr(PPOTrainerSync, name, nothing)
    getattr(trainer, name)(*[MagicMock(tags=[], keys=[]), {}][: 2 * (name in OF_A_STEP)])
ray.nodes, trainer.config.reward.num_workers = list, 0
trainer_base.RewardLoopManager(trainer.config)
"""


def test_the_parts_of_verls_trainer_tell() -> None:
    done = FORKS.run(TOLD, mode=EXTENDED)
    stages = [stage for line in done.stdout.splitlines() if (stage := read_stage(line))]
    names = ["rows", "model", "weights", "agent loops", "sampling", "log-probs", "update", "checkpoint", "validation"]
    assert [stage.what for stage in stages] == [*names, ENGINE], done.stderr
    assert [stage.step for stage in stages] == [0] * 4 + [1] * 5 + [0]


def test_a_stage_is_read_and_other_lines_are_none() -> None:
    assert read_stage(PREFIX + json.dumps({"what": "Ray", "step": 0, "time": 1.5})) == Stage("Ray", 0, 1.5)
    for text in ("noise", PREFIX, PREFIX + "[]", PREFIX + '{"what": "x"}'):
        assert read_stage(text) is None


def test_the_first_start_of_an_engine_on_a_gpu_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    environ = {"TVM_FFI_CACHE_DIR": str(tmp_path)}
    assert compiles_kernels(environ)
    (tmp_path / "libtorch_c_dlpack_addon_torch211-cuda.so").touch()
    assert compiles_kernels(environ)
    (tmp_path / "sgl_kernel_jit_rope_0123").mkdir()
    assert not compiles_kernels(environ)
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert not compiles_kernels({})
    assert RunProgress().line(f"(TaskRunnerV1 pid=3) {COMPILING}")[0].startswith("the engine compiles its kernels")
