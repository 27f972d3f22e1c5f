"""The input of the doctor's checks: the configuration of a run, and the machine that it would run on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agent_rl.agents.episode.budget import DEFAULT_MAX_TURNS
from agent_rl.data.files import RowsFile, read_rows
from agent_rl.doctor.devices import Gpu
from agent_rl.doctor.machine import Machine
from agent_rl.doctor.model_files import ModelFiles, find_model
from agent_rl.errors import ConfigError
from agent_rl.launch.cluster import Nodes
from agent_rl.launch.command import joins_ray
from agent_rl.rewards import Reward
from agent_rl.rewards.user_function import CUSTOM_FUNCTION
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.verl_adapter.checkpoints import policy_shards, settings_folder

__all__ = ["MOST_ROWS", "Case"]

MOST_ROWS = 20_000
"""Rows of one file that are checked: its first."""


@dataclass(frozen=True)
class Case:
    """A run that a user wants to start, with lazily read model files, rows and GPUs.

    Attributes:
        environ: the environment that the run would inherit.
        folder: where it would be started: relative paths begin here.
        config: the composed configuration; None without a recipe, or when it does not compose.
        recipe: as the user names it; None without one.
        overrides: of the user.
        script: the user's own entry point, as for `agent-rl train --script`.
        given: facts of the machine on which the run would be; None: this one.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: Path = field(default_factory=Path.cwd)
    config: DictConfig | None = None
    recipe: str | None = None
    overrides: Sequence[str] = ()
    script: Path | None = None
    given: Machine | None = None

    @cached_property
    def settings(self) -> AgentRLSettings:
        """The section `agent_rl`.

        Raises:
            ConfigError: for a wrong key or value.
        """
        return AgentRLSettings.from_config({SECTION: self.get(SECTION)})

    @cached_property
    def reward(self) -> Reward:
        """What the manager `trajectory` scores with; a custom reward function is not loaded.

        Raises:
            ConfigError: as `Reward`.
        """
        tokens, judged = self.get("data.max_response_length"), bool(self.get(f"{CUSTOM_FUNCTION}.path"))
        return Reward(self.settings.reward, max_response_tokens=tokens, judged=judged)

    @property
    def max_turns(self) -> int:
        """Turns that an episode may have."""
        return self.number("actor_rollout_ref.rollout.multi_turn.max_assistant_turns", DEFAULT_MAX_TURNS)

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU was chosen."""
        return self.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"

    @cached_property
    def nodes(self) -> Nodes | None:
        """The nodes that the launcher starts; None for one node, and for a wrong environment (see `checks.ray`)."""
        try:
            return Nodes.from_environment(self.environ)
        except ConfigError:
            return None

    @property
    def joins(self) -> bool:
        """Whether the run joins a Ray cluster that exists already."""
        return joins_ray(self.environ)

    @property
    def engine_world(self) -> int:
        """GPUs that the engines share: the run's, or in verl's separate mode their own."""
        if self.get("actor_rollout_ref.hybrid_engine", True):
            return self.world_size
        rollout = "actor_rollout_ref.rollout"
        return self.number(f"{rollout}.n_gpus_per_node", 1) * self.number(f"{rollout}.nnodes", 1)

    @property
    def gpus_wanted(self) -> int:
        """GPUs of one machine: the trainer's, and those of engines and of reward models that have their own."""
        own = self.number("trainer.n_gpus_per_node", 1) + self._judges_gpus
        if self.get("actor_rollout_ref.hybrid_engine", True):
            return own
        return own + self.number("actor_rollout_ref.rollout.n_gpus_per_node", 0)

    @property
    def _judges_gpus(self) -> int:
        """GPUs of the reward models with places of their own, on one machine: on several, Ray spreads them."""
        if self.nodes is not None or self.joins:
            return 0
        served = self.get("agent_rl.reward.models", {}).values()
        own = [model for model in served if model.get("placement", "own") == "own"]
        count = sum(int(model.get("n_gpus_per_node", 1)) * int(model.get("nnodes", 1)) for model in own)
        verls = "reward.reward_model"
        if self.get(f"{verls}.enable") and self.get(f"{verls}.enable_resource_pool"):
            count += self.number(f"{verls}.n_gpus_per_node", 0) * self.number(f"{verls}.nnodes", 0)
        return count

    @property
    def is_elsewhere(self) -> bool:
        """Whether the run needs a GPU and this machine has none: then memory and cores of this machine say nothing."""
        return not (self.on_cpu or self.gpus)

    @cached_property
    def machine(self) -> Machine:
        """The machine on which the run would be."""
        return self.given or Machine(self.environ)

    @property
    def gpus(self) -> list[Gpu]:
        """The NVIDIA GPUs that a run may use."""
        return self.machine.gpus

    @cached_property
    def model(self) -> ModelFiles:
        """The model that is trained; of a checkpoint, which is merged at the start, what its configuration says."""
        path = self.path(self.get("actor_rollout_ref.model.path", ""))
        return find_model(path if self.checkpoint is None else str(settings_folder(self.checkpoint)))

    @cached_property
    def checkpoint(self) -> Path | None:
        """The shards of the policy, if the model that is trained is a checkpoint of training."""
        folder = Path(self.path(self.get("actor_rollout_ref.model.path", "")))
        return None if (folder / "config.json").is_file() else policy_shards(folder)

    @cached_property
    def train(self) -> list[RowsFile]:
        """The training files."""
        return self._tables("data.train_files")

    @cached_property
    def val(self) -> list[RowsFile]:
        """The validation files."""
        return self._tables("data.val_files")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows that were read, for training and validation."""
        return [row for file in (*self.train, *self.val) for row in file.rows]

    @property
    def default_agent(self) -> str:
        """The agent loop of rows that name none."""
        return str(self.get("actor_rollout_ref.rollout.agent.default_agent_loop", "single_turn_agent"))

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and response together."""
        return self.number("data.max_prompt_length", 0) + self.number("data.max_response_length", 0)

    @property
    def world_size(self) -> int:
        """Processes of the trainer, one for each of its GPUs."""
        return self.number("trainer.n_gpus_per_node", 1) * self.number("trainer.nnodes", 1)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key as plain data, interpolations resolved; `default` for null and for an absent key.

        Raises:
            ConfigError: when the value refers to something that is not there.
        """
        if self.config is None:
            return default
        try:
            value = OmegaConf.select(self.config, key, default=default)
            if isinstance(value, DictConfig | ListConfig):
                value = OmegaConf.to_container(value, resolve=True)
        except OmegaConfBaseException as error:
            problem = str(error).splitlines()[0]
            raise ConfigError(key, problem, "Set the variable, or write the value itself") from error
        return default if value is None else value

    def number(self, key: str, default: int) -> int:
        """A whole number; see `get`."""
        value = self.get(key, default)
        try:
            return int(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(key, f"expected a number, got {value!r}", f"Write for example {key}={default}") from error

    def path(self, value: str) -> str:
        """A path as the run would see it; a name that is no existing path stays as it is."""
        expanded = os.path.expanduser(value)
        joined = self.folder / expanded
        return str(joined) if value and joined.exists() else expanded

    def shown(self, path: str | os.PathLike[str]) -> str:
        """A path as a user would write it: relative to the working directory or to `~/`, if it is in one of them."""
        absolute = os.path.normpath(self.folder / path)
        home = os.path.expanduser("~")
        for place, mark in ((str(self.folder), ""), (home, "~/")):
            if absolute.startswith(f"{place}/"):
                return mark + absolute[len(place) + 1 :]
        return absolute

    def _tables(self, key: str) -> list[RowsFile]:
        """The files of this machine that a key names; remote ones are not checked."""
        named = self.get(key, [])
        paths = [str(path) for path in ([named] if isinstance(named, str) else named)]
        return [read_rows(self.path(path), MOST_ROWS) for path in paths if "://" not in path]
