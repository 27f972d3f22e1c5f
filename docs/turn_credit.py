"""Ranks algorithms by how well their advantages predict what each turn was worth (`make credit`), and writes
docs/reference/turn_credit.json, which docs/references.py turns into a page.

The cold-started model of recipes/text_world plays households in groups. `agent-rl fork` estimates the value of every
turn, twice and independently. A turn's worth is the value after the turn minus the value before it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_rl.evaluation.experiments.receipt import hashes
from agent_rl.launch.run_folder import machine
from agent_rl.trajectory import Trajectory, trace

ROOT = Path(__file__).parents[1]
RECIPE, MODEL = "recipes/text_world", "outputs/worlds/text_world/model"
OUT, PAGE = ROOT / "outputs/turn_credit", ROOT / "docs/reference/turn_credit.json"
PROMPTS, SAMPLES, EPISODES, REPETITIONS = 5, 8, 16, 2
TURNS = ("agent_rl.reward.components.turns.kind=tool_rewards", "agent_rl.reward.components.turns.weight=1")
WORLDS = {
    "outcome": (),
    "turn rewards": (f"agent_rl.environments.text_world={RECIPE}/text_world.py:Milestones", *TURNS),
}
"""The settings of each variant of the world: the recipe's reward, and this reward plus rewards for three turns."""
ALGORITHMS = ("grpo", "rloo", "gdpo", "gigpo", "turn")
RESAMPLES = 2000


def main() -> None:
    """Run the command line."""
    os.chdir(ROOT)
    os.environ |= {"VERL_PLATFORM": "cpu", "VERL_LOGGING_LEVEL": "ERROR"}
    if not Path(MODEL).is_dir():
        _agent_rl("sft", RECIPE)
    worlds = {name: _world(OUT / name.replace(" ", "_"), words) for name, words in WORLDS.items()}
    settings = {"prompts": PROMPTS, "samples": SAMPLES, "episodes_per_turn": EPISODES}
    source = {"hashes": hashes(RECIPE), "machine": machine(Path(MODEL))}
    table = {"command": "make credit", **settings, **source, "worlds": worlds}
    PAGE.write_text(json.dumps(table, indent=2) + "\n")


def _agent_rl(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "agent_rl.cli.main", *arguments], check=True, stdout=sys.stderr)


def _world(folder: Path, words: Sequence[str]) -> dict[str, Any]:
    """Play a variant of the world, and return its correlations with versions and hashes; finished parts are kept."""
    how = ("--recipe", RECIPE, "--model", MODEL, "size=cpu", "policy=local", *words)
    played = ("sampling.temperature=1", "sampling.top_p=1", f"limit={PROMPTS}", "agent_rl.trace.tokens=true")
    _agent_rl("eval", *how, *played, "-n", str(SAMPLES), "--out", str(folder / "played"))
    estimates = []
    for number in range(REPETITIONS):
        out = folder / f"fork_{number}"
        chosen = ("--first", str(PROMPTS * SAMPLES), "--turn", "all", "-n", str(EPISODES))
        _agent_rl("fork", str(folder / "played"), *chosen, *how, "--out", str(out))
        estimates.append(json.loads((out / "values.json").read_text()))
    known = {each.id: each for each in trace.read(folder / "played/trajectories.jsonl")}
    trajectories = [known[own["id"]] for own in estimates[0]["trajectories"]]
    worth = [
        [np.array([turn["difference"] for turn in own["turns"]]) for own in estimate["trajectories"]]
        for estimate in estimates
    ]
    methods = {name: advantages(trajectories, name) for name in ALGORITHMS}
    return {
        "rewards": [own["reward"] for own in estimates[0]["trajectories"]],
        "turns": sum(map(len, worth[0])),
        "ceiling": _correlations(lambda one, two: max(_pearson(one, two), 0.0) ** 0.5, worth),
        "algorithms": {name: _correlations(_mean_correlation, [own, *worth]) for name, own in methods.items()},
        "of": estimates[0]["of"],
    }


def advantages(trajectories: Sequence[Trajectory], algorithm: str) -> list[np.ndarray[Any, Any]]:
    """Return the advantage of each turn as the trainer computes it with `algo=algorithm`, one array per trajectory."""
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto

    from agent_rl.verl_adapter.algorithms import turns
    from agent_rl.verl_adapter.algorithms.advantages import estimate
    from agent_rl.verl_adapter.certificates import methods

    method, longest = methods.method(f"algo={algorithm}"), max(len(each.turns) for each in trajectories)
    scores = [each.score for each in trajectories if each.score]
    names = [name for name in scores[0].components if any(score.weights.get(name) for score in scores)]
    weights = [max(score.weights.get(name, 0.0) for score in scores) for name in names]
    for key, value in (("gdpo_reward_keys", names), ("gdpo_reward_weights", weights)):
        OmegaConf.update(method.algorithm, key, value, force_add=True)
    shape = (len(trajectories), 2 * longest)  # a sampled token and an observation for each turn
    rewards_BT, mask_BT, attention_BT = (torch.zeros(shape, dtype=kind) for kind in (torch.float, *[torch.long] * 2))
    columns: dict[str, list[Any]] = {name: [score.components[name] for score in scores] for name in names}
    columns |= {"uid": [], turns.RECORDS: []}
    for row, (trajectory, score) in enumerate(zip(trajectories, scores, strict=True)):
        last = 2 * len(trajectory.turns) - 2
        mask_BT[row, 0 : last + 1 : 2], attention_BT[row, : last + 1], rewards_BT[row, last] = 1, 1, score.total
        spans = [[turn + 1, 2 * turn, 2 * turn + 1] for turn in range(len(trajectory.turns))]
        states = turns.turn_states(trajectory)
        columns[turns.RECORDS].append({turns.SPANS: spans, turns.STATES: states, turns.REWARDS: score.turn_rewards})
        columns["uid"].append(trajectory.id.rpartition("_")[0])
    tensors = {
        "token_level_rewards": rewards_BT,
        "response_mask": mask_BT,
        "prompts": attention_BT[:, :1],
        "attention_mask": torch.cat([attention_BT[:, :1], attention_BT], dim=1),
    }
    data = DataProto.from_dict(tensors, {name: np.array(own, dtype=object) for name, own in columns.items()})
    options = {"gamma": method.algorithm.gamma, "lam": method.algorithm.lam, "num_repeat": SAMPLES}
    by_std = method.algorithm.norm_adv_by_std_in_grpo
    keys = [f"{trajectory.id}_0" for trajectory in trajectories]
    batch = estimate(
        data, keys, method.estimator, norm_adv_by_std_in_grpo=by_std, config=method.algorithm, **options
    ).batch
    table = batch["advantages"].numpy()
    return [table[row, 0 : 2 * len(each.turns) : 2] for row, each in enumerate(trajectories)]


def _correlations(compute: Callable[..., float], series: Sequence[Sequence[np.ndarray[Any, Any]]]) -> dict[str, Any]:
    """Return a correlation over all turns with a 95% interval, and the same within trajectories.

    Args:
        compute: function that returns the correlation of flat arrays over turns, one array per series.
        series: the series, each with one array over turns per trajectory.
    """
    random = np.random.default_rng(0)
    count = len(series[0])
    samples = [random.integers(count, size=count) for _ in range(RESAMPLES)]
    result: dict[str, Any] = {}
    centred = [[own - own.mean() for own in each] for each in series]
    for name, used in (("all", series), ("within", centred)):
        flat = [compute(*(np.concatenate([each[place] for place in own]) for each in used)) for own in samples]
        value = compute(*map(np.concatenate, used))
        result[name] = None
        if value == value:
            low, high = np.nanquantile(flat, [0.025, 0.975])
            figures = {"correlation": value, "low": low, "high": high}
            result[name] = {key: round(float(figure), 4) for key, figure in figures.items()}
    return result


def _mean_correlation(own: np.ndarray[Any, Any], *worth: np.ndarray[Any, Any]) -> float:
    return float(np.mean([_pearson(own, each) for each in worth]))


def _pearson(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> float:
    """Return the correlation, or nan if one array is constant."""
    if np.ptp(one) < 1e-6 or np.ptp(two) < 1e-6:
        return float("nan")
    return float(np.corrcoef(one, two)[0, 1])


if __name__ == "__main__":
    main()
