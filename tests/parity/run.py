"""Trains with a scripted engine and compares the metrics with those of other code: `make parity AGAINST=../main`.

    python -m tests.parity.run OUT.json [CASE ...] [--against PLACE]

Everything but the engine is real: verl's trainer, Ray, TransferQueue, the updates of a tiny model. Metrics that do not
measure time are equal to the last digit when the same code runs twice on one machine.

PLACE is an earlier OUT.json of this machine, a folder with another checkout (run with the Python of its `.venv`, else
with this one), or an environment that `make test VERL=` has made, which runs this checkout. Without it the code is
compared with itself.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.parity.cases import CASES, PROMPTS, SAMPLES, STEPS, Case

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
TIMES = re.compile(r"^(timing_s|timing_per_token_ms)/|^(actor/|critic/)?perf/|(?<!/stop_max)_seconds(/|$)")
"""Metrics that measure time or memory."""
LIMIT_S = 400
MAIN = "from agent_rl.cli.main import main; main()"
PACKAGES = ("verl", "TransferQueue", "ray", "torch", "transformers", "peft")
VERSIONS = f"import importlib.metadata as m, json; print(json.dumps({{name: m.version(name) for name in {PACKAGES}}}))"

Metrics = dict[str, dict[str, Any]]
"""Name to value, of each step."""


def make_inputs(folder: Path) -> None:
    """The rows, a policy and a classifier, which all cases share."""
    from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_model, make_tokenizer
    from agent_rl.data import arithmetic, write_parquet

    for name, make in (("policy", make_model), ("classifier", make_classifier)):
        tokenizer = make_tokenizer(CORPUS, folder / name, 512)
        make(folder / name, tokenizer, hidden=48, layers=2, heads=4, max_positions=4096)
    problems = arithmetic.train_test(0, 8 * STEPS * PROMPTS, PROMPTS)
    for agent in {case.agent for case in CASES.values()}:
        for split, its in zip(("train", "test"), problems, strict=True):
            rows = [arithmetic.to_row(each, split, at, agent_name=agent) for at, each in enumerate(its)]
            for row in rows:
                row["reward_model"] = {**row["reward_model"], "ground_truth": "7"}  # an answer of the script
            write_parquet(rows, folder / f"{agent}_{split}.parquet")


def overrides(case: Case, inputs: Path, folder: Path, last: int) -> list[str]:
    values = {
        "data.train_files": f"{inputs}/{case.agent}_train.parquet",
        "data.val_files": f"{inputs}/{case.agent}_test.parquet",
        "data.train_batch_size": PROMPTS,
        "data.shuffle": False,
        "data.max_prompt_length": 256,
        "data.max_response_length": 256,
        "actor_rollout_ref.model.path": f"{inputs}/policy",
        "actor_rollout_ref.actor.optim.lr": 0.001,
        "actor_rollout_ref.actor.ppo_mini_batch_size": PROMPTS if case.is_asynchronous else PROMPTS // 2,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": PROMPTS,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": PROMPTS,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": PROMPTS,
        "actor_rollout_ref.rollout.n": SAMPLES,
        "trainer.val_before_train": False,
        "trainer.test_freq": STEPS,
        "trainer.total_training_steps": last,
        "trainer.save_freq": -1,
        "agent_rl.run.folder": folder,
        "hydra.run.dir": f"{folder}/hydra",
    }
    own = [each.replace("CLASSIFIER", f"{inputs}/classifier") for each in case.overrides]
    given = {each.partition("=")[0] for each in own}
    return [*own, *(f"{key}={value}" for key, value in values.items() if key not in given)]


def train(case: Case, inputs: Path, folder: Path, python: str, code: Path) -> Metrics:
    """The metrics of each step, and of each sync of the weights."""
    weights = folder / "weights.jsonl"
    ahead = {"prompts": PROMPTS, "samples": SAMPLES} if case.is_asynchronous else None
    paths = [str(HERE), str(code), *filter(None, [os.environ.get("PYTHONPATH")])]
    script = {"turns": case.turns, "ahead": ahead, "weights": str(weights)}
    environment = os.environ | {
        "VERL_PLATFORM": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(paths),
        "VERL_USE_EXTERNAL_MODULES": "scripted_engine",
    }
    for resumed, last in zip((0, *case.stops), case.stops, strict=False):
        environment["PARITY_SCRIPT"] = json.dumps({**script, "resumed": resumed})
        command = [python, "-c", MAIN, "train", str(code / "recipes" / case.recipe)]
        command += overrides(case, inputs, folder / "run", last)
        done = subprocess.run(
            ["timeout", str(LIMIT_S), *command], cwd=code, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            print(f"{done.stdout[-2000:]}{done.stderr[-2000:]}\nThe log is {folder}/run/train.log")
            return {"failed": {"exit status": done.returncode}}
    logged = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    steps: Metrics = {str(each["step"]): each["data"] for each in logged}
    for at, line in enumerate(weights.read_text().splitlines()):
        steps[f"sync {at}"] = json.loads(line)
    return steps


def differences(one: Metrics, other: Metrics) -> list[str]:
    """What differs, without times: a line for each metric of a step."""
    if failed := [each["failed"] for each in (one, other) if "failed" in each]:
        return [f"{len(failed)} of the two runs failed: {failed}"]
    lines = []
    for step in sorted({*one, *other}):
        mine, its = (
            {name: value for name, value in each.get(step, {}).items() if not TIMES.search(name)}
            for each in (one, other)
        )
        for name in sorted({*mine, *its}):
            values = [repr(each.get(name, "absent")) for each in (mine, its)]
            if values[0] != values[1]:
                lines.append(f"step {step} {name}: {values[0]} and {values[1]}")
    return lines


def interpreter(place: Path) -> tuple[Path, Path]:
    """Python and the checkout that it runs, for an environment or a checkout."""
    if (place / "bin/python").exists():
        return place.absolute() / "bin/python", ROOT
    python = place.absolute() / ".venv/bin/python"
    return python if python.exists() else Path(sys.executable), place.absolute()


def measured(place: Path, names: Iterable[str], inputs: Path, work: Path) -> dict[str, Any]:
    """The metrics of the cases, with the versions that made them."""
    python, code = interpreter(place)
    executable = str(python)
    environment = os.environ | {"PYTHONPATH": str(code)}
    versions = subprocess.check_output([executable, "-c", VERSIONS], env=environment, cwd=code)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=code, capture_output=True, text=True, check=False).stdout
    cases: dict[str, Metrics] = {}
    for name in names:
        begun = time.monotonic()
        cases[name] = train(CASES[name], inputs, work / name, executable, code)
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    return {"versions": {**json.loads(versions), "commit": commit.strip()}, "cases": cases}


def report(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Print what differs in the cases that both have; whether nothing does."""
    both = [name for name in one["cases"] if name in other["cases"]]
    equal = True
    for name in sorted({*one["versions"], *other["versions"]}):
        values = [each["versions"].get(name, "absent") for each in (one, other)]
        print(f"{name}: {' and '.join(dict.fromkeys(values))}")
    for name in both:
        lines = differences(one["cases"][name], other["cases"][name])
        print(f"{name}: {f'{len(lines)} differences' if lines else 'equal'}", *lines[:20], sep="\n  ")
        equal = equal and not lines
    return equal and bool(both)


def main() -> int:
    parser = argparse.ArgumentParser(description="Train with a scripted engine, and compare the metrics.")
    parser.add_argument("out", type=Path)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--against", type=Path, default=ROOT, metavar="PLACE")
    options = parser.parse_args()
    if not options.against.exists():
        parser.error(f"--against: there is no {options.against}")
    if unknown := {*options.cases} - {*CASES}:
        parser.error(f"there is no case {', '.join(sorted(unknown))}: {', '.join(CASES)}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="parity_"))
    make_inputs(work / "inputs")
    mine = measured(ROOT, options.cases, work / "inputs", work / "this")
    options.out.write_text(json.dumps(mine, indent=1) + "\n")
    if options.against.is_file():
        other = json.loads(options.against.read_text())
    else:
        other = measured(options.against, options.cases, work / "inputs", work / "other")
        options.out.with_suffix(".other.json").write_text(json.dumps(other, indent=1) + "\n")
    if not report(mine, other):
        print(f"The runs are in {work}")
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
