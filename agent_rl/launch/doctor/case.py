"""The input of the doctor's checks: a run, and the machine on which it would run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agent_rl.errors import ConfigError
from agent_rl.launch.cluster import Nodes
from agent_rl.launch.doctor.machine import Gpu, Machine
from agent_rl.launch.doctor.model_files import ModelFiles, find_model
from agent_rl.launch.environment import joins_ray
from agent_rl.preflight import case
from agent_rl.verl_adapter.checkpoints import policy_shards, settings_folder

ROLLOUT, VERLS = "actor_rollout_ref.rollout", "reward.reward_model"


@dataclass(frozen=True)
class Case(case.RunCase):
    """A run and a machine; its GPUs and the model's files are read only when they are needed.

    Attributes:
        given: facts about the machine that would run the recipe; None means this machine.
    """

    given: Machine | None = None

    @cached_property
    def nodes(self) -> Nodes | None:
        """The nodes that the launcher starts, or None for one node or invalid variables (reported in `checks.ray`)."""
        try:
            return Nodes.from_environment(self.environ)
        except ConfigError:
            return None

    @property
    def joins(self) -> bool:
        """Whether the run joins an existing Ray cluster."""
        return joins_ray(self.environ)

    @property
    def gpus_wanted(self) -> int:
        """Number of GPUs needed on one machine by the trainer, and by engines and reward models with their own GPUs."""
        count = self.number("trainer.n_gpus_per_node", 1)
        if self.nodes is None and not self.joins:  # with several machines, Ray distributes the models
            count += self.judge_gpus
            if self.get(f"{VERLS}.enable") and self.get(f"{VERLS}.enable_resource_pool"):
                count += self.number(f"{VERLS}.n_gpus_per_node", 0) * self.number(f"{VERLS}.nnodes", 0)
        if self.get("actor_rollout_ref.hybrid_engine", True):
            return count
        return count + self.number(f"{ROLLOUT}.n_gpus_per_node", 0)

    @property
    def judge_gpus(self) -> int:
        """Total number of GPUs that `agent_rl.reward.models` with their own GPUs need on all machines."""
        served = self.settings.reward.models.values()
        return sum(model.n_gpus_per_node * model.nnodes for model in served if not model.visits)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the run needs a GPU that this machine lacks; if so, this machine's memory and cores do not matter."""
        return not (self.on_cpu or self.gpus)

    @cached_property
    def machine(self) -> Machine:
        """The machine that would run the recipe."""
        return self.given or Machine(self.environ)

    @property
    def gpus(self) -> list[Gpu]:
        """The NVIDIA GPUs that a run may use."""
        return self.machine.gpus

    @cached_property
    def model(self) -> ModelFiles:
        """The model to train; only the configuration for a checkpoint, because it is merged when the run starts."""
        path = self.path(self.get("actor_rollout_ref.model.path", ""))
        return find_model(path if self.checkpoint is None else str(settings_folder(self.checkpoint)))

    @cached_property
    def checkpoint(self) -> Path | None:
        """The shards of the policy, if the model to train is a training checkpoint."""
        folder = Path(self.path(self.get("actor_rollout_ref.model.path", "")))
        return None if (folder / "config.json").is_file() else policy_shards(folder)

    @property
    def longest(self) -> int:
        """Total number of tokens in the longest prompt and the longest response."""
        return self.number("data.max_prompt_length", 0) + self.number("data.max_response_length", 0)

    @property
    def world_size(self) -> int:
        """Number of processes of the trainer, one for each of its GPUs."""
        return self.number("trainer.n_gpus_per_node", 1) * self.number("trainer.nnodes", 1)
