"""The receipt of an experiment: what was run on what, and what came out of it, written by the run alone.

`results/receipt.json` has the command, versions and machine, hashes of the configuration, reward and rows, and for
every variant and seed the success on held-out rows before and after training, with that of the world's policies.
`curve.csv` and `curve.png` beside it have the success in training by step.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.cpu import switch as cpu
from agent_rl.cpu.profile import TRAINING_THREADS, profile_of
from agent_rl.evaluation.experiments.cold_start import ColdStart
from agent_rl.evaluation.experiments.outcome import Judgement, RunOutcome
from agent_rl.launch import resolution
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.trajectory.estimates import Estimate
from agent_rl.trajectory.viewer.charts import Chart

__all__ = ["RECEIPT", "check", "hashes", "machine", "verdicts", "write_curve"]

RECEIPT = "receipt.json"
GAIN = 0.1
"""What the interval of the gain has to lie above, on every seed."""
ABOVE = 0.2
"""How much better than the world's baselines (a policy without the tool) a trained one has to be, on every seed."""
SPEARMAN, SPEARMAN_GAIN = 0.7, 0.15
"""What a model that scores answers has to reach, and how far above its start and the baselines, on every seed."""


def verdicts(
    outcomes: Sequence[RunOutcome],
    policies: Mapping[str, Estimate],
    judgements: Mapping[str, Judgement] | None = None,
    baselines: Sequence[str] = ("no_tool",),
) -> dict[str, bool]:
    """What a CPU version must reach, and whether it does on every seed; without a seed nothing does that asks for one.

    Args:
        outcomes: of the seeds.
        policies: the success of the world's policies.
        judgements: those of policies that score answers.
        baselines: names of policies.
    """

    def always(held: Iterable[bool]) -> bool:
        return bool(outcomes) and all(held)

    found = {
        "gain_interval_above_0.1": always((each.gain.low or 0.0) > GAIN for each in outcomes),
        "oracle_is_1": policies["oracle"].mean == 1.0,
    }
    for name in baselines:
        found[f"{name}_at_least_0.2_below"] = always(
            each.after.mean - policies[name].mean >= ABOVE for each in outcomes
        )
    if judgements:
        known = [each.judgements for each in outcomes]
        best = max(judgements[name].spearman for name in baselines)
        found["spearman_at_least_0.7"] = always(after.spearman >= SPEARMAN for _, after in known)
        found["spearman_0.15_above_start_and_baselines"] = always(
            after.spearman >= max(before.spearman, best) + SPEARMAN_GAIN for before, after in known
        )
    return found


def hashes(recipe: str, overrides: Sequence[str] = ()) -> dict[str, str]:
    """Hashes of the composed configuration with its tool file, the reward, and the rows with all that the world writes.

    The reward is hashed with its defaults, however much of it is written, so that another default is another reward.
    The rows of a data set are left out where it is not at hand.
    """
    start = ColdStart(recipe, overrides)
    tools = Path(str(start.config.actor_rollout_ref.rollout.multi_turn.tool_config_path))
    configuration, settings = resolution.resolved(start.config), AgentRLSettings.from_config(start.config)
    configuration.get(SECTION, {}).pop("reward", None)
    parts = {"configuration": configuration, "reward": effective(settings.reward.model_dump(mode="json"))}
    texts = {name: _portable(json.dumps(part, sort_keys=True, default=str)) for name, part in parts.items()}
    texts["configuration"] += tools.read_text(encoding="utf-8") if tools.is_file() else ""
    found = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return {**found, "rows": start.rows_digest()} if start.has_rows() else found


def effective(value: Any) -> Any:
    """Settings without what is null, 0 or empty: a new key that is off by default changes nothing."""
    if not isinstance(value, dict):
        return value
    return {key: left for key, each in value.items() if (left := effective(each))}


def _portable(text: str) -> str:
    return text.replace(str(Path.cwd()), ".").replace(f'"{os.environ.get("HOME")}/', '"~/')


def machine(model: Path) -> dict[str, Any]:
    """The processor of the machine, and torch's threads in a run with a model: in each process, and where it trains."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    found = {"cpu": next(names, platform.machine()), "cores": os.cpu_count()}
    if not cpu.is_selected():
        return {**found, "torch_threads": os.environ.get("OMP_NUM_THREADS")}
    profile = profile_of(model)
    with profile.in_environment():
        threads = cpu.child_environment()["OMP_NUM_THREADS"]
        training = os.environ.get(TRAINING_THREADS, threads)
        return {**found, "torch_threads": threads, "training_threads": training, "products": profile.dtype}


def check(recipe: Path) -> list[str]:
    """What of a recipe's receipts no longer fits the recipe, in words; nothing where it has none."""
    problems = []
    for file in sorted((recipe / "results").rglob(RECEIPT)):
        receipt = json.loads(file.read_text())
        known, now = receipt["hashes"], hashes(str(recipe), receipt.get("overrides", ()))
        remedy = f"run VERL_PLATFORM=cpu {receipt['command']} again"
        problems += [f"{file}: the {name} has changed since: {remedy}" for name in now if known.get(name) != now[name]]
    return problems


def write_curve(folder: Path, runs: Mapping[str, RunOutcome], policies: Mapping[str, Estimate], title: str) -> None:
    """Write `curve.csv` and `curve.png`.

    Args:
        folder: exists.
        runs: by name.
        policies: drawn as lines, with their success on the held-out rows.
        title: of the plot.
    """
    with open(folder / "curve.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("run", "step", "success"))
        writer.writerows((name, step, round(value, 6)) for name, run in runs.items() for step, value in run.curve)
    held_out = {
        name: [(step, each.mean, each.low, each.high)
               for step, each in ((0, run.before), (run.curve[-1][0] if run.curve else 0, run.after))]
        for name, run in runs.items()
    }  # fmt: skip
    Chart(
        f"{title}: success in training (dots: held-out rows)",
        lines={name: run.curve for name, run in runs.items()},
        marks=held_out,
        levels={name.replace("_", " "): policy.mean for name, policy in policies.items()},
    ).write_png(folder / "curve.png")
