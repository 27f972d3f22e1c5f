"""All checks, in the order of the table. A new one is a function of a `Case` that yields findings, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from agent_rl.doctor import (
    batch,
    cluster,
    data,
    machine,
    memory,
    paths,
    prompts,
    reward,
    reward_models,
    template,
    tooling,
    versions,
)
from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding

__all__ = ["CHECKS", "Check", "Needs"]


class Needs(str, Enum):
    """What a check cannot do without."""

    MACHINE = "machine"
    """Nothing: it is made without a recipe as well."""
    CONFIG = "config"
    """The composed configuration."""
    VERL = "verl"
    """The configuration, in a process that has imported verl."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        group: the part of the table that its findings stand in.
        run: yields what it finds; a `ConfigError` that it raises becomes a finding.
        needs: what it cannot do without.
    """

    group: str
    run: Callable[[Case], Iterator[Finding]]
    needs: Needs

    @property
    def name(self) -> str:
        """For a finding about the check itself."""
        return self.run.__name__.replace("_", " ")


CHECKS: tuple[Check, ...] = (
    Check("installation", versions.python, Needs.MACHINE),
    Check("installation", versions.packages, Needs.MACHINE),
    Check("installation", versions.plugin, Needs.MACHINE),
    Check("installation", versions.engine, Needs.MACHINE),
    Check("installation", versions.engine_set, Needs.MACHINE),
    Check("installation", versions.torch_build, Needs.MACHINE),
    Check("installation", versions.registration, Needs.VERL),
    Check("machine", machine.accelerator, Needs.MACHINE),
    Check("machine", machine.gpus_in_use, Needs.MACHINE),
    Check("machine", machine.gpus_per_node, Needs.CONFIG),
    Check("machine", machine.tensor_parallel, Needs.CONFIG),
    Check("machine", machine.cores, Needs.MACHINE),
    Check("machine", memory.shared_memory, Needs.MACHINE),
    Check("machine", memory.gpu, Needs.CONFIG),
    Check("machine", memory.host, Needs.CONFIG),
    Check("machine", memory.disk, Needs.CONFIG),
    Check("Ray", cluster.ray_cluster, Needs.MACHINE),
    Check("Ray", cluster.ports, Needs.MACHINE),
    Check("Ray", cluster.nodes, Needs.CONFIG),
    Check("Ray", cluster.logical_cpus, Needs.CONFIG),
    Check("configuration", paths.values, Needs.CONFIG),
    Check("configuration", batch.validation, Needs.VERL),
    Check("configuration", batch.mini_batches, Needs.CONFIG),
    Check("configuration", paths.model, Needs.CONFIG),
    Check("configuration", paths.context, Needs.CONFIG),
    Check("configuration", paths.outputs, Needs.CONFIG),
    Check("configuration", paths.resume, Needs.CONFIG),
    Check("data", data.files, Needs.CONFIG),
    Check("data", data.row_count, Needs.CONFIG),
    Check("data", data.agents, Needs.CONFIG),
    Check("data", prompts.lengths, Needs.VERL),
    Check("tools", tooling.tool_file, Needs.CONFIG),
    Check("tools", tooling.sandbox, Needs.CONFIG),
    Check("tools", tooling.rows_and_tools, Needs.CONFIG),
    Check("reward", reward.weights, Needs.CONFIG),
    Check("reward", reward.ground_truths, Needs.CONFIG),
    Check("reward", reward.manager, Needs.VERL),
    Check("reward", reward.function, Needs.VERL),
    Check("reward", reward.sources, Needs.VERL),
    Check("reward", reward_models.models, Needs.CONFIG),
    Check("reward", reward_models.shares, Needs.CONFIG),
    Check("chat template", template.chat_template, Needs.VERL),
)
