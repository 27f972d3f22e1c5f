"""Checkpoints as FSDP writes them, through verl's real merger; one of a real training run is evaluated in tests/e2e."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.preflight.case import RunCase
from agent_rl.verl_adapter.checkpoints import (
    MERGED,
    TRACKER,
    complete_checkpoint,
    model_folder,
    names_a_folder,
    step_back,
    weights_digest,
)
from tests.agents.policies.conftest import model_dir
from tests.support.forks import EXTENDED, FORKS

__all__ = ["model_dir"]


@pytest.fixture
def checkpoint(tmp_path, model_dir):
    """Writes a checkpoint of a model's state with a single rank, as `global_step_3` of a run."""
    import torch

    def write(state, meta=None):
        actor = tmp_path / "checkpoints/global_step_3/actor"
        actor.mkdir(parents=True)
        shutil.copytree(model_dir, actor / "huggingface", ignore=shutil.ignore_patterns("*.safetensors"))
        (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
        torch.save(state, actor / "model_world_size_1_rank_0.pt")
        if meta:
            (actor / "lora_train_meta.json").write_text(json.dumps(meta))
        (tmp_path / "checkpoints/latest_checkpointed_iteration.txt").write_text("3")
        return tmp_path / "checkpoints"

    return write


@pytest.fixture
def model(model_dir):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_dir)


@pytest.fixture(autouse=True)
def merges(monkeypatch):
    """The commands of verl's merger that are run, in forks."""
    commands = []

    def run(command, stdout, **_):
        commands.append(command)
        code = "import runpy; runpy.run_module('verl.model_merger', run_name='__main__')"
        done = FORKS.run(code, *command[3:], mode=EXTENDED)
        stdout.write((done.stdout + done.stderr).encode())
        return done

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def logits(model):
    import torch

    with torch.no_grad():
        return model.float()(torch.arange(3, 40)[None]).logits


def loaded(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def test_a_checkpoint_is_merged_once_however_it_is_named_until_it_is_written_anew(checkpoint, model, merges):
    import torch

    run = checkpoint(model.state_dict())
    merged = run / "global_step_3" / MERGED
    names = [run, run / "global_step_3", run / "global_step_3/actor"]
    with ThreadPoolExecutor(2) as pool:  # as two commands at a time
        found = list(pool.map(lambda name: model_folder(str(name), "model"), [*names, run]))
    assert set(found) == {merged}
    assert len(merges) == 1
    assert torch.allclose(logits(loaded(merged)), logits(model), atol=0.05, rtol=0.02)  # the merger writes bfloat16
    assert (merged / "tokenizer_config.json").exists()

    first = weights_digest(merged)
    with torch.no_grad():
        model.model.embed_tokens.weight += 1
    torch.save(model.state_dict(), run / "global_step_3/actor/model_world_size_1_rank_0.pt")
    assert model_folder(str(run), "model") == merged
    assert len(merges) == 2
    assert weights_digest(merged) != first
    assert torch.allclose(logits(loaded(merged)), logits(model), atol=0.05, rtol=0.02)


def test_a_digest_is_of_all_files_of_weights(tmp_path):
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"a" * 3_000_000)
    one = weights_digest(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"b")
    both = weights_digest(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert one != both == weights_digest(tmp_path)


def test_an_adapter_is_part_of_the_weights(checkpoint, model, tmp_path):
    import peft
    import torch

    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    expected = logits(adapted).clone()
    run = checkpoint(adapted.state_dict(), {"r": 2, "lora_alpha": 8, "task_type": "CAUSAL_LM"})
    with adapted.disable_adapter():
        effect = (logits(adapted) - expected).abs().mean()
    merged = model_folder(str(run), "model")
    assert not (merged / "lora_adapter").exists()
    assert (logits(loaded(merged)) - expected).abs().mean() < 0.05 * effect


def test_a_checkpoint_that_is_not_whole(checkpoint, model, tmp_path):
    run = checkpoint(model.state_dict())
    (run / "global_step_3/actor/model_world_size_1_rank_0.pt").unlink()
    with pytest.raises(ConfigError, match=r"verl cannot merge .*global_step_3/actor: .*model_world_size_1_rank_0"):
        model_folder(str(run), "model")
    assert not (run / "global_step_3" / MERGED).exists()


def test_a_model_is_used_as_it_is_and_a_folder_without_one_is_refused(model_dir, tmp_path):
    assert str(model_folder(model_dir, "model")) == model_dir
    with pytest.raises(ConfigError, match="is neither a model"):
        model_folder(str(tmp_path), "model")


@pytest.mark.parametrize(
    ("name", "only_a_folder"),
    [
        ("Qwen/Qwen2.5-3B", False),
        ("gpt2", False),
        ("hdfs://models/qwen/3b", False),
        ("outputs/model", True),
        ("models/mine/x", True),
        ("/a", True),
        ("~/a", True),
    ],
)
def test_names_of_the_hub_and_addresses_are_no_folders(name, only_a_folder):
    assert names_a_folder(name) == only_a_folder


def config(folder, *, ranks=1, critic=False, **trainer):
    checkpoint = {"load_contents": ["model", "optimizer", "extra"]}
    return OmegaConf.create(
        {
            "trainer": {
                "resume_mode": "auto",
                "resume_from_path": None,
                "default_local_dir": str(folder),
                "nnodes": 1,
                "n_gpus_per_node": ranks,
                **trainer,
            },
            "actor_rollout_ref": {"actor": {"strategy": "fsdp2", "checkpoint": checkpoint}},
            "critic": {"enable": critic, "checkpoint": checkpoint},
            "algorithm": {"adv_estimator": "grpo"},
        }
    )


def save(folder, step, ranks=1, roles=("actor",)):
    for role in roles:
        (folder / f"global_step_{step}/{role}").mkdir(parents=True)
        for part in ("model", "optim", "extra_state"):
            for rank in range(ranks):
                (folder / f"global_step_{step}/{role}/{part}_world_size_{ranks}_rank_{rank}.pt").touch()
    (folder / f"global_step_{step}/data.pt").touch()
    (folder / TRACKER).write_text(str(step))


def refused(config):
    """The error's key, problem and remedy in one line; empty: there is none."""
    return " ".join(
        f"{finding.text}. {finding.remedy}" for finding in complete_checkpoint(RunCase(config=config)) if finding.remedy
    )


def test_a_first_run_and_a_whole_checkpoint_pass(tmp_path):
    assert not refused(config(tmp_path))
    save(tmp_path, 2, roles=("actor", "critic"))
    assert not refused(config(tmp_path, critic=True))
    assert not refused(config(tmp_path, resume_mode="disable", n_gpus_per_node=4))


def test_what_is_missing_is_named(tmp_path):
    save(tmp_path, 2)
    assert "incomplete: it has no critic/model" in refused(config(tmp_path, critic=True))
    for file in ("data.pt", "actor/extra_state_world_size_1_rank_0.pt", "actor/model_world_size_1_rank_0.pt"):
        (tmp_path / "global_step_2" / file).unlink()
        message = refused(config(tmp_path))
        assert message.startswith(f"{tmp_path}/{TRACKER}: the checkpoint {tmp_path}/global_step_2 is incomplete")
        assert f"it has no {file}" in message
        assert "trainer.resume_mode=disable" in message


def test_another_number_of_ranks_and_a_checkpoint_that_is_gone_are_told_apart(tmp_path):
    save(tmp_path, 2, ranks=2)
    assert "model_world_size_2_rank_0.pt was written by another number of ranks" in refused(config(tmp_path))
    assert not refused(config(tmp_path, ranks=2))
    (tmp_path / TRACKER).write_text("7")
    assert "there is no checkpoint" in refused(config(tmp_path))
    gone = config(tmp_path, resume_mode="resume_path", resume_from_path=f"{tmp_path}/global_step_3")
    assert refused(gone).startswith(f"trainer.resume_from_path: there is no checkpoint {tmp_path}/global_step_3")


OPTIMIZER = "actor/optim_world_size_1_rank_0.pt"
DAMAGE = {
    "cut": lambda file: os.truncate(file, file.stat().st_size // 2),
    "emptied": lambda file: os.truncate(file, 0),
    "removed": lambda file: file.unlink(),
    "overwritten": lambda file: file.write_bytes(file.read_bytes().replace(b"\x07" * 100, b"\x08" * 100)),
}


@pytest.fixture
def run(tmp_path):
    """Two checkpoints with files as torch writes them."""
    import torch

    for step in (2, 4):
        save(tmp_path, step)
        for file in (tmp_path / f"global_step_{step}").rglob("*.pt"):
            torch.save({"weight": torch.full((1000,), 7, dtype=torch.uint8)}, file)
    return tmp_path


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(how, run):
    assert step_back(config(run)) is None
    DAMAGE[how](run / "global_step_4" / OPTIMIZER)
    note = step_back(config(run))
    assert f"{run}/global_step_4/{OPTIMIZER}" in note
    assert note.endswith(": the run resumes from step 2 instead, and repeats the steps after it")
    assert (run / TRACKER).read_text() == "2"
    assert sorted(path.name for path in run.iterdir()) == ["global_step_2", "global_step_4", TRACKER]
    assert step_back(config(run)) is None


def test_a_run_that_was_killed_while_it_recorded_its_newest_checkpoint_has_it(run):
    (run / TRACKER).write_text("")
    assert "contains no step: the run resumes from step 4" in step_back(config(run))


def test_nothing_changes_where_no_checkpoint_is_intact_or_none_is_asked_for(run):
    for step in (2, 4):
        (run / f"global_step_{step}" / OPTIMIZER).unlink()
    for changed in ({}, {"resume_mode": "disable"}, {"nnodes": 2}):
        assert step_back(config(run, **changed)) is None
    assert (run / TRACKER).read_text() == "4"
