"""verl's loggers in threads of their own: what they are sent arrives, and none of them can stop or delay a run."""

import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from verl.utils import tracking

from agent_rl.verl_adapter import sinks

NAMES = {"agent/acc": 0.5, "agent/stop_max_tokens": 0.0, "data/share/math": 1.0, "val-core/gsm8k/acc/mean@1": 0.25}
SAMPLES = [
    ["system\nBe careful.\nuser\nWhat is 6*7?\nassistant\n", "<b>I</b> look.\nuser\n42\nassistant\nIt is 42.", 0.9]
]
SHOWN = [
    "[system]\nBe careful.\n\n[user]\nWhat is 6*7?",
    "[assistant]\n<b>I</b> look.\n\n[user]\n42\n\n[assistant]\nIt is 42.",
]


@pytest.fixture(autouse=True)
def apart(monkeypatch, here):
    """Nothing was reported yet; verl's loggers write into this folder."""
    monkeypatch.setattr(sinks, "_reported", set())
    for name, value in {
        "VERL_FILE_LOGGER_PATH": here / "metrics.jsonl", "TENSORBOARD_DIR": here / "tensorboard",
        "WANDB_MODE": "offline", "WANDB_DIR": here, "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"file://{here}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))


def logged(backends, steps=3):
    """A run's logging; returns the longest time that one call took."""
    made = tracking.Tracking("my_project", "my_run", backends, {"trainer": {}})
    log = tracking.ValidationGenerationsLogger("my_project", "my_run").log
    longest = 0.0
    for step in range(1, steps + 1):
        start = time.monotonic()
        made.log(data={**NAMES, "training/global_step": step}, step=step)
        sinks.log_samples(log, backends, SAMPLES, step)
        longest = max(longest, time.monotonic() - start)
    made.finish()
    return longest


def test_names_and_readable_samples_arrive_in_tensorboard_mlflow_and_wandb(tmp_path, capfd):
    mlflow = pytest.importorskip("mlflow")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged(["file", "tensorboard", "mlflow", "wandb"])
    assert "agent_rl:" not in capfd.readouterr().out
    assert sinks.conversation(" \n", "assistant") == "[assistant]"  # an answer without words
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(NAMES) < set(events.Tags()["scalars"])
    assert [each.step for each in events.Scalars("agent/acc")] == [1, 2, 3]
    (text,) = events.Tensors("val/generations/text_summary")[0].tensor_proto.string_val
    assert "\n    [user]\n    What is 6*7?\n" in text.decode()

    client = mlflow.MlflowClient(f"file://{tmp_path}/mlruns")
    (run,) = client.search_runs([client.get_experiment_by_name("my_project").experiment_id])
    assert {name.replace("@", "_at_") for name in NAMES} < set(run.data.metrics)
    assert (run.info.run_name, run.info.status) == ("my_run", "FINISHED")
    kept = Path(client.download_artifacts(run.info.run_id, "val_step1.json")).read_text()
    assert json.loads(kept) == [{"input": SHOWN[0], "output": SHOWN[1], "score": 0.9}]

    (written,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    end = time.monotonic() + 30
    while not all(name.encode() in written.read_bytes() for name in NAMES):  # wandb's own process writes it
        assert time.monotonic() < end, "names are missing"
        time.sleep(0.1)
    (table,) = tmp_path.glob("wandb/offline-run-*/files/media/table/val/generations_3_*.json")
    assert json.loads(table.read_text())["data"][-1] == [3, *SHOWN, 0.9]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_sink_that_cannot_be_started_is_reported_and_the_others_go_on(tmp_path, monkeypatch, capfd):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "file/below"))
    logged(["file", "tensorboard"])
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    (said,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("agent_rl:")]
    assert said.startswith("agent_rl: the tensorboard logger could not be started (NotADirectoryError: ")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("agent_rl-tensorboard")] == []


def test_a_server_that_does_not_answer_delays_nothing(tmp_path, monkeypatch, capfd):
    """MLflow waits for it two minutes, and would then ask again; here its thread ends with the server."""
    pytest.importorskip("mlflow")
    server = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.getsockname()[1]}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(sinks, "FINISH_S", 0.3)
    start = time.monotonic()
    assert logged(["file", "mlflow"], steps=sinks.MOST_WAITING) < 0.5
    assert time.monotonic() - start < 3
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == sinks.MOST_WAITING
    said = [line for line in capfd.readouterr().out.splitlines() if line.startswith("agent_rl:")]
    behind, unanswered = said
    first_lost = sinks.MOST_WAITING // 2  # or the next step, if the thread has begun with the first metrics
    assert re.search(rf"the mlflow logger does not keep up: .*step ({first_lost}|{first_lost + 1}) and others", behind)
    assert "the mlflow logger did not answer for 0.3 s at the end of the run" in unanswered
    server.close()


def test_a_disk_that_is_full_does_not_end_a_run(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", "/dev/full")
    made = tracking.Tracking("my_project", "my_run", ["file"], {})
    for step in (1, 2):
        made.log(data=NAMES, step=step)
    made.finish()
    assert capfd.readouterr().out.count("agent_rl: the file logger failed in step 1 (OSError: [Errno 28]") == 1


def test_a_name_that_verl_does_not_know_is_refused():
    with pytest.raises(AssertionError, match="no_such is not supported"):
        tracking.Tracking("my_project", "my_run", ["no_such"], {})
