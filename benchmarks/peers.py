"""Runs TRL and verifiers, which `make bench` installs beside the environment, on what agent_rl is given.

Each peer has programs of its own in tests/support/bench, which read their arguments as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent_rl.data import read_parquet
from agent_rl.evaluation.sources import serve
from agent_rl.launch.composition import compose
from agent_rl.trajectory import trace
from agent_rl.verl_adapter.checkpoints import model_folder
from benchmarks.namespaces import ROOT

TRL = Path(os.environ.get("TRL_DIR", f"{sys.prefix}/trl"))
"""A folder of its own: where verl finds a TRL, it imports a class that TRL 1 no longer has."""
VERIFIERS = Path(os.environ.get("VERIFIERS_DIR", f"{sys.prefix}/verifiers"))
"""An environment of its own, with what verifiers needs."""
PROGRAMS = ROOT / "tests/support/bench"
STEPS = "steps.jsonl"
"""The file, in the folder of TRL's trainer, that has a line for each step."""
NAME = "policy"
"""Name of a served model."""


def train_with_trl(
    model: Path, rows: Path, out: Path, options: Mapping[str, Any], tool_s: float = 0.0
) -> list[dict[str, float]]:
    """Train with TRL's GRPOTrainer; the arguments are those of trl_step.py.

    Returns:
        For each step, the means of `reward`, `tool_calls` and `response_tokens`.
    """
    arguments = {"model": model, "rows_path": rows, "out": out, "options": options, "tool_s": tool_s}
    environment = {
        name: value for name, value in os.environ.items() if name not in ("VERL_PLATFORM", "OMP_NUM_THREADS")
    }
    environment |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{TRL}", "HF_HOME": f"{out}/cache"}
    _execute(Path(sys.executable), "trl_step.py", arguments, environment)
    return [json.loads(line) for line in (out / STEPS).read_text().splitlines()]


def run_in_verifiers(program: str, arguments: Mapping[str, Any]) -> Any:
    """Execute a program in verifiers' environment, and return the JSON of its last line."""
    programs = VERIFIERS.absolute() / "bin"
    paths = {"PYTHONPATH": f"{ROOT}{os.pathsep}{PROGRAMS}", "PATH": f"{programs}:{os.environ['PATH']}"}
    printed = _execute(programs / "python", program, arguments, os.environ | paths)
    return json.loads(printed.splitlines()[-1])


def _execute(python: Path, program: str, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    command = [str(python), str(PROGRAMS / program), json.dumps(arguments, default=str)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program} failed: {done.stderr[-3000:]}")
    return done.stdout


class StepClock(threading.Thread):
    """Notes when each line of a file was written, and what `cost` returned then; a line is a step that has ended.

    Args:
        path: the file, which may not exist yet.
        cost: returns something that grows, such as CPU-seconds.
    """

    def __init__(self, path: Path, cost: Callable[[], float] = float) -> None:
        super().__init__()
        self.path, self.cost = path, cost
        self.times, self.costs, self.ended = list[float](), list[float](), threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.01):
            lines = self.path.read_bytes().count(b"\n") if self.path.exists() else 0
            if lines > len(self.times):
                self.costs += [self.cost()] * (lines - len(self.times))
                self.times += [time.perf_counter()] * (lines - len(self.times))

    def __enter__(self) -> StepClock:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()


def agreement(recipe: Path, words: list[str], model: Path, rows: Path, folder: Path) -> dict[str, int]:
    """Play the same greedy episodes in float32 with verifiers and with `agent-rl eval`, one after the other.

    Args:
        recipe: the recipe whose instructions, limits and reward count.
        words: its overrides.
        model: folder of a ReAct model with a calculator, or a checkpoint.
        rows: the rows' file.
        folder: a new folder for what both write.

    Returns:
        The number of `episodes`, those of which all replies are the `same_text`, and those with the `same_result`.
    """
    folder.mkdir(parents=True)
    return asyncio.run(_agreement(recipe, words, model, rows, folder))


async def _agreement(recipe: Path, words: list[str], model: Path, rows: Path, folder: Path) -> dict[str, int]:
    async with serve(model_folder(str(model), "model"), NAME, folder / "server.log", ["--dtype", "float32"]) as url:
        theirs = await asyncio.to_thread(_their_episodes, url, recipe, words, rows, folder)
        ours = await asyncio.to_thread(_our_episodes, url, recipe, words, rows, folder)
    pairs = [(ours[each["prompt"]], (each["replies"], each["reward"])) for each in theirs]
    return {
        "episodes": len(pairs),
        "same_text": sum(own[0] == their[0] for own, their in pairs),
        "same_result": sum(own[1] == their[1] for own, their in pairs),
    }


def _their_episodes(url: str, recipe: Path, words: list[str], rows: Path, folder: Path) -> list[dict[str, Any]]:
    config = compose(str(recipe), words)
    problems = [
        {
            "prompt": row["prompt"][0]["content"],
            "system_prompt": config.agent_rl.react.instructions or None,
            "answer": row["reward_model"]["ground_truth"],
        }
        for row in read_parquet(rows)
    ]
    (folder / "problems.json").write_text(json.dumps(problems))
    arguments = {"url": url, "model": NAME, "rows": folder / "problems.json", "folder": folder / "verifiers"}
    limits = {
        "turns": config.actor_rollout_ref.rollout.multi_turn.max_assistant_turns,
        "max_tokens": config.data.max_response_length,  # of a reply; agent_rl's limit is for a whole episode
    }
    episodes: list[dict[str, Any]] = run_in_verifiers("verifiers_react.py", arguments | limits)
    return episodes


def _our_episodes(
    url: str, recipe: Path, words: list[str], rows: Path, folder: Path
) -> dict[str, tuple[list[str], float | None]]:
    command = [
        *(sys.executable, "-m", "agent_rl.cli.main", "eval", "--recipe", recipe, "--data", rows, "--endpoint", url),
        *("--model", NAME, "--out", folder / "ours", *words, "concurrency=1", "sampling.temperature=0"),
    ]
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return {
        each.row["extra_info"]["question"]: (
            [turn.text for turn in each.turns],
            each.score.components["correctness"] if each.score else None,
        )
        for each in trace.read(folder / "ours/trajectories.jsonl")
    }
