"""Each patch works, and is still needed: the second half of each pair fails once verl does the thing itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf, open_dict

from agent_rl.errors import ConfigError
from agent_rl.launch.composition import verl_defaults
from agent_rl.settings.old_keys import RUN, change_config
from agent_rl.verl_adapter import patches
from tests.support.forks import EXTENDED, FORKS, Mode, python


def test_another_verl_is_refused() -> None:
    patches.check_version("0.9.1")
    with pytest.raises(ConfigError, match=r"version 0\.10\.0 is installed, but agent_rl requires 0\.9\.1"):
        patches.check_version("0.10.0")


LOAD = (
    "import verl\nfrom verl.tools.tool_registry import load_all_tools\n"
    "try: print([t.name for t in load_all_tools('tool_configs/calculator.yaml', None)])\n"
    "except Exception as e: print('cannot')"
)


def test_tool_files_are_read_by_agent_rl_and_would_not_be_by_verl() -> None:
    assert python(LOAD) == "['calculator']"
    assert python(LOAD, plugins="none") == "cannot"


FOLDER = """
import os, tempfile, verl
tempfile.tempdir = tempfile.mkdtemp()
from verl.utils.fs import local_mkdir_safe
made = local_mkdir_safe(os.path.join(tempfile.tempdir, "global_step_1/actor"))
print(os.path.isdir(made), len(os.listdir(tempfile.tempdir)))
"""


def test_a_checkpoints_folder_leaves_no_file_in_the_temporary_folder_and_would_by_verl() -> None:
    assert python(FOLDER) == "True 1"
    assert python(FOLDER, plugins="none") == "True 2"


REFERENCE = """
import verl
from types import SimpleNamespace
from unittest.mock import MagicMock
from tests.verl_adapter.trainers import make
from verl.trainer.ppo.v1 import trainer_base as module

def compute(batch):
    print(batch.extra_info["no_lora_adapter"], end=" ")
    return ["done"]

module.tq, module.response_from_nested = MagicMock(), MagicMock()
trainer = make(ref_in_actor=True, actor_rollout_wg=SimpleNamespace(compute_log_prob=compute))
batch = module.KVBatchMeta(keys=["a"], tags=[{}], partition_id="train")
trainer._compute_ref_log_prob(batch, {})
print(sorted(batch.extra_info))
"""


def test_the_critic_is_not_told_of_the_reference_pass_and_would_be_by_verl() -> None:
    assert python(REFERENCE) == "True ['calculate_entropy', 'compute_loss', 'temperature']"
    assert "no_lora_adapter" in python(REFERENCE, plugins="none")


FLUSH = """
import verl
from unittest.mock import MagicMock
from tests.verl_adapter.trainers import make, nothing
from verl.trainer.ppo.v1 import trainer_separate_async as module

module.PPOTrainer._setup, module.LLMServerManager, module.CheckpointEngineManager = nothing, MagicMock(), MagicMock()
rollout = "actor_rollout_ref.rollout"
config = {"data.train_batch_size": 4, "actor_rollout_ref.actor.ppo_mini_batch_size": 4, f"{rollout}.nnodes": 1,
          "trainer.v1.separate_async.parameter_sync_step": 1, f"{rollout}.n_gpus_per_node": 1,
          f"{rollout}.checkpoint_engine.backend": "nccl", "actor_rollout_ref.hybrid_engine": False}
trainer = make("separate_async", config, actor_rollout_wg=MagicMock(), llm_server_manager=MagicMock())
try: trainer._setup()
except TypeError as error: print(error)
else: print("is set up")
"""


def test_a_run_without_engines_on_the_trainers_gpus_starts_where_verl_calls_its_logger_like_print() -> None:
    assert python(FLUSH) == "is set up"
    assert "unexpected keyword argument 'flush'" in python(FLUSH, plugins="none")


CALLED = """
import asyncio, verl, torch
from unittest.mock import AsyncMock, MagicMock
from transfer_queue import interface
from verl.protocol import DataProto
from verl.trainer.ppo.v1 import trainer_base as module
from tests.verl_adapter.trainers import configuration

def outcome(call):
    try: return type(call()).__name__
    except Exception as error: return type(error).__name__

def corrected(**tensors):
    data = DataProto.from_dict({name: torch.zeros(2, 3) for name in ("response_mask", *tensors)} | tensors)
    return module.compute_rollout_correction_and_add_to_batch(data, configuration().algorithm.rollout_correction)

probs = dict.fromkeys(("old_log_probs", "rollout_log_probs"), torch.zeros(2, 3))
whole = {**probs, "response_mask": torch.ones(2, 3)}
rollout_only = {"rollout_log_probs": torch.zeros(2, 3)}
client = MagicMock(_run_coroutine=asyncio.run)  # the queue knows no key
client.async_kv_retrieve_meta = AsyncMock(return_value=MagicMock(size=0))
interface._maybe_create_tq_client = lambda: client
print([outcome(lambda: corrected(**each)) for each in (whole, rollout_only, probs)],
      outcome(lambda: module.tq.kv_batch_get(keys=[], partition_id="val", select_fields=["uid"])["uid"].tolist()))
"""


def test_batches_without_log_probs_tokens_or_keys_pass_where_verl_would_fail() -> None:
    assert python(CALLED) == "['tuple', 'tuple', 'tuple'] list"
    assert python(CALLED, plugins="none") == "['tuple', 'KeyError', 'ValueError'] ValueError"


TIMED = """
from codetiming import Timer
from verl.utils.profiler.performance import simple_timer

seconds = {}
for _ in range(3):
    with simple_timer("step", seconds): pass
print(list(seconds), Timer.timers._timings.get("step", []) != [])
"""


def test_timers_keep_nothing_where_verl_would_keep_every_duration() -> None:
    assert python(TIMED) == "['step'] False"
    assert python(TIMED, plugins="none") == "['step'] True"


REPLACED = """
import importlib, json, pkgutil, sys, verl
from agent_rl.verl_adapter import patches, trainer
from tests.verl_adapter.trainers import make

def names():
    found = {}
    for module in [each for name, each in sys.modules.items() if name.split(".")[0] in ("verl", "transfer_queue")]:
        classes = [each for each in vars(module).values() if isinstance(each, type) and each.__module__[:4] == "verl"]
        for owner in (module, *classes):
            found |= {(owner, name): value for name, value in vars(owner).items()}
    return found

waited = [(importlib.import_module(module), pkgutil.resolve_name(action)) for module, action in patches.hooks()]
before = names()
for module, action in waited: action(module)
make()
after = names()
replaced = sorted(f"{owner.__name__}.{name}" for (owner, name), value in before.items()
                  if after[owner, name] is not value and not name.startswith("__"))
print(json.dumps([len(waited) - len(dict(waited)), replaced]))
"""


def test_few_names_of_verl_are_replaced_and_each_module_has_one_hook() -> None:
    """Those of agent_rl.cpu are apart: here the plugin and the CPU are off, and the hooks are called."""
    more, replaced = json.loads(python(REPLACED, plugins="none"))
    assert more == 0
    assert len(replaced) <= 14, replaced
    assert "verl.trainer.ppo.v1.trainer_base.compute_advantage_for_multi_trajectories" in replaced


MAIN = "import runpy; runpy.run_module('verl.trainer.main_ppo', run_name='__main__', alter_sys=True)"


WITHOUT_VERL = Mode({"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_PLUGINS": "auto"}, preload="")
COMMAND = f"""
import sys
sys.argv = ["-m", *sys.argv[1:]]
sys.orig_argv = ["python", "-m", "verl.trainer.main_ppo"]
import verl  # as `python -m` does before it sets the name of the program
{MAIN}
"""


def test_the_plain_command_takes_old_keys_which_a_launcher_has_changed_already() -> None:
    for launched in (False, True):
        mode = Mode({**WITHOUT_VERL.environment, **({RUN: "a run"} if launched else {})}, preload="")
        done = FORKS.run(COMMAND, "custom_reward_function.path=a.py", "--cfg", "job", mode=mode)
        old, today = "custom_reward_function:\n  path: a.py", "  custom_reward_function:\n    path: a.py"
        assert (old if launched else today) in done.stdout, done.stderr
        told = "agent_rl: custom_reward_function.path=a.py is reward.custom_reward_function.path"
        assert done.stderr.count(told) == (not launched)


def test_the_plain_command_refuses_old_keys_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "hydra:\n  searchpath: [pkg://verl.trainer.config]\ndefaults: [ppo_trainer, _self_]\n"
        "reward_model:\n  reward_manager: prime\n"
    )
    done = FORKS.run(MAIN, "--config-path", str(tmp_path), "--config-name", "mine", mode=EXTENDED)
    assert done.returncode == 2, done.stderr
    assert "error: reward_model.reward_manager: changed since older releases (value prime)" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_verl_migrates_in_its_fully_asynchronous_entry_becomes_the_same_here() -> None:
    """Once verl migrates under main_ppo too, the rows that this compares can go."""
    from verl.experimental.reward_loop import migrate_legacy_reward_impl

    model = {"path": "judge"}
    given: dict[str, Any] = {
        "custom_reward_function": {"path": "a.py", "name": "f"},
        "reward_model": {"num_workers": 3, "reward_manager": "dapo", "enable": True, "nnodes": 1, "model": model},
        "sandbox_fusion": {"url": "http://box", "max_concurrent": 2, "memory_limit_mb": 64},
    }
    given["reward_model"]["rollout"] = {"name": "sglang", "max_num_seqs": 4, "response_length": 9, "prompt_length": 8}
    theirs, ours = (OmegaConf.merge(verl_defaults(), given) for _ in range(2))
    with open_dict(theirs):
        theirs = migrate_legacy_reward_impl(theirs)
    change_config(ours)
    for section in ("reward_manager.name", "custom_reward_function.path", "custom_reward_function.name", "num_workers"):
        assert OmegaConf.select(ours.reward, section) == OmegaConf.select(theirs.reward, section)
    for section in ("reward_model", "sandbox_fusion"):
        plain = (OmegaConf.to_container(each.reward[section]) for each in (ours, theirs))
        mine, verls = ({k: v for k, v in each.items() if k != "_target_"} for each in plain)
        assert mine == verls
    assert set(OmegaConf.to_container(ours.custom_reward_function).values()) == {None}


def test_keys_of_a_file_are_changed_before_verl_reads_them_and_the_command_line_wins() -> None:
    code = """
import sys
sys.argv = ["main_ppo", "actor_rollout_ref.model.lora_alpha=3"]
from omegaconf import OmegaConf
from verl.utils.device import auto_set_device
model = {"lora_alpha": 3}
config = OmegaConf.create({"actor_rollout_ref": {"model": model}, "lora": {"r": 4, "lora_alpha": 5}})
auto_set_device(config)
print(config)
"""
    assert python(code) == "{'actor_rollout_ref': {'model': {'lora_alpha': 3, 'lora_rank': 4}}}"


IMPORT = """
try: from verl.experimental.agent_loop import register_agent_loop as found
except ImportError: print("cannot import")
else: print(found.__module__)
"""


def test_the_import_of_older_scripts_works_where_verl_has_no_such_name() -> None:
    assert python(IMPORT) == "agent_rl.agents.registry"
    assert python(IMPORT, plugins="none") == "cannot import"
