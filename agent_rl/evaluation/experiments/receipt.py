"""The receipt of an experiment, which records the command, the machine and the results; it is never edited by hand.

`results/receipt.json` contains the command, the versions, the machine, and hashes of the configuration, reward and
rows. The file also contains the success on held-out rows, both of the world's policies and of every variant and seed
before and after training. `curve.csv` and `curve.png` next to the receipt show the training success by step.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from agent_rl.evaluation.experiments.cold_start import ColdStart
from agent_rl.evaluation.experiments.outcome import Judgement, RunOutcome
from agent_rl.launch.composition import resolved
from agent_rl.rewards.routing import SCORER_KEY
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.settings.old_keys import old_values
from agent_rl.trajectory.estimates import Estimate
from agent_rl.trajectory.viewer.charts import Chart

RECEIPT = "receipt.json"
GAIN = 0.1
"""For every seed, the confidence interval of the gain must lie entirely above this value."""
ABOVE = 0.2
"""Minimum lead of a trained policy over the world's baselines (such as a policy without the tool), for every seed."""
SPEARMAN, SPEARMAN_GAIN = 0.7, 0.15
"""A trained judge's minimum rank correlation, and its minimum lead over the untrained judge and the baselines."""


def verdicts(
    outcomes: Sequence[RunOutcome],
    policies: Mapping[str, Estimate],
    judgements: Mapping[str, Judgement] | None = None,
    baselines: Sequence[str] = ("no_tool",),
) -> dict[str, bool]:
    """Return for each criterion of a CPU version whether all seeds meet it; without runs, only `oracle_is_1` can hold.

    Args:
        outcomes: the outcomes of the runs, one for each seed.
        policies: success of the world's policies, by name.
        judgements: for policies that score answers, their agreement with the true scores, by name.
        baselines: names of the policies that a trained policy has to beat.
    """

    def always(checks: Iterable[bool]) -> bool:
        return bool(outcomes) and all(checks)

    criteria = {
        "gain_interval_above_0.1": always((outcome.gain.low or 0.0) > GAIN for outcome in outcomes),
        "oracle_is_1": policies["oracle"].mean == 1.0,
    }
    for name in baselines:
        criteria[f"{name}_at_least_0.2_below"] = always(
            round(outcome.after.mean - policies[name].mean, 9) >= ABOVE for outcome in outcomes
        )
    if judgements:
        pairs = [outcome.judgements for outcome in outcomes]
        best = max(judgements[name]["spearman"] for name in baselines)
        criteria["spearman_at_least_0.7"] = always(after["spearman"] >= SPEARMAN for _, after in pairs)
        criteria["spearman_0.15_above_start_and_baselines"] = always(
            round(after["spearman"] - max(before["spearman"], best), 9) >= SPEARMAN_GAIN for before, after in pairs
        )
    return criteria


def hashes(recipe: str, overrides: Sequence[str] = (), scorer: str | None = None) -> dict[str, str]:
    """Return hashes of the reward, of the rows, and of the composed configuration with its tool file and program.

    The reward is hashed with its defaults, so a changed default changes the hash. If a data set's files are missing,
    the hash of the rows is omitted.

    Args:
        recipe: folder or name of the recipe.
        overrides: overrides of the recipe's configuration.
        scorer: an old name of the recipe's scorer, which is hashed instead of the current name and options.
    """
    start = ColdStart(recipe, overrides)
    tools = Path(str(start.config.actor_rollout_ref.rollout.multi_turn.tool_config_path))
    configuration, settings = resolved(start.config), AgentRLSettings.from_config(start.config)
    configuration.get(SECTION, {}).pop("reward", None)
    parts = {"configuration": configuration, "reward": effective(settings.reward.model_dump(mode="json"))}
    if scorer is not None:
        parts["reward"]["correctness"]["scorer"] = scorer
    texts = {name: _portable(json.dumps(part, sort_keys=True, default=str)) for name, part in parts.items()}
    program = Path((settings.gateway.function or "").partition(":")[0])
    texts["configuration"] += "".join(file.read_text(encoding="utf-8") for file in (tools, program) if file.is_file())
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    if start.world.version:
        digests["environments"] = start.world.version
    return {**digests, "rows": start.rows_digest()} if start.has_rows() else digests


def effective(value: Any) -> Any:
    """Return settings without null, 0 and empty values, so that adding a key that is off by default keeps the hash."""
    if not isinstance(value, dict):
        return value
    return {key: rest for key, item in value.items() if (rest := effective(item))}


def _portable(text: str) -> str:
    return text.replace(str(Path.cwd()), ".").replace(f'"{os.environ.get("HOME")}/', '"~/')


def check(recipe: Path, *, rehash: bool = False) -> list[str]:
    """Return a message for each hash in a recipe's receipts that no longer matches the recipe.

    Args:
        recipe: the recipe's folder.
        rehash: whether to update the reward's hash in a receipt if only the name of the scorer has changed. This is so
            if one of the scorer's old names, which `old_keys.yaml` lists, gives the recipe the receipt's hash.
    """
    problems = []
    for file in sorted((recipe / "results").rglob(RECEIPT)):
        receipt = json.loads(file.read_text())
        target = str(recipe) if (recipe / "config.yaml").is_file() else shlex.split(receipt["command"])[2]
        overrides = receipt.get("overrides", ())
        known, now = receipt["hashes"], hashes(target, overrides)
        if rehash and known["reward"] != now["reward"]:
            scorer = AgentRLSettings.from_config(ColdStart(target, overrides).config).reward.correctness.scorer
            names = old_values(SCORER_KEY, scorer)
            if any(hashes(target, overrides, name)["reward"] == known["reward"] for name in names):
                known["reward"] = now["reward"]
                file.write_text(json.dumps(receipt, indent=2) + "\n")
        remedy = f"run VERL_PLATFORM=cpu {receipt['command']} again"
        problems += [f"{file}: the {name} has changed; {remedy}" for name in now if known.get(name) != now[name]]
    return problems


def write_curve(folder: Path, runs: Mapping[str, RunOutcome], policies: Mapping[str, Estimate], title: str) -> None:
    """Write `curve.csv` and `curve.png`.

    Args:
        folder: an existing folder.
        runs: outcomes by run name.
        policies: success on the held-out rows by policy; each is drawn as a line.
        title: title of the plot.
    """
    curve = [(name, step, round(value, 6)) for name, run in runs.items() for step, value in run.curve]
    pd.DataFrame(curve, columns=["run", "step", "success"]).to_csv(folder / "curve.csv", index=False)
    held_out = {
        name: [(step, success.mean, success.low, success.high)
               for step, success in ((0, run.before), (run.curve[-1][0] if run.curve else 0, run.after))]
        for name, run in runs.items()
    }  # fmt: skip
    Chart(
        f"{title}: success in training (dots: held-out rows)",
        lines={name: run.curve for name, run in runs.items()},
        marks=held_out,
        levels={name.replace("_", " "): policy.mean for name, policy in policies.items()},
    ).write_png(folder / "curve.png")
