"""Makes a recipe from an environment's file: `agent-rl train lockers.py` trains `outputs/lockers/recipe`.

The recipe names the class, contains its rows and reward, and has two sizes for a CPU: `cpu`, a tiny model after a cold
start on `solve`, and `own_model`, the model that the user passes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from agent_rl.data import write_parquet
from agent_rl.environments import EnvironmentType, load_environment, open_session
from agent_rl.environments.families import family_names
from agent_rl.environments.kind import SPLITS, environment_rows, row_values
from agent_rl.environments.session import state_of
from agent_rl.environments.trl import ADDED, absolute
from agent_rl.environments.worked import WORLD, habit_shares, require_expert
from agent_rl.errors import AgentRLError, ConfigError
from agent_rl.settings.user_code import place_of
from agent_rl.trajectory import Message, StopReason, Trajectory

OUTPUTS = Path("outputs")
TRIAL_LIMIT_S = 60.0
"""Maximum number of seconds for each method in the trial before a run."""
PROMPT_TOKENS = 512
"""The maximum number of prompt tokens on a CPU is a multiple of this number."""
MAX_NAME = 120
"""Maximum number of characters of a run's name; a file system allows 255 for a folder."""
logger = logging.getLogger(__name__)

HEADER = "# Written by agent-rl for {}; the next command for that environment overwrites this file.\n"


class _Trial(NamedTuple):
    """The names of the reward's parts, and the number of characters that tools and `reset` add to a prompt."""

    parts: list[str]
    characters: int


def is_task(recipe: str) -> bool:
    """Whether the argument names environments by `file.py`, `file.py:Class` or `family:id`, separated by commas."""
    files = [each.partition(ADDED)[0].partition(":")[0] for each in recipe.split(",")]
    return all(file.endswith(".py") or file in family_names() for file in files)


@cache
def task_recipe(targets: str) -> Path:
    """Write the recipe of one or several environments, and return its folder.

    Args:
        targets: `file.py`, `file.py:Class` or `family:id`; several, separated by commas, train in one run.

    Raises:
        ConfigError: a class, its rows or its reward cannot be used.
        UserCodeError: a method of a class raises an error.
    """
    kinds = [load_task(target) for target in targets.split(",")]
    names = [kind.name for kind in kinds]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(targets, f"two environments have the name {twice[0]}", "Rename a file")
    rows = {split: [row for kind in kinds for row in _rows(kind, split)] for split in SPLITS}
    trials = {kind: try_out(kind) for kind in kinds}
    rewards = {kind.name: _reward(kind, trial.parts) for kind, trial in trials.items()}
    folder = OUTPUTS / _run_name(kinds) / "recipe"
    (folder / "size").mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        write_parquet(rows[split], folder / f"{split}.parquet")
    prompts = {kind: _longest(kind, rows) for kind in kinds}
    own_model = _cpu(max(prompts[kind] + trial.characters for kind, trial in trials.items()))
    files = {"config.yaml": _config(kinds, rewards), "size/own_model.yaml": own_model, "size/0.5b.yaml": _GPU}
    try:
        files["size/cpu.yaml"] = _cold_start(folder, kinds, len(rows["train"]), _cpu(max(prompts.values())))
    except AgentRLError:  # `require_experts` raises this error again if the small model is needed
        rollout = {**own_model["actor_rollout_ref"], "model": {"path": str(small_model(folder))}}
        files["size/cpu.yaml"] = {**own_model, "actor_rollout_ref": rollout}
    for file, content in files.items():
        package = "# @package _global_\n" if file.startswith("size/") else ""
        text = package + HEADER.format(targets) + yaml.safe_dump(content, sort_keys=False, width=110)
        (folder / file).write_text(text, encoding="utf-8")
    return folder.resolve()


def small_model(folder: Path) -> Path:
    """Return the folder of the model that a task's recipe trains on a CPU without `--model`."""
    return folder.parent / "cold_start" / "model"


def _run_name(kinds: Sequence[EnvironmentType]) -> str:
    """Return the names of the environments; for many environments, the first name and a digest of all names."""
    name = "_".join(kind.name for kind in kinds)
    if len(name) <= MAX_NAME:
        return name
    return f"{kinds[0].name}_and_{len(kinds) - 1}_more_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def require_experts(targets: str) -> None:
    """Reject environments without an expert, for which no small model can be made.

    Raises:
        AgentRLError: a class cannot be loaded, or its `solve` is missing or unusable.
    """
    kinds = [load_task(target) for target in targets.split(",")]
    for kind in kinds:
        require_expert(kind)
    task_recipe(targets)  # checks the recipe first, and raises its errors
    for kind in kinds:
        _habit_shares(kind)


def load_task(target: str) -> EnvironmentType:
    """Load an environment by `file.py`, `file.py:Class` or `family:id`.

    Raises:
        ConfigError: there is no such file or environment, or the class cannot be used.
    """
    if target.partition(":")[0] in family_names():
        return load_environment(re.sub(r"\W+", "_", target.lower()), target, target)
    own, *added = target.split(ADDED)
    file, _, attribute = own.partition(":")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(file, "there is no such file", f"Create a task with: agent-rl new task {path.stem}")
    name = re.sub(r"\W+", "_", f"{path.stem}_{attribute}".strip("_").lower())
    whole = [f"{path}:{attribute}" if attribute else str(path), *map(absolute, added)]
    return load_environment(name, ADDED.join(whole), target)


def _longest(kind: EnvironmentType, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
    """Return the number of characters in an environment's longest prompt."""
    return max(len(str(row["prompt"])) for split in rows.values() for row in split if row["data_source"] == kind.name)


@cache
def try_out(kind: EnvironmentType) -> _Trial:
    """Begin two trajectories on the first training row, and read the reward of the second trajectory.

    Raises:
        ConfigError: a method fails, the two trajectories begin in different states, or there is no reward.
    """
    where = kind.cls.__qualname__
    row = _rows(kind, "train")[0]
    try:
        (text, state), (other_text, other_state), reward, tools = asyncio.run(_begun_twice(kind, row))
    except AgentRLError as error:
        raise ConfigError(where, str(error), "Correct the method: it must work in an episode without turns") from error
    if reward == {} and not kind.parts:  # an environment written for TRL may define no reward
        remedy = "Define get_reward(self) or reward_funcs, or pass a function: --reward rewards.py:function"
        raise ConfigError(f"{where} ({_line(kind)})", "the class defines no reward", remedy)
    if text != other_text or state != other_state:
        names = sorted(key for key in state.keys() | other_state.keys() if state.get(key) != other_state.get(key))
        differs = f"self.{', self.'.join(names)}" if names else "its text"
        remedy = "Draw from self.random, which the row seeds, so that all samples of a row start from the same state"
        problem = f"two calls differ in {differs}"
        if kind.resets_alike:
            raise ConfigError(f"{where}.reset ({_line(kind)})", problem, remedy)
        logger.warning("%s.reset (%s): %s. %s", where, _line(kind), problem, remedy)
    parts = [] if kind.parts or not isinstance(reward, dict) else sorted(reward)
    return _Trial(parts, len(text if isinstance(text, str) else "") + len(tools))


async def _begun_twice(kind: EnvironmentType, row: Mapping[str, Any]) -> tuple[Any, Any, Any, str]:
    states: list[Any] = []
    for _ in range(2):
        trajectory = Trajectory([Message.from_chat(message) for message in row["prompt"]], StopReason.ERROR)
        session = open_session(kind, row_values(row), TRIAL_LIMIT_S, trajectory)
        try:
            text = await session.reset()
            states.append((text, state_of(session.instance)))
            reward = await session.reward()
        finally:
            await session.close()
    return states[0], states[1], reward, json.dumps([spec.schema() for spec in session.specs])


def _line(kind: EnvironmentType) -> str:
    return place_of(RuntimeError(), kind.cls.reset)


def _reward(kind: EnvironmentType, parts: Sequence[str]) -> dict[str, Any]:
    """Return the section `agent_rl.reward`, in which only the environment computes the reward."""
    components: dict[str, Any] = {part: {"kind": "environment", "weight": 1.0} for part in parts}
    for part in kind.parts:
        components[part] = {"kind": "environment", "weight": 1.0, "config": {"optional": True}}
    components |= {name: {"kind": "environment", "weight": 0.0} for name in kind.metrics}
    correctness: dict[str, Any] = {"weight": 0.0, "scorer": "none"} if components else {"weight": 1.0}
    if kind.rewards_turns:
        components["turns"] = {"kind": "tool_rewards", "weight": 1.0, "config": {"repeats": True}}
    return {"correctness": correctness} | ({"components": components} if components else {})


def _config(kinds: Sequence[EnvironmentType], rewards: Mapping[str, Any]) -> dict[str, Any]:
    same = all(reward == rewards[kinds[0].name] for reward in rewards.values())
    multi_turn = {key: value for kind in kinds for key, value in kind.multi_turn.items()}
    return {
        "hydra": {"searchpath": ["pkg://verl.trainer.config", "pkg://agent_rl.config"]},
        "defaults": ["agent", "_self_", {"size": "0.5b"}],
        "data": {"train_files": "train.parquet", "val_files": "test.parquet"},
        **({"actor_rollout_ref": {"rollout": {"multi_turn": multi_turn}}} if multi_turn else {}),
        "trainer": {"experiment_name": _run_name(kinds)},
        "agent_rl": {
            "environments": {kind.name: kind.target for kind in kinds},
            "reward": rewards[kinds[0].name] if same else {"per_data_source": dict(rewards)},
        },
    }


_GPU: dict[str, Any] = {
    "data": {"train_batch_size": 64},
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen2.5-0.5B-Instruct"},
        "actor": {"ppo_mini_batch_size": 64, "use_dynamic_bsz": True, "ppo_max_token_len_per_gpu": 8192},
        "rollout": {"n": 8, "gpu_memory_utilization": 0.5},
    },
    "trainer": {"nnodes": 1, "n_gpus_per_node": 1},
}
"""The default size, for one GPU with 24 GB or more."""


def _cpu(characters: int) -> dict[str, Any]:
    """Return the size for a CPU, with room for prompts even if a tokenizer makes every character a token."""
    length = max(1, math.ceil(characters / PROMPT_TOKENS)) * PROMPT_TOKENS
    return {
        "data": {
            "train_batch_size": 16,
            "val_batch_size": 256,
            "max_prompt_length": length,
            "max_response_length": 512,
        },
        "actor_rollout_ref": {
            "actor": {"ppo_mini_batch_size": 16, "ppo_micro_batch_size_per_gpu": 16},
            "rollout": {"n": 8, "log_prob_micro_batch_size_per_gpu": 16},
        },
        "trainer": {
            "logger": ["console"],
            "total_epochs": 1000,
            "total_training_steps": 20,
            "test_freq": 20,
            "save_freq": 20,
            "max_actor_ckpt_to_keep": 1,
        },
    }


@cache
def _rows(kind: EnvironmentType, split: str) -> list[dict[str, Any]]:
    return environment_rows(kind, split, seed=0)


@cache
def _habit_shares(kind: EnvironmentType) -> dict[str, float]:
    return habit_shares(kind, _rows(kind, "train"))


def _cold_start(folder: Path, kinds: Sequence[EnvironmentType], count: int, size: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CPU size for users without a model: a tiny model trained on episodes of `solve`, some of them spoiled.

    Args:
        folder: the recipe's folder.
        kinds: the environments.
        count: number of rows for training.
        size: the CPU size for users with a model.

    Raises:
        AgentRLError: the `solve` of an environment is missing or unusable.
    """
    for kind in kinds:
        require_expert(kind)
    mixes = [_habit_shares(kind) for kind in kinds]
    mix = {habit: round(sum(shares[habit] for shares in mixes) / len(mixes), 2) for habit in mixes[0]}
    return {
        "defaults": [{"override /kl": "none"}, {"override /val": "avg@1"}],
        "data": size["data"],
        "actor_rollout_ref": {
            "model": {"path": str(small_model(folder))},
            "actor": {**size["actor_rollout_ref"]["actor"], "optim": {"lr": 3.0e-4}},
            "rollout": {**size["actor_rollout_ref"]["rollout"], "skip_tokenizer_init": True},
        },
        "trainer": size["trainer"],
        "agent_rl": {
            "react": {"instructions": ""},
            "cold_start": {
                "world": WORLD,
                "rows": "recipe",
                "episode_rows": 2 * count,
                "train_rows": count,
                "held_out": 256,
                "stages": [
                    {"mix": {"oracle": 1.0}, "steps": 600, "lr": 5.0e-3},
                    {"mix": mix, "steps": 600, "lr": 5.0e-3},
                ],
            },
        },
    }
