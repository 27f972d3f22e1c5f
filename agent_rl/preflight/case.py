"""The input of the checks: the configuration of a run, and the environment in which it would start."""

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
from agent_rl.errors import ConfigError
from agent_rl.rewards import Reward
from agent_rl.rewards.user_function import CUSTOM_FUNCTION
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.tools import ToolSpec, load_tools


@dataclass(frozen=True)
class RunCase:
    """A run that a user wants to start, whose rows and tools are read only when they are needed.

    Attributes:
        environ: the environment that the run would inherit.
        folder: the run's working directory, against which relative paths are resolved.
        config: the composed configuration, a `DictConfig`; None without a recipe, or if the recipe cannot be composed.
        recipe: the recipe as the user wrote it; None without a recipe.
        overrides: the user's overrides.
        script: the user's entry point, as for `agent-rl train --script`.
        most_rows: maximum number of rows to read from the start of each file.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: Path = field(default_factory=Path.cwd)
    config: Any = None
    recipe: str | None = None
    overrides: Sequence[str] = ()
    script: Path | None = None
    most_rows: int = 20_000

    @cached_property
    def settings(self) -> AgentRLSettings:
        """The `agent_rl` section of the configuration.

        Raises:
            ConfigError: a key or value is wrong.
        """
        return AgentRLSettings.from_config({SECTION: self.get(SECTION)})

    @cached_property
    def reward(self) -> Reward:
        """The reward that the `trajectory` manager computes, without loading a custom reward function.

        Raises:
            ConfigError: the reward's settings cannot be used.
        """
        tokens, judged = self.get("data.max_response_length"), bool(self.get(f"{CUSTOM_FUNCTION}.path"))
        return Reward(self.settings.reward, max_response_tokens=tokens, judged=judged)

    @property
    def scored_by_ours(self) -> bool:
        """Whether the `trajectory` manager computes the reward."""
        return bool(self.get("reward.reward_manager.name") == "trajectory")

    @property
    def max_turns(self) -> int:
        """Maximum number of turns per episode."""
        return self.number("actor_rollout_ref.rollout.multi_turn.max_assistant_turns", DEFAULT_MAX_TURNS)

    @property
    def on_cpu(self) -> bool:
        """Whether the user has chosen to run on a CPU."""
        return self.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"

    @cached_property
    def tools(self) -> list[ToolSpec]:
        """The tools that the tool file defines.

        Raises:
            AgentRLError: the file cannot be read.
        """
        return load_tools(self.tool_path) if self.tool_path else []

    @cached_property
    def tool_path(self) -> Path | None:
        """The path of the tool file, or None if no tool file is set."""
        path = self.get("actor_rollout_ref.rollout.multi_turn.tool_config_path")
        return self.folder / Path(str(path)).expanduser() if path else None

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
        """All rows read from the training and validation files."""
        return [row for file in (*self.train, *self.val) for row in file.rows]

    @property
    def has_rows_of_ours(self) -> bool:
        """Whether rows are read by agent_rl's or verl's data set class, neither of which changes rows."""
        return self.get("data.custom_cls.name") in (None, "RowDataSet")

    @property
    def default_agent(self) -> str:
        """The agent loop for rows that do not name one."""
        return str(self.get("actor_rollout_ref.rollout.agent.default_agent_loop", "single_turn_agent"))

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value as plain data, with interpolations resolved, or `default` for a null or absent value.

        Raises:
            ConfigError: the value refers to a missing key or variable.
        """
        if self.config is None:
            return default
        try:
            value = OmegaConf.select(self.config, key, default=default)
            if isinstance(value, DictConfig | ListConfig):
                value = OmegaConf.to_container(value, resolve=True)
        except OmegaConfBaseException as error:
            problem = str(error).splitlines()[0]
            raise ConfigError(key, problem, "Set the variable, or write the value directly") from error
        return default if value is None else value

    def number(self, key: str, default: int) -> int:
        """Return the value of a key that must be a whole number (`values` checks this); raises the errors of `get`."""
        return int(self.get(key, default))

    def path(self, value: str) -> str:
        """Return a path as the run would resolve it; a name that is not an existing path is unchanged."""
        expanded = os.path.expanduser(value)
        joined = self.folder / expanded
        return str(joined) if value and joined.exists() else expanded

    def shown(self, path: str | os.PathLike[str]) -> str:
        """Return a path as a user would write it: relative to the working directory, if the path is inside it."""
        return os.path.normpath(self.folder / path).removeprefix(f"{self.folder}/")

    def _tables(self, key: str) -> list[RowsFile]:
        """Read the local files that a key lists; remote files are not checked."""
        value = self.get(key, [])
        paths = [str(path) for path in ([value] if isinstance(value, str) else value)]
        return [read_rows(self.path(path), self.most_rows) for path in paths if "://" not in path]
