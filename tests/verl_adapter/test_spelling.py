"""Old spellings under verl's own command, in forks of a Python without verl."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from agent_rl.launch.composition import verl_defaults
from agent_rl.settings.old_keys import RUN, change_config
from tests.forks import FORKS, Mode, python

WITHOUT_VERL = Mode({"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_PLUGINS": "auto"}, preload="")

MODULE = """
import runpy, sys
sys.argv = ["-m", *sys.argv[1:]]
sys.orig_argv = ["python", "-m", "verl.trainer.main_ppo"]
import verl  # as `python -m` does before it sets the name of the program
runpy.run_module("verl.trainer.main_ppo", run_name="__main__", alter_sys=True)
"""


def test_the_plain_command_takes_old_keys_which_a_launcher_has_changed_already() -> None:
    for launched in (False, True):
        mode = Mode({**WITHOUT_VERL.environment, **({RUN: "a run"} if launched else {})}, preload="")
        done = FORKS.run(MODULE, "custom_reward_function.path=a.py", "--cfg", "job", mode=mode)
        old, today = "custom_reward_function:\n  path: a.py", "  custom_reward_function:\n    path: a.py"
        assert (old if launched else today) in done.stdout, done.stderr
        told = "agent_rl: custom_reward_function.path=a.py is reward.custom_reward_function.path"
        assert done.stderr.count(told) == (not launched)


def test_the_plain_command_refuses_old_keys_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "hydra:\n  searchpath: [pkg://verl.trainer.config]\ndefaults: [ppo_trainer, _self_]\n"
        "reward_model:\n  reward_manager: prime\n"
    )
    done = FORKS.run(MODULE, "--config-path", str(tmp_path), "--config-name", "mine", mode=WITHOUT_VERL)
    assert done.returncode == 2, done.stderr
    assert "error: reward_model.reward_manager: changed since older releases (value prime)" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_verl_migrates_in_its_fully_asynchronous_entry_becomes_the_same_here() -> None:
    """Once verl migrates under main_ppo too, the rows that this compares can go."""
    from verl.experimental.reward_loop import migrate_legacy_reward_impl

    given: dict[str, Any] = {
        "custom_reward_function": {"path": "a.py", "name": "f"},
        "reward_model": {
            "num_workers": 3,
            "reward_manager": "dapo",
            "enable": True,
            "enable_resource_pool": True,
            "n_gpus_per_node": 2,
            "nnodes": 1,
            "model": {"path": "judge"},
            "rollout": {"name": "sglang", "max_num_seqs": 4, "response_length": 9, "prompt_length": 8},
        },
        "sandbox_fusion": {"url": "http://box", "max_concurrent": 2, "memory_limit_mb": 64},
    }
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


def test_an_old_reward_function_scores_with_its_arguments(tmp_path: Path) -> None:
    from verl.trainer.ppo.reward import get_custom_reward_fn

    file = tmp_path / "score.py"
    file.write_text("def mine(data_source, solution_str, ground_truth, extra_info=None, k=0):\n    return k\n")
    given = {"path": str(file), "name": "mine", "reward_kwargs": {"k": 7}}
    config = OmegaConf.merge(OmegaConf.create({"custom_reward_function": given}), {"reward": verl_defaults().reward})
    assert get_custom_reward_fn(config) is None, "verl reads the old keys itself: remove their rows"
    change_config(config)
    score = get_custom_reward_fn(config)
    assert score is not None
    assert score(data_source="d", solution_str="s", ground_truth="g") == 7


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
