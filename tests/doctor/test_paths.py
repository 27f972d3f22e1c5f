import os
import shutil
from pathlib import Path

import pytest

from agent_rl.doctor import paths
from agent_rl.doctor.finding import Status

from .conftest import MakeCase, only

MODEL = "actor_rollout_ref.model.path"


def test_a_whole_model(make_case: MakeCase) -> None:
    finding = only(paths.model(make_case()))
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
    finding = only(paths.model(make_case({MODEL: str(tmp_path / "model")})))
    assert finding.status is Status.PROBLEM
    assert f"lacks {text}" in finding.text


def test_a_download_that_was_cut_short(make_case: MakeCase, tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    os.truncate(tmp_path / "model" / "model.safetensors", 300_000)
    assert "model.safetensors incomplete" in only(paths.model(make_case({MODEL: str(tmp_path / "model")}))).text


@pytest.mark.parametrize("name", ["/nowhere/model", "outputs/no_such_model", "recipes/model", "models/a/b", "~/none"])
def test_a_folder_that_is_not_there(make_case: MakeCase, name: str) -> None:
    finding = only(paths.model(make_case({MODEL: name})))
    assert finding.status is Status.PROBLEM
    assert "tiny_model" in finding.remedy


def test_the_tiny_model_is_made_by_the_launcher(
    make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = make_case({MODEL: "outputs/tiny_model"})
    object.__setattr__(case, "folder", tmp_path)
    assert only(paths.model(case)).status is Status.SKIPPED


def test_values_that_are_missing(make_case: MakeCase) -> None:
    assert not list(paths.values(make_case()))
    finding = only(paths.values(make_case({"trainer.experiment_name": "${oc.env:NO_SUCH_VARIABLE}"})))
    assert finding.text == "trainer.experiment_name: the environment variable NO_SUCH_VARIABLE is not set"


def test_a_hub_name_is_not_asked_for(make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    keys = {MODEL: "Qwen/Qwen2.5-3B-Instruct"}
    assert only(paths.model(make_case(keys))).status is Status.SKIPPED
    assert only(paths.model(make_case(keys, environ={"HF_HUB_OFFLINE": "0"}))).status is Status.SKIPPED
    offline = only(paths.model(make_case(keys, environ={"HF_HUB_OFFLINE": "1"})))
    assert offline.status is Status.PROBLEM
    assert "Unset HF_HUB_OFFLINE" in offline.remedy


def test_trajectories_longer_than_the_context(make_case: MakeCase) -> None:
    assert only(paths.context(make_case())).text == "1024 + 256 of 2048 tokens"
    assert only(paths.context(make_case({"data.max_response_length": 2048}))).status is Status.PROBLEM
    assert only(paths.context(make_case({MODEL: "some/model"}))).status is Status.SKIPPED


def test_outputs_that_cannot_be_written(make_case: MakeCase, tmp_path: Path) -> None:
    assert only(paths.outputs(make_case({"trainer.save_freq": 1}))).status is Status.OK
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "trace.jsonl")
    finding = only(paths.outputs(make_case({"agent_rl.trace.path": below})))
    assert (finding.subject, finding.status) == ("agent_rl.trace.path", Status.PROBLEM)
    keys = {"trainer.default_local_dir": below}
    assert only(paths.outputs(make_case(keys))).status is Status.OK  # no checkpoint is written
    assert only(paths.outputs(make_case({**keys, "trainer.save_freq": 1}))).status is Status.PROBLEM


@pytest.mark.parametrize(("step", "status"), [("1", "warning"), ("2", "problem")])
def test_a_checkpoint_that_the_run_would_resume_from(
    make_case: MakeCase, tmp_path: Path, step: str, status: str
) -> None:
    keys = {"trainer.default_local_dir": str(tmp_path), "trainer.total_training_steps": 2}
    assert not list(paths.resume(make_case(keys)))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(step)
    finding = only(paths.resume(make_case(keys)))
    assert finding.status.value == status
    assert "trainer.resume_mode=disable" in finding.remedy
    assert not list(paths.resume(make_case({**keys, "trainer.resume_mode": "disable"})))
