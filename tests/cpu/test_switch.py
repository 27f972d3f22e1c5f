"""The switch and the platform, in processes of their own: both belong to a process for its whole life."""

import json
from pathlib import Path

import pytest

from agent_rl.cpu import switch as cpu
from tests.cpu.test_attention import SGLANG
from tests.support.forks import FORKS, Done, Mode

ROOT = Path(__file__).parents[2]
without_real_ones = pytest.mark.skipif(
    len(cpu.stand_ins()) < 3, reason="the packages themselves are installed, as for a GPU"
)


def python(code: str, *arguments: str, **environment: str) -> Done:
    """The code with these variables, where verl is not imported yet."""
    drop = ("VERL_PLATFORM", "OMP_NUM_THREADS", "PYTHONPATH", *cpu.ENVIRONMENT, *cpu.NO_GPUS)
    return FORKS.run(code, *arguments, mode=Mode({**dict.fromkeys(drop), **environment}, preload=""))


def test_the_switch_prepares_this_process_and_its_children() -> None:
    done = python(
        "import verl, os, torch; print(torch.get_num_threads(), os.environ['SGLANG_USE_CPU_ENGINE'], "
        "*os.environ['PYTHONPATH'].split(os.pathsep))",
        VERL_PLATFORM="cpu",
    )
    assert [word for word in done.stdout.split() if word != str(ROOT)] == ["1", "1", *cpu.stand_ins()], done.stderr


@pytest.mark.parametrize(("number", "threads"), [("2", "2"), ("", "1")])
def test_what_the_user_has_set_is_left_alone(number: str, threads: str) -> None:
    """A number of threads that is set to nothing is not set."""
    code = "import verl, os, torch; print(torch.get_num_threads(), os.environ['PYTHONPATH'].split(os.pathsep)[0])"
    done = python(code, VERL_PLATFORM="cpu", OMP_NUM_THREADS=number, PYTHONPATH="/mine")
    assert done.stdout.split() == [threads, "/mine"], done.stderr


@without_real_ones
def test_a_package_that_is_installed_has_no_stand_in(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton/__init__.py").touch()
    (tmp_path / "torchvision").mkdir()  # a folder alone is not a package
    code = (
        "import sys, os; sys.path.append(sys.argv[1])\n"
        "from agent_rl.cpu.switch import STAND_INS_DIR, child_environment as environment\n"
        "os.environ['PYTHONPATH'] = f'/mine:{STAND_INS_DIR}/triton'\n"
        "print(*(path.rpartition('/')[2] for path in environment()['PYTHONPATH'].split(':')))"
    )
    done = python(code, str(tmp_path), VERL_PLATFORM="cpu")
    assert done.stdout.split() == ["mine", "sgl_kernel", "torchvision"], done.stderr


HIDDEN = """
import subprocess
import torch
torch.cuda.is_available = lambda: bool(torch.cuda._parse_visible_devices())
before = torch.cuda.is_available()
import verl
from ray._private.accelerators import NvidiaGPUAcceleratorManager as nvidia
child = subprocess.run(["printenv", "CUDA_VISIBLE_DEVICES"], capture_output=True, text=True)
ids = nvidia.get_current_process_visible_accelerator_ids()
nvidia.set_current_process_visible_accelerator_ids(ids[:2])  # as Ray does in a worker with two logical GPUs
print(before, torch.cuda.is_available(), child.stdout.strip() == ",".join(ids), len(ids) >= 64)
"""


def test_gpus_are_hidden_from_this_process_its_children_and_rays_workers() -> None:
    done = python(HIDDEN, VERL_PLATFORM="cpu", CUDA_VISIBLE_DEVICES="0,1")
    assert done.stdout.split() == ["True", "False", "True", "True"], done.stderr


def test_without_the_switch_nothing_is_prepared() -> None:
    done = python("import verl, os; print('SGLANG_USE_CPU_ENGINE' in os.environ, os.environ.get('PYTHONPATH'))")
    assert done.stdout.split() == ["False", "None"], done.stderr


def test_verl_sees_a_cpu_and_its_engines() -> None:
    code = (
        "import verl, verl.workers.engine.fsdp\n"
        "from verl.utils.device import get_device_id, get_device_name, get_nccl_backend, get_torch_device\n"
        "from verl.workers.engine.base import EngineRegistry\n"
        "names = [EngineRegistry.get_engine_cls(m, 'fsdp2').__name__ for m in ('language_model', 'value_model')]\n"
        "free, total = get_torch_device().mem_get_info()\n"
        "print(get_device_name(), get_device_id(), get_nccl_backend(), *names, 0 < free < total)"
    )
    done = python(code, VERL_PLATFORM="cpu")
    expected = ["cpu", "cpu", "gloo", "CPUEngineWithLMHead", "CPUEngineWithValueHead", "True"]
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize("module", ["sglang.srt.entrypoints.http_server", "sglang.srt.managers.scheduler"])
def test_the_real_engine_imports_with_the_stand_ins(module: str) -> None:
    done = SGLANG.run(f"import {module}; print('imported')")
    assert done.stdout.strip().endswith("imported"), done.stderr


@without_real_ones
def test_stand_ins_fail_loudly_when_called() -> None:
    code = (
        "import triton, triton.language as tl, sgl_kernel, torchvision.io\n"
        "@triton.jit\ndef kernel(x): pass\n"
        "for f in (kernel, kernel[(1,)], tl.load, sgl_kernel.awq_dequantize, torchvision.io.decode_jpeg):\n"
        "    try: f(1)\n"
        "    except RuntimeError as error: print('stand-ins' in str(error))\n"
    )
    done = SGLANG.run(code)
    assert done.stdout.split() == ["True"] * 5, done.stderr


def test_a_broken_plugin_is_loud() -> None:
    """verl logs a failing entry point at debug level only."""
    done = python("import agent_rl.verl_adapter.patches as p; p.VERL_VERSION = '0.0'; import verl")
    assert "agent_rl could not register itself with verl" in done.stderr
    assert "agent_rl requires 0.0" in done.stderr


VALIDATE = (
    "import json, sys, verl, hydra\nfrom verl.utils.config import validate_config\n"
    "recipe, groups, overrides = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])\n"
    "with hydra.initialize_config_dir(recipe, version_base=None):\n"
    "    for override in overrides:\n"
    "        c = hydra.compose('config', [*groups, *override.split()])\n"
    "        try: validate_config(c, use_reference_policy=False, use_critic=False)\n"
    "        except Exception as e: print(type(e).__name__, e)\n"
)
PASSED = "[validate_config] All configuration checks passed successfully!"
GROUPS = ["tuning=lora", "tuning=full", "mode=sync", "mode=colocate_async", "mode=separate_async"]


def test_what_cannot_run_on_a_cpu_is_refused_before_ray_starts() -> None:
    refused = {
        "actor_rollout_ref.rollout.name=vllm": "has not been tried with 'vllm'. Set it to sglang",
        "actor_rollout_ref.model.lora_rank=8": "actor_rollout_ref.model.lora.merge: SGLang keeps LoRA adapters",
        "actor_rollout_ref.rollout.checkpoint_engine.backend=nixl": "backend: 'nixl' needs a GPU. Set it to nccl",
        "reward.reward_model.enable=True": "reward.reward_model.model_path: no reward model is set",
        "trainer.n_gpus_per_node=2 actor_rollout_ref.rollout.tensor_model_parallel_size=2": "can have only one rank",
    }
    groups, recipe = ["+platform=cpu", "size=cpu"], str(ROOT / "recipes/gsm8k_calculator")
    done = python(VALIDATE, recipe, json.dumps(groups), json.dumps([*refused, *GROUPS]), VERL_PLATFORM="cpu")
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip().splitlines()
    for line, message in zip(said, refused.values(), strict=False):
        assert line.startswith("ConfigError ")
        assert message in line
    assert said[len(refused) :] == [PASSED] * len(GROUPS)
