"""Runs in tests/e2e tell their parts; here is that every function that does is still verl's."""

import json
from pathlib import Path

import pytest

from agent_rl.launch.run_progress import RunProgress
from agent_rl.verl_adapter.stages import COMPILING, PREFIX, Stage, compiles_kernels, read_stage
from tests.forks import python

WRAPPED = """
import verl
from verl.trainer import constants_ppo
from verl.trainer.ppo.v1.trainer_base import LLMServerManager, PPOTrainer
names = ["_init_tokenizer", "_init_resource_pool_mgr", "_load_checkpoint", "init", "_validate", "step",
         "_compute_old_log_prob", "_update_actor", "_save_checkpoint"]
found = [getattr(PPOTrainer, name) for name in names]
found += [vars(LLMServerManager)["create"].__func__, constants_ppo.get_ppo_ray_runtime_env]
print([each.__code__.co_filename.rpartition("site-packages")[2][:5] for each in found].count("/verl"))
"""


def test_the_parts_of_verls_trainer_tell() -> None:
    assert python(WRAPPED) == "0"  # of eleven that are verl's own code


@pytest.mark.parametrize("text", ["noise", PREFIX, PREFIX + "[]", PREFIX + '{"what": "x"}'])
def test_other_lines_are_no_stage(text: str) -> None:
    assert read_stage(text) is None


def test_a_stage_is_read() -> None:
    assert read_stage(PREFIX + json.dumps({"what": "Ray", "step": 0, "time": 1.5})) == Stage("Ray", 0, 1.5)


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
