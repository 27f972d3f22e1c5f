"""Two steps of the GSM8K recipe with verl's real trainer and the real engine, started by a user's own script."""

import json
import math
import re
import statistics
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from agent_rl.cli.main import app
from agent_rl.data import arithmetic, gsm8k, write_parquet
from agent_rl.data.sources import read_raw
from agent_rl.evaluation.run_certificate import certify_run
from agent_rl.launch.command import trainer_command
from agent_rl.trajectory import Trajectory, trace
from agent_rl.trajectory.selection import FATES
from tests.e2e.conftest import Outside, gone, marked_run
from tests.e2e.training import run_alone, write_record

ROOT = Path(__file__).parents[2]
GSM8K = ROOT.parent / "shared/data/gsm8k"

RECIPE = ROOT / "recipes/gsm8k_calculator"
TOOLS = "tools: [{name: calculator}, {name: python}]"

pytestmark = pytest.mark.engine


def rows(split: str, count: int) -> list[dict[str, Any]]:
    """GSM8K where it is at hand, generated problems elsewhere."""
    if GSM8K.is_dir():
        examples = [raw.value for raw in islice(read_raw(GSM8K / f"{split}.jsonl"), count)]
        return [gsm8k.to_row(e, split, i, agent_name="weights_probe") for i, e in enumerate(examples)]
    train, test = arithmetic.train_test(0, count, count)
    problems = {"train": train, "test": test}[split]
    return [arithmetic.to_row(p, split, i, agent_name="weights_probe") for i, p in enumerate(problems)]


@dataclass(frozen=True)
class Run:
    """What two steps of training have left."""

    folder: Path
    model: Path
    logged: dict[int, dict[str, Any]]
    """Each step's metrics."""
    processes: list[str]
    """Command lines of processes that were left."""
    files: set[str]
    """Left outside its folder."""

    def trajectories(self) -> list[Trajectory]:
        return list(trace.read(self.folder / "trace.jsonl", tokens=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Run:
    folder = tmp_path_factory.mktemp("run")
    for split in ("train", "test"):
        write_parquet(rows(split, 8), folder / f"{split}.parquet")
    (folder / "tools.yaml").write_text(TOOLS)
    arguments = [
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/test.parquet",
        f"actor_rollout_ref.model.path={tiny_llama}",
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={folder}/tools.yaml",
        "actor_rollout_ref.actor.optim.lr=0.01",
        "trainer.save_freq=1",
        f"agent_rl.run.folder={folder}",
        "trainer.logger=[console,file,tensorboard,wandb]",
        "trainer.log_val_generations=2",
        f"hydra.run.dir={folder}/hydra",
    ]
    command = trainer_command(RECIPE, arguments, script=ROOT / "tests/e2e/probe_train.py")
    write_record(folder, RECIPE, arguments)
    logged: dict[int, dict[str, Any]] = {}
    with marked_run(PROBE_DIR=str(folder)) as find, pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for name in ("WANDB_API_KEY", "WANDB_MODE"):  # wandb refuses to start
            patch.delenv(name, raising=False)
        patch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
        patch.setenv("WANDB_DIR", str(folder))
        outside = Outside(patch)
        run_alone(command, folder / "out", on_metrics=logged.__setitem__, timeout_s=400)
        return Run(folder, tiny_llama, logged, gone(find, 0), outside.left())


def test_every_trajectory_is_traced(run: Run) -> None:
    trajectories = run.trajectories()
    assert len(trajectories) == 8 + 2 * 4 * 2 + 8  # validation, two steps of 4 prompts with 2 samples, validation
    assert {each.agent for each in trajectories} == {"weights_probe"}


def test_a_logger_that_cannot_be_started_does_not_touch_the_run(run: Run) -> None:
    said = "agent_rl: the wandb logger could not be started (UsageError: No API key configured."
    assert (run.folder / "out/train.log").read_text().count(said) == 1


def test_tensorboard_has_every_metric_and_readable_samples(run: Run) -> None:
    events = EventAccumulator(str(run.folder / "out/tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == {name for metrics in run.logged.values() for name in metrics}
    texts = [each.tensor_proto.string_val[0].decode() for each in events.Tensors("val/generations/text_summary")]
    assert len(texts) == 2
    assert "\n    [user]\n" in texts[0]
    assert "\n    [assistant]\n" in texts[0]


def test_every_metric_of_ours_is_in_the_reference(run: Run) -> None:
    """None has a character that a sink refuses (MLflow's, without what verl replaces itself)."""
    page = (ROOT / "docs/reference/metrics.md").read_text()
    known = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    known |= {name.replace("<fate>", fate) for name in known for fate in FATES}
    values = {name for each in run.trajectories() if each.score for name in each.score.components}
    components = {f"agent/{name}{part}" for name in values for part in ("", "_open")}
    names = {name for metrics in run.logged.values() for name in metrics}
    ours = {name for name in names if name.startswith(("agent/", "data/"))}
    assert len(ours) > 15
    assert ours - components - known == set()
    assert [name for name in sorted(names) if not re.fullmatch(r"[/\w.\- :]+", name.replace("@", "_at_"))] == []


def test_nothing_is_left(run: Run) -> None:
    assert run.processes == []
    assert run.files == set()


def test_masks_and_log_probs_are_right_and_what_is_wrong_would_be_seen(run: Run, tmp_path: Path) -> None:
    """Of the first step, whose policy is the model as it was given."""
    first = [each for each in run.trajectories() if each.info["split"] == "train" and each.info["step"] == 1]
    assert len(first) == 8
    for each in first:
        trace.append(tmp_path / "trace.jsonl", each)
    arguments = ["audit", "tokens", f"{tmp_path}/trace.jsonl", "--tokenizer", str(run.model), "--model", str(run.model)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    sequence = first[0].info["tokens"]["sequences"][0]
    sequence["mask"][0] = 0
    trace.append(tmp_path / "broken.jsonl", first[0])
    arguments[2] = str(tmp_path / "broken.jsonl")
    assert CliRunner().invoke(app, arguments).exit_code == 1


def test_the_run_has_its_certificate(run: Run) -> None:
    """Its weights of both steps are here: the model, and the checkpoint of step 1."""
    lines = {line.check: line for line in certify_run(run.folder)}
    assert {name: line.problems for name, line in lines.items() if line.status == "problem"} == {}
    checked = {name for name, line in lines.items() if line.status == "ok"}
    assert checked >= {"tokens", "masks", "log-probs", "sampling", "rewards", "advantages", "dropped"}
    assert "step 1 " in lines["log-probs"].text
    assert "step 2 " in lines["log-probs"].text


def test_every_batch_is_kept_with_the_advantages_it_was_trained_with(run: Run) -> None:
    """Those of GRPO: distances from the group's mean in its standard deviations."""
    batches = list(trace.read_batches(run.folder / "trace.jsonl"))
    assert [(batch.step, batch.update, len(batch.names)) for batch in batches] == [(1, 0, 8), (2, 0, 8)]
    trained = [each for each in run.trajectories() if each.info["split"] == "train"]
    assert sorted(name for batch in batches for name in batch.names) == sorted(f"{each.id}_0" for each in trained)
    totals = {each.id: each.score.total for each in trained if each.score}
    rows = trace.read_trained_rows(run.folder / "trace.jsonl", list(totals))
    for id, total in totals.items():
        group = [totals[other] for other in totals if other.rpartition("_")[0] == id.rpartition("_")[0]]
        expected = (total - statistics.fmean(group)) / (statistics.stdev(group) + 1e-6)
        assert rows[id][0].advantage == pytest.approx(expected, abs=1e-4)


def test_the_metrics_of_each_step(run: Run) -> None:
    assert sorted(run.logged) == [0, 1, 2]
    for step in (1, 2):
        metrics = run.logged[step]
        assert metrics["training/rollout_probs_diff_mean"] < 1e-5
        assert metrics["actor/grad_norm"] >= 0
        assert metrics["agent/unscored"] == 0
        for key in ("correctness", "efficiency", "format", "acc", "tool_calls", "malformed_rate", "stop_max_tokens"):
            assert math.isfinite(metrics[f"agent/{key}"])
        assert metrics["actor/kl_loss"] < (1e-6 if step == 1 else 1.0)  # the reference policy is where the policy began
        total = metrics["agent/correctness"] + metrics["agent/efficiency"] + 0.2 * metrics["agent/format"]
        assert metrics["critic/score/mean"] == pytest.approx(total, abs=1e-5)
    names = {key.split("/")[-2] for key in run.logged[2] if key.startswith("val-")}
    assert {"reward", "acc", "correctness", "efficiency", "format", "tool_calls"} <= names


def test_the_workers_are_forks_of_the_server(run: Run) -> None:
    assert "agent_rl.cpu.fork_server" in (run.folder / "parent.txt").read_text().split()


def test_programs_run_inside_verls_workers(run: Run) -> None:
    """What they were forked from is gone with the workers."""
    for step in (1, 2):
        parent, value = (run.folder / f"python_{step}.txt").read_text().split()
        assert value == "10"
        assert not psutil.pid_exists(int(parent))


def test_the_engines_weights_in_step_2_are_the_trainers_after_the_update_of_step_1(run: Run) -> None:
    import torch

    path = run.folder / "checkpoints/global_step_1/actor/model_world_size_1_rank_0.pt"
    state = torch.load(path, weights_only=False, map_location="cpu")
    first = json.loads((run.folder / "engine_1.json").read_text())
    second = json.loads((run.folder / "engine_2.json").read_text())
    for name, values in second.items():
        tensor = state[name]
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        assert torch.equal(torch.tensor(values), tensor[: len(values)]), name
    assert first != second
