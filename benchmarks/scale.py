"""Measures what a training step costs in CPU-seconds, memory and bytes when it grows, and extrapolates to GPU clusters.

make scale                                  # executes the runs that are missing, then writes docs/reference/scale.md
python -m benchmarks.scale --lengths TRACE  # takes the lengths of trajectories from the trace of a real run

Agent loops, trajectories, rewards, traces, TransferQueue and the trainer are real. The engine, the model's passes and
the latency of tools are simulated (tests/support/bench/simulated_engine.py). CPU-seconds are those of the processes of
a run, so that other load of the machine does not count. Points are stored in docs/reference/scale.json when their run
ends, so the command can be stopped and resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from agent_rl.data import arithmetic, write_parquet
from agent_rl.launch.command import SIZES, trainer_command
from agent_rl.launch.run_folder import machine
from agent_rl.trajectory import trace
from tests.e2e.training import overrides, run_alone

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "tests/support/bench"
LENGTHS, DATA = Path(__file__).with_name("scale_lengths.json"), ROOT / "docs/reference/scale.json"
MODEL, WORK = ROOT / "recipes/quickstart/model", ROOT / "outputs/scale"
PLAYED, SAMPLES = 64, 8
"""Trajectories whose lengths are repeated, and trajectories per prompt."""
ENGINE_TOKENS_S, CONCURRENT, TOOL_S, SLOWER = 20_000, 512, 0.5, 100
"""Tokens per second of a GPU with a 7B model, its requests at once, the seconds of a tool, and the factor by which both
latencies are scaled down."""
LIMIT_S = 5400


class Setting(NamedTuple):
    """What all steps of a run share.

    Attributes:
        workers: agent-loop workers.
        nodes: logical Ray nodes.
        is_repaired: False: with verl's load balancer, and each trajectory stored alone, as in verl.
    """

    workers: int = 4
    nodes: int = 1
    is_repaired: bool = True


class Size(NamedTuple):
    """The trajectories of a step, and factors for their turns and for the tokens of a turn."""

    trajectories: int
    turns: int = 1
    tokens: int = 1


WARM_UP = (Size(64), Size(1024))
"""The first steps of each run, which do not count: processes load what they need."""
SIZES_OF = {
    Setting(): tuple(Size(*each) for each in ((64,), (256,), (256, 5), (256, 5, 20), (1024,), (4096,), (16_384,))),
    **dict.fromkeys(
        (Setting(is_repaired=False), Setting(nodes=4), Setting(16), Setting(nodes=2), Setting(1)), (Size(1024),)
    ),
}

Point = dict[str, Any]
"""The fields of a setting and of a size, with what tests/support/bench/measured_trainer.py has written of the step."""


def main() -> None:
    """Execute the missing runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", type=Path)
    options = parser.parse_args()
    if options.lengths:
        write_lengths(options.lengths)
    points: list[Point] = json.loads(DATA.read_text())["points"] if DATA.is_file() else []
    for setting, sizes in ({} if options.lengths else SIZES_OF).items():
        known = [tuple(point[name] for name in (*Setting._fields, *Size._fields)) for point in points]
        missing = [size for size in sizes if (*setting, *size) not in known]
        if missing:
            print(time.strftime("%H:%M:%S"), setting, missing, flush=True)
            for point in measure(setting, missing):
                points.append(point)
                DATA.write_text(json.dumps({**_provenance(), "points": points}) + "\n")


def write_lengths(path: Path) -> None:
    """Write the lengths of trajectories of a real run, evenly spread over its trace."""
    played = [each for each in trace.read(path) if each.turns and each.error is None]
    chosen = []
    for each in played[:: len(played) // PLAYED][:PLAYED]:
        tokens = [turn.tokens for turn in each.turns]
        observed = each.response_tokens - sum(tokens)
        share = observed // (len(tokens) - 1) if len(tokens) > 1 else 0
        chosen.append([[count, max(1, share)] for count in tokens[:-1]] + [[tokens[-1], 0]])
    LENGTHS.write_text(json.dumps({"data_source": played[0].data_source, "lengths": chosen}) + "\n")


def lengths(size: Size) -> list[list[tuple[int, int]]]:
    """Return tokens and tokens of the observation of each turn of each trajectory; the last turn has none."""
    longer = []
    for turns in json.loads(LENGTHS.read_text())["lengths"]:
        *called, last = turns * size.turns
        between = max(observed for _, observed in turns) or 1
        longer.append([(size.tokens * count, size.tokens * (observed or between)) for count, observed in called])
        longer[-1].append((size.tokens * last[0], 0))
    return longer


def measure(setting: Setting, sizes: Sequence[Size]) -> Iterator[Point]:
    """Execute a run, and yield what it has measured of each size, even if it fails later."""
    steps = [*WARM_UP, *sizes]
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    file = WORK / "measured.jsonl"
    os.environ |= _environment(setting, steps, file)
    _write_rows(max(size.trajectories for size in steps) // SAMPLES)
    command = trainer_command(ROOT / "recipes/quickstart", _words(setting, steps), script=BENCH / "nodes_train.py")
    try:
        run_alone(command, WORK / "out", timeout_s=LIMIT_S)
    finally:
        measured = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
        for size, values in zip(sizes, measured[len(WARM_UP) :], strict=False):
            yield {**setting._asdict(), **size._asdict(), **values}
    shutil.rmtree(WORK)


def _environment(setting: Setting, steps: Sequence[Size], file: Path) -> dict[str, str]:
    simulated = {
        "lengths": [lengths(size) for size in steps],
        "samples": SAMPLES,
        "token_s": CONCURRENT / ENGINE_TOKENS_S / SLOWER,
        "is_repaired": setting.is_repaired,
    }
    (script := file.with_name("simulated.json")).write_text(json.dumps(simulated))
    return {
        "VERL_PLATFORM": "cpu",
        "PYTHONPATH": str(ROOT),
        "VERL_USE_EXTERNAL_MODULES": "tests.support.bench.simulated_engine",
        "SIMULATED": str(script),
        "MEASURED": json.dumps({"file": str(file), "trajectories": [size.trajectories for size in steps]}),
        "NODES": str(setting.nodes),
    }


def _write_rows(prompts: int) -> None:
    problems, _ = arithmetic.train_test(0, prompts, 1)
    rows = [arithmetic.to_row(each, "train", at, agent_name="tool_call_agent") for at, each in enumerate(problems)]
    for split, its in (("train", rows), ("test", rows[:1])):
        write_parquet(its, WORK / f"{split}.parquet")
    tool = {"class_name": f"{BENCH}/slow_words.py:SlowWords", "config": {"seconds": TOOL_S / SLOWER}}
    (WORK / "tools.yaml").write_text(json.dumps({"tools": [tool]}))  # JSON is YAML


def _words(setting: Setting, steps: Sequence[Size]) -> list[str]:
    rollout = "actor_rollout_ref.rollout"
    played = [turns for size in steps for turns in lengths(size)]
    longest = max(sum(count + observed + 96 for count, observed in turns) for turns in played)
    settings = {
        "data.max_prompt_length": 512,
        "data.max_response_length": longest,
        f"{rollout}.n": SAMPLES,
        f"{rollout}.agent.num_workers": setting.workers,
        f"{rollout}.multi_turn.tool_config_path": WORK / "tools.yaml",
        f"{rollout}.multi_turn.max_assistant_turns": 1000,
        f"{rollout}.multi_turn.max_tool_response_length": 1_000_000,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": SAMPLES,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": SAMPLES,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": SAMPLES,
        "reward.num_workers": min(4, setting.workers),
        "reward.reward_manager.name": "trajectory",
        "reward.custom_reward_function.path": "null",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 2 * setting.nodes,
        "ray_kwargs.ray_init.num_cpus": 64,
        "trainer.nnodes": setting.nodes,
        "trainer.total_training_steps": len(steps),
        "trainer.rollout_data_dir": "null",
        "trainer.save_freq": -1,
        "agent_rl.trainer_class": BENCH / "measured_trainer.py:MeasuredTrainer",
        "agent_rl.trace.path": WORK / "trace.jsonl",
    }
    named = {key.replace(".", "__"): value for key, value in settings.items()}
    joining = [f"++ray_kwargs.ray_init.{key}=null" for key in SIZES] if setting.nodes > 1 else []
    return [*overrides(WORK, MODEL, "kl=loss", agent="tool_call_agent", **named), *joining]


def _provenance() -> dict[str, Any]:
    names = ("agent_rl", "verl", "TransferQueue", "ray", "torch", "transformers")
    return {
        "command": "make scale",
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in names}},
        "machine": machine(MODEL),
    }


if __name__ == "__main__":
    os.environ["VERL_PLATFORM"] = "cpu"
    main()
