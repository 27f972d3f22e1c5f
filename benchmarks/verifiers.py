"""The same greedy episodes, evaluated by verifiers 0.4 and by `agent-rl eval` through one endpoint, one at a time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_rl.data import read_parquet
from agent_rl.evaluation.sources import serve
from agent_rl.launch.composition import compose
from agent_rl.trajectory import trace
from agent_rl.verl_adapter.checkpoints import model_folder
from benchmarks.namespaces import ROOT

VERIFIERS = Path(os.environ.get("VERIFIERS_DIR", f"{sys.prefix}/verifiers"))
"""Where `make bench` puts verifiers, with what it needs."""
PEERS = ROOT / "tests/support/bench"
NAME, REPLY_TOKENS = "policy", 256


def run_program(program: str, arguments: dict[str, Any]) -> Any:
    """Execute a program of `PEERS` in verifiers' environment, and return the JSON of its last line."""
    programs = VERIFIERS.absolute() / "bin"
    command = [str(programs / "python"), str(PEERS / program), json.dumps(arguments, default=str)]
    paths = {"PYTHONPATH": f"{ROOT}{os.pathsep}{PEERS}", "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | paths, timeout=3600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def agreement(recipe: Path, words: list[str], model: Path, rows: Path, folder: Path) -> dict[str, int]:
    """Evaluate a ReAct model on rows with both, greedily in float32.

    Args:
        recipe: the recipe whose instructions, limits and reward count.
        words: its overrides.
        model: the model's folder, or a checkpoint.
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
    turns = config.actor_rollout_ref.rollout.multi_turn.max_assistant_turns
    limits = {"turns": turns, "max_tokens": REPLY_TOKENS}
    arguments = {"url": url, "model": NAME, "rows": folder / "problems.json", "folder": folder / "verifiers"}
    episodes: list[dict[str, Any]] = run_program("verifiers_react.py", arguments | limits)
    return episodes


def _our_episodes(
    url: str, recipe: Path, words: list[str], rows: Path, folder: Path
) -> dict[str, tuple[list[str], float | None]]:
    command = [
        *(sys.executable, "-m", "agent_rl.cli.main", "eval", "--recipe", recipe, "--data", rows, "--endpoint", url),
        *("--model", NAME, "--out", folder / "ours", *words, "concurrency=1", "sampling.temperature=0"),
        f"sampling.max_response_tokens={REPLY_TOKENS}",
    ]
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return {
        each.row["extra_info"]["question"]: (
            [turn.text for turn in each.turns],
            each.score.components["correctness"] if each.score else None,
        )
        for each in trace.read(folder / "ours/trajectories.jsonl")
    }
