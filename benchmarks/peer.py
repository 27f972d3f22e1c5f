"""Trains SmolLM2 on SVAMP's problems with TRL's GRPOTrainer and with agent_rl: `make bench-peer`.

    python -m benchmarks.peer [seeds]  # 3 unless given

It needs SVAMP's rows and SmolLM2, as recipes/svamp_calculator/README.md makes them, and makes the recipe's cold-started
model unless it is there. Both sides train this model on the same prompts in the same order, with the same tool, reward,
optimizer, batch and number of samples; a malformed turn ends an episode, as in TRL. Each training runs in namespaces of
its own (`unshare`), and all CPU-seconds of their processes count. `agent-rl eval` scores the trained models on the
held-out rows; verifiers 0.4 repeats a greedy evaluation. The results are results/peer.json and peer.png of the recipe.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil

from agent_rl.data import read_parquet, write_parquet
from agent_rl.evaluation.experiments.cold_start import ColdStart
from agent_rl.launch.composition import compose
from agent_rl.launch.process import NEW_METRICS
from agent_rl.launch.run_folder import machine, versions
from agent_rl.trajectory.run_files import read_metrics
from agent_rl.trajectory.viewer.charts import Chart
from benchmarks.namespaces import ROOT, execute_inside, mount_empty
from benchmarks.peers import STEPS, TRL, StepClock, agreement, train_with_trl

RECIPE = ROOT / "recipes/svamp_calculator"
RESULTS = RECIPE / "results"
WORK = ROOT / "outputs/peer"
SIZE = "size=smollm2"
SIDES = ("agent_rl", "TRL")
DIFFERENCES = (
    "TRL divides an advantage by the group's standard deviation plus 1e-4, verl by the deviation plus 1e-6.",
    "TRL samples with transformers, a whole batch turn by turn; agent_rl samples with SGLang, each episode by itself.",
    "TRL computes in float32; agent_rl multiplies in bfloat16 where the processor can (products, under machine).",
    "TRL answers a call of an unknown tool with {'error': ...}, agent_rl with a sentence that names the tools.",
    "Equal seeds do not give equal samples.",
)


def main(seeds: int) -> None:
    """Train both sides with each seed in turn, evaluate the models, and write the results."""
    if not TRL.is_dir():
        sys.exit("TRL is not installed: make bench-peer does it")
    os.environ["VERL_PLATFORM"] = "cpu"
    start = ColdStart(str(RECIPE), [SIZE])
    start.make()
    config = start.config
    runs = {side: [_run(side, seed, config) for seed in range(1, seeds + 1)] for side in SIDES}
    record = {
        "command": "make bench-peer",
        "versions": {**versions(), "trl": _version_of_trl()},
        "machine": machine(start.model),
        "differences": DIFFERENCES,
        "ratio": {key: _mean(runs["agent_rl"], key) / _mean(runs["TRL"], key) for key in ("seconds", "cpu_seconds")},
        "verifiers": agreement(
            RECIPE, [SIZE], _trained(WORK / "agent_rl/1"), Path(config.data.val_files), WORK / "verifiers"
        ),
        "runs": runs,
    }
    (RESULTS / "peer.json").write_text(json.dumps(record, indent=1) + "\n")
    curves = {side: list(zip(*(run["reward"] for run in runs[side]), strict=True)) for side in SIDES}
    Chart(
        f"reward by step: mean and range of {seeds} seeds",
        lines={side: [(step, fmean(each)) for step, each in enumerate(curve, 1)] for side, curve in curves.items()},
        bands={
            side: [(step, min(each), max(each)) for step, each in enumerate(curve, 1)] for side, curve in curves.items()
        },
    ).write_png(RESULTS / "peer.png")
    print(json.dumps(record["ratio"]))


def _run(side: str, seed: int, config: Any) -> dict[str, Any]:
    """Return a side's training with one seed; a finished one is read from its file."""
    folder = WORK / side / str(seed)
    kept = folder / "result.json"
    if not kept.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _write_rows(folder, seed, config)
        execute_inside("benchmarks.peer", "--inside", side, str(seed)).check_returncode()
        steps = json.loads((folder / "steps.json").read_text())
        kept.write_text(json.dumps({"seed": seed, **steps, "held_out": _held_out(folder, seed)}))
        print(side, kept.read_text(), flush=True)
    result: dict[str, Any] = json.loads(kept.read_text())
    return result


def _write_rows(folder: Path, seed: int, config: Any) -> None:
    """Write the rows of all steps in the seed's order, for both sides."""
    rows = read_parquet(Path(config.data.train_files))
    order = np.random.default_rng(seed).permutation(len(rows))[: _count(config)]
    chosen = [rows[at] for at in order]
    write_parquet(chosen, folder / "rows.parquet")
    system = {"role": "system", "content": config.agent_rl.react.instructions}
    prompts = [
        {"prompt": [system, *row["prompt"]], "ground_truth": row["reward_model"]["ground_truth"]} for row in chosen
    ]
    (folder / "rows.json").write_text(json.dumps(prompts))


def _train(side: str, seed: int) -> None:
    """Train in these namespaces, and write the seconds, CPU-seconds, rewards, calls and tokens of each step."""
    folder, config = WORK / side / str(seed), compose(str(RECIPE), [SIZE])
    file = folder / "run" / (STEPS if side == "TRL" else NEW_METRICS)
    file.parent.mkdir()
    with StepClock(file, _cpu_seconds) as clock:
        if side == "TRL":
            options = _options(config, seed)
            lines = train_with_trl(_model(config), folder / "rows.json", file.parent, options)
            found = {key: [line[key] for line in lines] for key in ("reward", "tool_calls", "response_tokens")}
        else:
            words = [
                SIZE, f"data.train_files={folder}/rows.parquet", "data.shuffle=false", f"data.seed={seed}",
                "agent_rl.budget.max_malformed=1", "trainer.val_before_train=false", "trainer.test_freq=-1",
                f"trainer.save_freq={config.trainer.total_training_steps}", f"agent_rl.run.folder={file.parent}",
            ]  # fmt: skip
            command = [sys.executable, "-m", "agent_rl.cli.main", "train", str(RECIPE), *words]
            with (folder / "printed").open("wb") as printed:
                subprocess.run(command, stdout=printed, stderr=printed, cwd=ROOT, check=True)
            names = {
                "reward": "critic/score/mean",
                "tool_calls": "agent/tool_calls",
                "response_tokens": "response_length/mean",
            }
            lines = read_metrics(file.parent)
            found = {key: [line[name] for line in lines] for key, name in names.items()}
    costs = {"seconds": clock.times, "cpu_seconds": clock.costs}
    found |= {key: [round(late - early, 2) for early, late in pairwise(own)] for key, own in costs.items()}
    (folder / "steps.json").write_text(json.dumps(found))


def _options(config: Any, seed: int) -> dict[str, Any]:
    """Return the recipe's settings as arguments of GRPOConfig."""
    optimizer, samples = config.actor_rollout_ref.actor.optim, config.actor_rollout_ref.rollout.n
    micro = config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu
    return {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": config.data.train_batch_size * samples // micro,
        "num_generations": samples,
        "max_completion_length": config.data.max_response_length,
        "max_tool_calling_iterations": config.actor_rollout_ref.rollout.multi_turn.max_assistant_turns - 1,
        "learning_rate": optimizer.lr,
        "weight_decay": optimizer.weight_decay,
        "max_grad_norm": optimizer.clip_grad,
        "lr_scheduler_type": "constant",
        "loss_type": "dapo",  # the mean over the tokens of all responses, verl's token-mean
        "max_steps": config.trainer.total_training_steps,
        "bf16": False,
        "seed": seed,
    }


def _held_out(folder: Path, seed: int) -> dict[str, float]:
    """Return the trained model's success on the held-out rows at temperature 1, with its interval."""
    words = ["--recipe", RECIPE, "--model", _trained(folder), "--out", folder / "eval", SIZE, f"seed={seed}", "--json"]
    command = [sys.executable, "-m", "agent_rl.cli.main", "eval", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    success: dict[str, float] = json.loads(done.stdout)["all"]["pass"]["1"]
    return success


def _trained(folder: Path) -> Path:
    """Return the trained model of a side: TRL's folder, or the checkpoint."""
    run = folder / "run"
    return run if (run / "config.json").is_file() else next((run / "checkpoints").glob("global_step_*"))


def _cpu_seconds() -> float:
    """Return the CPU-seconds of all processes here but this one, and of those that they have waited for."""
    others = (process for process in psutil.process_iter() if process.pid != os.getpid())
    return sum(sum(process.cpu_times()[:4]) for process in others)


def _version_of_trl() -> str:
    (trl,) = distributions(name="trl", path=[str(TRL)])
    return trl.version


def _mean(runs: list[dict[str, Any]], key: str) -> float:
    return fmean(value for run in runs for value in run[key])


def _count(config: Any) -> int:
    return int(config.data.train_batch_size * config.trainer.total_training_steps)


def _model(config: Any) -> Path:
    return ROOT / str(config.actor_rollout_ref.model.path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        mount_empty()
        _train(sys.argv[2], int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
