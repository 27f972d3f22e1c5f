"""What an experiment says of a variant that cannot run, and how one that was killed goes on."""

import json
import subprocess
import sys
import time

import pytest
from rich.console import Console

from agent_rl.evaluation.experiments.experiment import Experiment, _values, comparison
from tests.e2e.conftest import run_processes
from tests.evaluation.experiments.test_cold_start import ROOT, start

__all__ = ["run_processes", "start"]

pytestmark = pytest.mark.trainer

SHORT = ["trainer.total_training_steps=3", "trainer.test_freq=3", "trainer.save_freq=1", "data.train_batch_size=8",
         "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.rollout.n=2"]  # fmt: skip
PROGRAM = """
import sys
from pathlib import Path
from agent_rl.evaluation.experiments.experiment import Experiment

recipe, seeds, folder, *words = sys.argv[1:]
experiment = Experiment(recipe, int(seeds), words, Path(folder))
experiment.run(Path(folder) / "results")
sys.exit(bool(experiment.failed))
"""


def test_a_variant_that_fails_is_reported_and_leaves_no_receipt(start, tiny_recipe, tmp_path, capsys):
    experiment = Experiment(str(tiny_recipe), 1, ["data.val_files=a.parquet,b.parquet"], tmp_path / "runs")
    receipt = experiment.run(tmp_path / "results")
    assert list(receipt["failed"]) == [f"data.val_files={name}.parquet seed 1" for name in "ab"]
    assert "there is no a.parquet" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()
    assert json.dumps(receipt)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1", ["1"]),
        ("]", ["]"]),
        ("grpo,rloo", ["grpo", "rloo"]),
        ("[a,b],[c]", ["[a,b]", "[c]"]),
        ("'a,b',c", ["'a,b'", "c"]),
    ],
)
def test_commas_outside_of_brackets_separate_values(text, values):
    assert _values(f"a.b={text}") == [f"a.b={value}" for value in values]


def test_a_run_is_shown_by_its_words_with_their_brackets(capsys):
    estimate = {"mean": 0.5, "low": 0.4, "high": 0.6}
    run = {**dict.fromkeys(("before", "after", "gain"), estimate), "training_seconds": 9}
    Console(width=200).print(comparison({"runs": {"data.train_files=[a,b] seed 1": run}, "policies": {}}))
    assert "data.train_files=[a,b] seed 1" in capsys.readouterr().out


def test_a_single_held_out_row_has_no_interval(capsys):
    one = {"mean": 1.0, "low": None, "high": None, "rows": 1}
    run = {"before": one, "after": one, "gain": one, "training_seconds": 9.0}
    Console(width=200).print(comparison({"runs": {"seed 1": run}, "policies": {}}))
    assert "1.000" in capsys.readouterr().out


@pytest.mark.engine
@pytest.mark.recipes
@pytest.mark.timeout(900)
def test_a_killed_experiment_goes_on_from_its_checkpoint(start, tiny_recipe, tmp_path, run_processes):
    def begin():
        with open(tmp_path / "output.log", "a") as output:
            command = [sys.executable, "-c", PROGRAM, str(tiny_recipe), "2", str(tmp_path / "runs"), *SHORT]
            return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)

    killed = begin()
    tracker = "seed_1/checkpoints/latest_checkpointed_iteration.txt"
    deadline = time.monotonic() + 300
    while not list((tmp_path / "runs").glob(f"*/*/{tracker}")):
        assert killed.poll() is None, (tmp_path / "output.log").read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    while run_processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    (first,) = (tmp_path / "runs").glob("*/*/seed_1")
    assert not (first / "done").exists()
    assert begin().wait(600) == 0, (tmp_path / "output.log").read_text()[-2000:]
    steps = [json.loads(line)["step"] for line in (first / "metrics.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == [0, 1, 2, 3]
    started = {
        each: json.loads((first.with_name(each) / "run.json").read_text())["started"] for each in ("seed_1", "seed_2")
    }
    assert [len(each) for each in started.values()] == [2, 1]
    assert not (first / "earlier").exists()
    receipt = json.loads((tmp_path / "runs/results/receipt.json").read_text())
    assert [run["steps"] for run in receipt["runs"].values()] == [3, 3]
    assert receipt["machine"]["torch_threads"] == "1"
    written = (first / "trace.jsonl").stat().st_mtime_ns
    again = Experiment(str(tiny_recipe), 2, SHORT, tmp_path / "runs").run(tmp_path / "again")
    assert again["runs"] == receipt["runs"]
    assert (first / "trace.jsonl").stat().st_mtime_ns == written
