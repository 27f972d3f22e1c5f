import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.launch.run_folder import RunFolder, folder_of, machine
from agent_rl.launch.stopping import Aborted, StoppedRun

SECRET = "sk-0123456789abcdef"


def config(folder: Path | None, **changes: Any) -> DictConfig:
    made = OmegaConf.create(
        {
            "trainer": {
                "experiment_name": "mine",
                "default_local_dir": "${agent_rl.run.folder}/checkpoints",
                "resume_mode": "auto",
                "total_epochs": 1,
            },
            "data": {"train_files": None, "seed": 1},
            "agent_rl": {"run": {"folder": str(folder) if folder else None}, "tool": None, "api_key": None},
        }
    )
    for key, value in changes.items():
        OmegaConf.update(made, key.replace("__", "."), value, force_add=True)
    return made


def begin(folder: Path, *, steps: bool = True, checkpoint: int | None = None, **changes: Any) -> RunFolder:
    """A start of a run, and what it leaves behind."""
    with RunFolder(config(folder, **changes), ["agent-rl", "train"]) as run:
        if steps:
            (folder / "metrics.jsonl").touch()
        if checkpoint is not None:
            (folder / "checkpoints").mkdir(exist_ok=True)
            (folder / "checkpoints/latest_checkpointed_iteration.txt").write_text(str(checkpoint))
    return run


def test_the_folder_is_named_after_the_experiment(here: Path) -> None:
    assert folder_of(config(None)) == here / "outputs/mine"
    assert folder_of(config(here / "other")) == here / "other"


def test_run_json_says_what_was_started_and_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    (tmp_path / "tools.yaml").write_text("tools: [{class_name: 'mine.py:A'}]")
    (tmp_path / "mine.py").write_text("class A: ...")
    given = config(tmp_path, agent_rl__api_key="typed-in-full", agent_rl__tool=f"{tmp_path}/tools.yaml")
    given.data.train_files = [f"{tmp_path}/mine.py:A"]
    with RunFolder(given, ["agent-rl", "agent_rl.api_key=typed-in-full", f"x={SECRET}"], str(tmp_path / "mine.py")):
        text = (tmp_path / "run.json").read_text()
    run = json.loads(text)
    assert SECRET not in text
    assert "typed-in-full" not in text
    assert run["configuration"]["data"]["seed"] == 1
    assert {key: [Path(file["path"]).name for file in files] for key, files in run["files"].items()} == {
        "agent_rl.tool": ["tools.yaml"],
        "data.train_files": ["mine.py"],
        "--script": ["mine.py"],
    }
    assert len(run["started"]) == 1
    assert {"agent_rl", "python"} <= set(run["versions"])


def test_the_same_configuration_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    begin(tmp_path, checkpoint=7)
    run = begin(tmp_path, trainer__total_epochs=9)
    assert run.notes == ["the run resumes from step 7"]
    assert len(json.loads((tmp_path / "run.json").read_text())["started"]) == 2


def test_another_configuration_is_refused_with_the_keys_that_differ(tmp_path: Path) -> None:
    begin(tmp_path, checkpoint=7)
    with pytest.raises(ConfigError, match=r"data\.seed is 2, was 1\. Choose a different trainer") as caught:
        begin(tmp_path, data__seed=2)
    assert "total_epochs" not in caught.value.problem
    begin(tmp_path)  # the folder is free again


def test_starting_from_scratch_keeps_the_earlier_run(tmp_path: Path) -> None:
    begin(tmp_path, checkpoint=7)
    traces = {"trace.jsonl", "trace.1.jsonl", "trace.tokens.jsonl", "trace.batches.jsonl", "trace.images"}
    for name in traces:
        (tmp_path / name).touch()
    run = begin(tmp_path, data__seed=2, trainer__resume_mode="disable")
    (earlier,) = (tmp_path / "earlier").iterdir()
    assert run.notes == [f"the earlier run is in {earlier}"]
    assert {path.name for path in earlier.iterdir()} == {"run.json", "metrics.jsonl", "checkpoints", *traces}
    assert json.loads((tmp_path / "run.json").read_text())["configuration"]["data"]["seed"] == 2


def test_checkpoints_on_another_disk_stay_on_it(tmp_path: Path) -> None:
    run, disk = tmp_path / "run", tmp_path / "disk"
    disk.mkdir()
    run.mkdir()
    (run / "checkpoints").symlink_to(disk)
    for seed in (1, 2, 3):
        begun = begin(run, checkpoint=seed, data__seed=seed, trainer__resume_mode="disable")
    kept = sorted((disk / "earlier").glob("*/latest_checkpointed_iteration.txt"))
    assert [file.read_text() for file in kept] == ["1", "2"]
    assert (run / "checkpoints/latest_checkpointed_iteration.txt").read_text() == "3"
    places = [max((folder / "earlier").iterdir()) for folder in (run, run / "checkpoints")]
    assert begun.notes == [f"the earlier run is in {places[0]} and {places[1]}"]


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (None, "trained", None),
        (ConfigError("data.seed", f"no {SECRET}", "Change it"), "failed", "data.seed: no [redacted]. Change it"),
        (Aborted(signal.SIGTERM), "aborted", "ended by SIGTERM"),
    ],
)
def test_run_json_says_how_the_run_ended(
    error: BaseException | None, status: str, text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    with suppress(ConfigError, Aborted), RunFolder(config(tmp_path)):
        assert "end" not in json.loads((tmp_path / "run.json").read_text())
        if error is not None:
            raise error
    end = json.loads((tmp_path / "run.json").read_text())["end"]
    assert (end["status"], end.get("error")) == (status, text)
    begin(tmp_path, trainer__total_epochs=2)  # the end is not compared


def test_a_run_that_was_asked_to_end_has_stopped(tmp_path: Path) -> None:
    with RunFolder(config(tmp_path)) as run:
        run.stopped = StoppedRun(3, "checkpoints/global_step_3", "agent-rl train")
    assert json.loads((tmp_path / "run.json").read_text())["end"]["status"] == "stopped"


def test_a_run_without_a_step_or_a_checkpoint_is_no_obstacle(tmp_path: Path) -> None:
    begin(tmp_path, steps=False)
    assert begin(tmp_path, data__seed=2).notes == []
    assert "it has no checkpoint" in begin(tmp_path, data__seed=2).notes[0]


def test_changed_data_is_refused_and_changed_code_is_reported(tmp_path: Path) -> None:
    for name in ("rows.parquet", "mine.py"):
        (tmp_path / name).write_text("1")
    files = {"data__train_files": f"{tmp_path}/rows.parquet", "agent_rl__tool": f"{tmp_path}/mine.py:Tool"}
    begin(tmp_path, checkpoint=1, **files)
    (tmp_path / "rows.parquet").rename(tmp_path / "moved.parquet")
    files["data__train_files"] = f"{tmp_path}/moved.parquet"
    assert begin(tmp_path, **files).notes == ["the run resumes from step 1"]
    (tmp_path / "mine.py").write_text("2")
    assert begin(tmp_path, **files).notes[0] == f"agent_rl.tool: the content of {tmp_path}/mine.py has changed"
    (tmp_path / "moved.parquet").write_text("2")
    with pytest.raises(ConfigError, match=r"data\.train_files: the content of .*moved\.parquet has changed"):
        begin(tmp_path, **files)


def test_two_processes_cannot_train_into_one_folder(tmp_path: Path) -> None:
    with (
        RunFolder(config(tmp_path), []),
        pytest.raises(ConfigError, match="another process is using"),
        RunFolder(config(tmp_path), []),
    ):
        pass


def test_the_threads_are_those_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setattr("agent_rl.cpu.profile.is_users_own", lambda name: False)
    cores = len(os.sched_getaffinity(0))
    small, large = machine(tmp_path), machine(Path("org/large"))
    threads = small["torch_threads"], small["training_threads"], small["products"]
    assert threads == ("1", str(min(2, cores)), "float32")
    assert large["torch_threads"] == large["training_threads"] == str(cores)


def test_a_model_is_recognized_by_the_ends_of_its_files(tmp_path: Path) -> None:
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text("{}")
    (model / "empty.bin").touch()
    weights, digests = bytearray(3 << 20), []
    for place in (0, len(weights) - 1, None):
        (model / "model.safetensors").write_bytes(weights)
        digests.append(begin(tmp_path / "run", actor_rollout_ref__model__path=str(model)).record["model"])
        if place is not None:
            weights[place] = 1
    assert [sorted(each) for each in digests] == [["config.json", "empty.bin", "model.safetensors"]] * 3
    assert len({each["model.safetensors"] for each in digests}) == 3
    assert digests[0]["config.json"] == digests[2]["config.json"]
