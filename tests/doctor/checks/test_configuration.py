import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_rl.doctor.checks import configuration
from agent_rl.doctor.diagnosis import all_checks
from agent_rl.launch import training
from agent_rl.launch.run_folder import RunFolder
from agent_rl.preflight.check import Status
from tests.doctor.conftest import MakeCase, only, refused

MODEL = "actor_rollout_ref.model.path"


def test_a_complete_model_passes_with_its_parameter_count(make_case: MakeCase) -> None:
    finding = only(configuration.model(make_case()))
    assert finding.status is Status.OK
    assert "qwen2, 327,168 parameters" in finding.text


@pytest.mark.parametrize(
    ("file", "text"),
    [("config.json", "config.json"), ("tokenizer.json", "a tokenizer"), ("model.safetensors", "weights")],
)
def test_a_file_of_the_model_is_missing(
    make_case: MakeCase, tiny_model: Path, tmp_path: Path, file: str, text: str
) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    (tmp_path / "model" / file).unlink()
    finding = only(configuration.model(make_case({MODEL: str(tmp_path / "model")})))
    assert finding.status is Status.PROBLEM
    assert f"lacks {text}" in finding.text


def test_a_download_that_was_cut_short(make_case: MakeCase, tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    os.truncate(tmp_path / "model" / "model.safetensors", 300_000)
    assert "model.safetensors incomplete" in only(configuration.model(make_case({MODEL: str(tmp_path / "model")}))).text


def test_a_folder_that_is_not_there(make_case: MakeCase) -> None:
    assert not list(training.models_are_there(make_case()))
    for name in ("/nowhere/model", "outputs/no_such_model", "models/a/b", "~/none"):
        case = make_case({MODEL: name})
        assert refused(training.models_are_there(case)).startswith(f"{MODEL}: there is no {name}. An untrained one: ")
        assert not list(configuration.model(case))
    judge = {"agent_rl.reward.models.nice": {"path": "outputs/no_such_model"}}
    assert refused(training.models_are_there(make_case(judge))).startswith("agent_rl.reward.models.nice.path: there is")
    assert refused(configuration.model(make_case({MODEL: "recipes/model"})))


def test_the_tiny_model_is_made_by_the_launcher(
    make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = make_case({MODEL: "outputs/tiny_model"})
    object.__setattr__(case, "folder", tmp_path)
    assert only(configuration.model(case)).status is Status.SKIPPED


def test_values_that_are_missing(make_case: MakeCase) -> None:
    assert not list(configuration.values(make_case()))
    finding = only(configuration.values(make_case({"trainer.experiment_name": "${oc.env:NO_SUCH_VARIABLE}"})))
    assert finding.text == "trainer.experiment_name: the environment variable NO_SUCH_VARIABLE is not set"


def test_a_hub_name_is_not_asked_for(make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    keys = {MODEL: "Qwen/Qwen2.5-3B-Instruct"}
    assert only(configuration.model(make_case(keys))).status is Status.SKIPPED
    assert only(configuration.model(make_case(keys, environ={"HF_HUB_OFFLINE": "0"}))).status is Status.SKIPPED
    offline = only(configuration.model(make_case(keys, environ={"HF_HUB_OFFLINE": "1"})))
    assert offline.status is Status.PROBLEM
    assert "Unset HF_HUB_OFFLINE" in offline.remedy


def test_trajectories_longer_than_the_context(make_case: MakeCase) -> None:
    assert only(configuration.context(make_case())).text == "1024 + 256 of 2048 tokens"
    assert only(configuration.context(make_case({"data.max_response_length": 2048}))).status is Status.PROBLEM
    whole = only(configuration.context(make_case({"data.max_response_length": 1024})))
    assert (whole.status, whole.remedy) == (Status.WARNING, "Set data.max_response_length=1018 or less")
    assert only(configuration.context(make_case({MODEL: "some/model"}))).status is Status.SKIPPED


def test_outputs_that_cannot_be_written(make_case: MakeCase, tmp_path: Path) -> None:
    assert only(configuration.outputs(make_case({"trainer.save_freq": 1}))).status is Status.OK
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "trace.jsonl")
    finding = only(configuration.outputs(make_case({"agent_rl.trace.path": below})))
    assert (finding.subject, finding.status) == ("agent_rl.trace.path", Status.PROBLEM)
    keys = {"trainer.default_local_dir": below}
    assert only(configuration.outputs(make_case(keys))).status is Status.OK  # no checkpoint is written
    assert only(configuration.outputs(make_case({**keys, "trainer.save_freq": 1}))).status is Status.PROBLEM


@pytest.mark.parametrize(("step", "status"), [("1", "warning"), ("2", "problem")])
def test_a_checkpoint_that_the_run_would_resume_from(
    make_case: MakeCase, tmp_path: Path, step: str, status: str
) -> None:
    keys = {"trainer.default_local_dir": str(tmp_path), "trainer.total_training_steps": 2}
    assert not list(configuration.resume(make_case(keys)))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(step)
    finding = only(configuration.resume(make_case(keys)))
    assert finding.status.value == status
    assert "trainer.resume_mode=disable" in finding.remedy
    assert not list(configuration.resume(make_case({**keys, "trainer.resume_mode": "disable"})))


ACTOR = "actor_rollout_ref.actor"


def test_the_recipes_batches_pass(make_case: MakeCase) -> None:
    for on_cpu in (True, False):
        case = make_case(on_cpu=on_cpu)
        assert only(configuration.validation(case)).status is Status.OK
        assert only(configuration.mini_batches(case)).status is Status.OK


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


@pytest.mark.parametrize(
    ("keys", "subject", "status"),
    [
        ({f"{ACTOR}.ppo_mini_batch_size": 3, "trainer.n_gpus_per_node": 4}, "mini-batch", "problem"),
        ({f"{ACTOR}.ppo_mini_batch_size": 3}, "mini-batch", "warning"),
        ({f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3}, "micro-batch", "problem"),
        ({"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 3}, "micro-batch", "problem"),
    ],
)
def test_divisions_that_workers_would_refuse(
    make_case: MakeCase, keys: dict[str, Any], subject: str, status: str
) -> None:
    first = next(configuration.mini_batches(make_case(keys)))
    assert (first.subject, first.status.value) == (subject, status)


def test_the_trainers_checks_are_made_as_well(make_case: MakeCase) -> None:
    checks = {one.subject: one for one in all_checks() if "trainer" in one.at}
    assert len(checks) >= 9
    for subject, keys, text in (
        ("reward workers", {"agent_rl.reward.overlong": {"penalty": 1, "buffer_tokens": 9999}}, "buffer_tokens: 9999"),
        ("on a cpu", {"actor_rollout_ref.model.lora_rank": 8}, "lora.merge"),
        ("remax baselines", {"algorithm.adv_estimator": "remax"}, "no baselines"),
    ):
        assert text in refused(checks[subject].run(make_case(keys)))


def test_tokens_of_a_micro_batch(make_case: MakeCase) -> None:
    finding = next(configuration.mini_batches(make_case({f"{ACTOR}.ppo_max_token_len_per_gpu": 3000}, on_cpu=False)))
    assert finding.status is Status.PROBLEM
    assert "less than the longest prompt and response together, 3072" in finding.text


def test_the_batch_of_the_asynchronous_mode(make_case: MakeCase) -> None:
    keys = {"trainer.v1.trainer_mode": "separate_async", "trainer.v1.separate_async.parameter_sync_step": 2}
    first = next(configuration.mini_batches(make_case(keys)))
    assert first.status is Status.PROBLEM
    assert "Set data.train_batch_size=8" in first.remedy


def test_with_dynamic_batches_micro_batches_do_not_count(make_case: MakeCase) -> None:
    keys = {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3, f"{ACTOR}.use_dynamic_bsz": True}
    assert only(configuration.mini_batches(make_case(keys))).status is Status.OK


def test_a_checkpoint_of_training_is_a_model(make_case: MakeCase, tmp_path: Path) -> None:
    folder = tmp_path / "global_step_3/actor/huggingface"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"max_position_embeddings": 64}')
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("3")
    case = make_case({MODEL: str(tmp_path)})
    finding = only(configuration.model(case))
    assert finding.status is Status.OK
    assert "merged when the run starts" in finding.text
    assert case.model.config["max_position_embeddings"] == 64


def test_a_folder_with_another_run_is_a_problem(
    make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not list(configuration.earlier_run(make_case()))
    assert not (tmp_path / "outputs").exists()
    config = make_case().config
    assert config is not None
    with RunFolder(config) as run:
        (run.path / "metrics.jsonl").touch()
    assert not list(configuration.earlier_run(make_case()))
    assert "data.seed is 7, was" in refused(configuration.earlier_run(make_case({"data.seed": 7})))
