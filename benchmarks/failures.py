"""Compares trainings in which 5% of the trajectories fail with undisturbed ones: `make failures`.

    python -m benchmarks.failures  # writes docs/reference/failures.json

The quickstart's model trains for 20 steps with a calculator on a server and a judge on a server. A trajectory fails for
one of four reasons, with equal probability: the tool's server or the judge answers with status 500, the engine refuses
a request, or the session breaks after a turn. Each failure costs one sample: nothing is tried again. Eight seeds train
with and without failures, in turns. Then the first seed runs once more both ways with a learning rate of 0, which shows
how far the mean reward of the trajectories that do not fail is from that of all.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from statistics import fmean, stdev
from typing import Any

from agent_rl.data import arithmetic, write_parquet
from agent_rl.launch.run_folder import machine, versions
from agent_rl.trajectory.estimates import estimate_mean
from benchmarks.namespaces import ROOT
from benchmarks.services import TOOL_FILE, calculated, judge_word, judged, write_tool_file
from benchmarks.training_run import RECIPE
from tests.e2e.training import train
from tests.support.http_faults import FaultyServer, answer

RESULTS = ROOT / "docs/reference/failures.json"
WORK = ROOT / "outputs/failures"
SCRIPT = ROOT / "tests/support/bench/failing_sessions.py"
SEEDS, STEPS, PROMPTS, SAMPLES = range(8), 20, 16, 8
SHARE, KINDS = 0.05, 4
CALLS = 1.25
"""Mean number of calls of a trajectory; the tool's server sees calls, not trajectories."""


def run(seed: int, share: float, *, is_frozen: bool = False) -> dict[str, Any]:
    """Train with one seed, and return the number of scored trajectories, the seconds and the rewards of its steps."""
    folder = WORK / f"seed_{seed}_share_{share}_frozen_{is_frozen}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for split, problems in zip(("train", "test"), arithmetic.train_test(seed, STEPS * PROMPTS, 16), strict=True):
        rows = [arithmetic.to_row(each, split, at, agent_name="failing") for at, each in enumerate(problems)]
        write_parquet(rows, folder / f"{split}.parquet")
    each = share / KINDS
    os.environ.update(VERL_PLATFORM="cpu", FAILING_SHARE=str(each))
    tools, judges = _failing(calculated, each / CALLS), _failing(judged, each)
    with FaultyServer(default=tools) as tool, FaultyServer(default=judges) as judge:
        logged = train(
            folder,
            RECIPE / "model",
            judge_word(judge.url, attempts=1),
            agent="failing",
            script=SCRIPT,
            **{TOOL_FILE: write_tool_file(folder, tool.url, attempts=1)},
            **({"actor_rollout_ref.actor.optim.lr": 0.0} if is_frozen else {}),
            data__seed=seed,
            data__train_batch_size=PROMPTS,
            data__max_prompt_length=128,
            data__max_response_length=448,
            actor_rollout_ref__actor__ppo_mini_batch_size=PROMPTS,
            actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=16,
            actor_rollout_ref__rollout__n=SAMPLES,
            actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu=16,
            reward__reward_manager__name="trajectory",
            reward__custom_reward_function__path="null",
            trainer__total_training_steps=STEPS,
            trainer__rollout_data_dir="null",
        )
        assert tool.requests, "no trajectory has called the tool's server"
        assert judge.requests, "no trajectory has been judged"
    steps = [logged[step] for step in sorted(logged) if step > 0]
    unscored = [int(metrics.get("agent/unscored", 0)) for metrics in steps]
    return {
        "seed": seed,
        "share": share,
        "is_frozen": is_frozen,
        "unscored": unscored,
        "step_s": [round(metrics["timing_s/step"], 2) for metrics in steps],
        "reward": [round(metrics["critic/score/mean"], 4) for metrics in steps],
    }


def _failing(healthy: Callable[[Any], None], share: float) -> Callable[[Any], None]:
    draws = random.Random(0)

    def step(handler: Any) -> None:
        (answer(500) if draws.random() < share else healthy)(handler)

    return step


def compared(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the share of failed trajectories, the ratio of scored trajectories per second, and the reward curves."""
    trained = [each for each in runs if not each["is_frozen"]]
    failing, clean = ([each for each in trained if bool(each["share"]) is hit] for hit in (True, False))
    frozen = {"failing" if each["share"] else "undisturbed": each["reward"] for each in runs if each["is_frozen"]}

    def per_second(own: list[dict[str, Any]]) -> float:
        scored = sum(PROMPTS * SAMPLES - lost for each in own for lost in each["unscored"][1:])
        return scored / sum(sum(each["step_s"][1:]) for each in own)

    # For each 5 steps, the mean reward of each seed.
    alone, hit = (list(zip(*(_of_5_steps(each["reward"]) for each in own), strict=True)) for own in (clean, failing))
    changes = [[[b - a] for a, b in zip(*pair, strict=True)] for pair in zip(alone, hit, strict=True)]
    return {
        "unscored_share": fmean(lost for each in failing for lost in each["unscored"]) / (PROMPTS * SAMPLES),
        "per_second": {"failing": per_second(failing), "undisturbed": per_second(clean)},
        "ratio": per_second(failing) / per_second(clean),
        "rewards_of_5_steps": {
            "undisturbed": [[round(min(part), 3), round(max(part), 3)] for part in alone],
            "failing": [round(fmean(part), 3) for part in hit],
            "difference": [estimate_mean(each).plain(3) for each in changes],
        },
        "frozen": {
            name: {"mean": round(fmean(own), 4), "error": round(stdev(own) / len(own) ** 0.5, 4)}
            for name, own in frozen.items()
        },
    }


def _of_5_steps(rewards: list[float]) -> list[float]:
    """Return the mean of each 5 steps."""
    return [fmean(rewards[start : start + 5]) for start in range(0, STEPS, 5)]


def main() -> None:
    """Execute all runs, and write the result."""
    runs = []
    for seed, share, is_frozen in [
        *((seed, share, False) for seed in SEEDS for share in (0.0, SHARE)),
        *((SEEDS[0], share, True) for share in (0.0, SHARE)),
    ]:
        runs.append(run(seed, share, is_frozen=is_frozen))
        print(time.strftime("%H:%M:%S"), json.dumps(runs[-1]), flush=True)
    record = {
        "command": "make failures",
        "versions": versions(),
        "machine": machine(RECIPE / "model"),
        **compared(runs),
        "runs": runs,
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    del record["runs"], record["versions"], record["machine"]
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
