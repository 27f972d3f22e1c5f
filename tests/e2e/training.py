"""A short run on a CPU: generated problems, a model that was never taught, everything below one folder."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from agent_rl.data import arithmetic, write_parquet
from agent_rl.launch.command import trainer_command
from agent_rl.launch.composition import compose, resolved
from agent_rl.launch.process import run_trainer
from agent_rl.launch.stopping import StoppedRun, StopRequest

ROOT = Path(__file__).parents[2]
PROMPTS = 4
"""In each step, with two samples of each."""


def run_alone(command: Sequence[str], folder: Path, timeout_s: float, **options: Any) -> StoppedRun | None:
    """Run a trainer that keeps nothing outside of its folder but temporary files, which are removed at the end."""
    deadline = time.monotonic() + timeout_s

    def watch() -> None:
        assert time.monotonic() < deadline, f"the trainer has not ended after {timeout_s:.0f} seconds"

    with tempfile.TemporaryDirectory(prefix="agent_rl_", ignore_cleanup_errors=True) as temporary:
        names = {"TMPDIR": temporary, "RAY_TMPDIR": temporary, "HF_HOME": str(folder / "cache")}
        environ = {**os.environ, **names, "RAY_USAGE_STATS_ENABLED": "0"}
        return run_trainer(command, folder, environ=environ, watch=watch, **options)


def write_record(folder: Path, recipe: Path, arguments: Sequence[str]) -> None:
    """Write what `agent-rl train` writes into `run.json`, and a bare trainer does not: configuration and command."""
    record = {"configuration": resolved(compose(recipe, arguments)), "command": trainer_command(recipe, arguments)}
    (folder / "run.json").write_text(json.dumps(record))


def write_problems(folder: Path, agent: str, train: int, test: int) -> None:
    """Write numbers of generated problems for an agent as the rows of both splits."""
    for split, count in (("train", train), ("test", test)):
        problems, _ = arithmetic.train_test(0, count, 1)
        rows = [arithmetic.to_row(each, split, at, agent_name=agent) for at, each in enumerate(problems)]
        write_parquet(rows, folder / f"{split}.parquet")


class KeptRequest(StopRequest):
    """Keeps the trainer's answer."""

    answered: StoppedRun | None = None

    @override
    def answer(self) -> StoppedRun | None:
        self.answered = super().answer()
        return self.answered


def train(
    folder: Path,
    model: Path,
    *groups: str,
    agent: str = "react_agent",
    script: Path | None = None,
    on_step: Callable[[int], None] | None = None,
    stopping: StopRequest | None = None,
    **settings: Any,
) -> dict[int, dict[str, Any]]:
    """Train on the CPU and return each step's metrics.

    Args:
        folder: gets rows, rollouts, checkpoints and logs; a second run in it goes on where the first ended.
        model: what is trained.
        groups: overrides that choose a hydra group or add a key, `tuning=lora`.
        agent: the rows' loop.
        script: an entry point of the test's own.
        on_step: called with each step that is logged.
        stopping: asks the run to end early.
        settings: further overrides; `__` in a name stands for a dot.
    """
    arguments = overrides(folder, model, *groups, agent=agent, **settings)
    write_record(folder, ROOT / "recipes/quickstart", arguments)
    logged: dict[int, dict[str, Any]] = {}

    def keep(step: int, metrics: dict[str, Any]) -> None:
        logged[step] = metrics
        if on_step is not None:
            on_step(step)

    run_alone(
        trainer_command(ROOT / "recipes/quickstart", arguments, script=script),
        folder / "out",
        on_metrics=keep,
        timeout_s=500,
        stopping=stopping,
    )
    return logged


def overrides(folder: Path, model: Path, *groups: str, agent: str = "react_agent", **settings: Any) -> list[str]:
    """The overrides of `train`; the rows are written unless they are there."""
    if not (folder / "train.parquet").exists():
        for split, problems in zip(("train", "test"), arithmetic.train_test(0, 4 * PROMPTS, PROMPTS), strict=True):
            rows = [arithmetic.to_row(p, split, i, agent_name=agent) for i, p in enumerate(problems)]
            write_parquet(rows, folder / f"{split}.parquet")
    given = {
        "data.train_files": f"{folder}/train.parquet",
        "data.val_files": f"{folder}/test.parquet",
        "data.train_batch_size": PROMPTS,
        "data.shuffle": False,
        "data.max_prompt_length": 256,
        "data.max_response_length": 96,
        "actor_rollout_ref.model.path": model,
        "actor_rollout_ref.actor.ppo_mini_batch_size": PROMPTS,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 2 * PROMPTS,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 2 * PROMPTS,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 2 * PROMPTS,
        "actor_rollout_ref.rollout.n": 2,
        "actor_rollout_ref.rollout.multi_turn.tool_config_path": ROOT / "tool_configs/calculator.yaml",
        "reward.reward_manager.name": "naive",
        "reward.custom_reward_function.path": Path(__file__).with_name("varied_reward.py"),
        "trainer.val_before_train": False,
        "trainer.total_training_steps": 2,
        "trainer.logger": "[console,file]",
        "trainer.rollout_data_dir": f"{folder}/rollouts",
        "agent_rl.run.folder": folder,
        "hydra.run.dir": f"{folder}/hydra",
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    return [*groups, *(f"{key}={value}" for key, value in given.items())]


def sums(train: int, test: int = 1) -> dict[str, list[dict[str, Any]]]:
    """So many rows of generated problems."""
    problems = zip(("train", "test"), arithmetic.train_test(0, train, test), strict=True)
    return {split: [arithmetic.to_row(each, split, i) for i, each in enumerate(its)] for split, its in problems}


def train_recipe(
    recipe: str,
    folder: Path,
    rows: dict[str, list[dict[str, Any]]],
    *overrides: str,
    logged: dict[int, dict[str, Any]] | None = None,
) -> dict[int, dict[str, Any]]:
    """Train a recipe in its size for a CPU, on a few rows, and return each step's metrics.

    Args:
        recipe: its name.
        folder: gets rows, trace and logs.
        rows: of `train` and `test`.
        overrides: further ones.
        logged: gets the metrics of each step when it ends.
    """
    logged = {} if logged is None else logged
    for split, its in rows.items():
        write_parquet(its, folder / f"{split}.parquet")
    arguments = [
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/test.parquet",
        "data.shuffle=False",
        "trainer.val_before_train=False",
        "trainer.logger=[console,file]",
        "trainer.resume_mode=disable",
        f"agent_rl.run.folder={folder}",
        f"hydra.run.dir={folder}/hydra",
        *overrides,
    ]
    run_alone(
        trainer_command(ROOT / "recipes" / recipe, arguments),
        folder / "out",
        on_metrics=logged.__setitem__,
        timeout_s=500,
    )
    return logged


def diffs(logged: dict[int, dict[str, Any]]) -> list[float]:
    """How far the engine's probabilities are from the trainer's, in each step."""
    return [metrics["training/rollout_probs_diff_mean"] for metrics in logged.values()]


def rollouts(folder: Path, step: int) -> list[dict[str, Any]]:
    """What verl wrote of each trajectory of a step."""
    with open(folder / f"rollouts/{step}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]  # `splitlines` would split at what a policy may sample, U+2028
