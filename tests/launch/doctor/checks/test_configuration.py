import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_rl.launch import training
from agent_rl.launch.doctor.checks import configuration
from agent_rl.launch.doctor.diagnosis import all_checks
from agent_rl.launch.run_folder import RunFolder
from agent_rl.preflight.check import Status
from tests.launch.doctor.conftest import MakeCase, only, refused

MODEL = "actor_rollout_ref.model.path"


def test_files_of_the_model_that_are_missing_or_cut_short(
    make_case: MakeCase, tiny_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    os.truncate(folder / "model.safetensors", 300_000)
    assert "model.safetensors (incomplete" in refused(configuration.model(make_case({MODEL: str(folder)})))
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).unlink()
    text = refused(configuration.model(make_case({MODEL: str(folder)})))
    assert "model lacks config.json, a tokenizer, weights. " in text


def test_a_folder_that_is_not_there(make_case: MakeCase) -> None:
    assert only(training.models_are_there(make_case())).status is Status.OK
    judge = {"agent_rl.reward.models.nice": {"path": "outputs/no_such_model"}}
    assert refused(training.models_are_there(make_case(judge))).startswith("agent_rl.reward.models.nice.path: there is")


def test_the_tiny_model_is_made_by_the_launcher(
    make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = make_case({MODEL: "outputs/tiny_model"})
    object.__setattr__(case, "folder", tmp_path)
    assert only(configuration.model(case)).status is Status.SKIPPED


ACTOR = "actor_rollout_ref.actor"


def test_the_recipes_batches_pass(make_case: MakeCase) -> None:
    for on_cpu in (True, False):
        assert only(configuration.validation(make_case(on_cpu=on_cpu))).status is Status.OK


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"data.train_batch_size": 3, "trainer.n_gpus_per_node": 4}, "real_train_batch_size (6) must be divisible"),
        ({f"{ACTOR}.ppo_mini_batch_size": 8}, "must be >= actor.ppo_mini_batch_size (8)"),
        ({f"{ACTOR}.ppo_micro_batch_size_per_gpu": None}, "Please set at least one of"),
        ({"actor_rollout_ref.rollout.val_kwargs.do_sample": True, "actor_rollout_ref.rollout.temperature": 0}, "temp"),
    ],
)
def test_an_assertion_of_verl_is_reported_once(make_case: MakeCase, keys: dict[str, Any], text: str) -> None:
    finding = only(configuration.validation(make_case(keys)))
    assert finding.status is Status.PROBLEM
    assert text in finding.text


def test_the_trainers_checks_are_made_as_well(make_case: MakeCase) -> None:
    checks = {one.subject: one for one in all_checks() if "trainer" in one.at}
    assert len(checks) >= 9
    for subject, keys, text in (
        ("reward workers", {"agent_rl.reward.overlong": {"penalty": 1, "buffer_tokens": 9999}}, "buffer_tokens: 9999"),
        ("on a cpu", {"actor_rollout_ref.model.lora_rank": 8}, "lora.merge"),
        ("remax baselines", {"algorithm.adv_estimator": "remax"}, "no baselines"),
    ):
        assert text in refused(checks[subject](make_case(keys)))


def test_a_checkpoint_of_training_is_a_model(make_case: MakeCase, tmp_path: Path) -> None:
    folder = tmp_path / "global_step_3/actor/huggingface"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"max_position_embeddings": 64}')
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("3")
    case = make_case({MODEL: str(tmp_path)})
    assert only(configuration.model(case)).status is Status.OK
    assert case.model.config["max_position_embeddings"] == 64


def test_a_folder_with_another_run_is_a_problem(
    make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert only(configuration.run_folder(make_case())).status is Status.OK
    assert not (tmp_path / "outputs").exists()
    config = make_case().config
    assert config is not None
    with RunFolder(config) as run:
        (run.path / "metrics.jsonl").touch()
    assert only(configuration.run_folder(make_case())).status is Status.OK
    assert "data.seed is 7, was" in refused(configuration.run_folder(make_case({"data.seed": 7})))
