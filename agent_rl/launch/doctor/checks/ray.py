"""Checks that the run can join or start a Ray cluster, and that its actors get their logical CPUs."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

from agent_rl.launch.cluster import Nodes, unclear_interface
from agent_rl.launch.command import SIZES
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.environment import ray_folder
from agent_rl.launch.training import STORAGE_UNITS, worker_counts
from agent_rl.preflight.check import Finding, Needs, check, problem, skipped, warning

TIMEOUT_S = 2.0
CPUS_PER_GPU = 3
"""Logical CPUs that verl's resource pools reserve for each GPU (`max_colocate_count`)."""
CPUS_PER_ENGINE_GPU = 2
"""Logical CPUs for each GPU of an engine or served model that has its own GPUs."""
FIXED_CPUS = 2
"""More logical CPUs: one for TransferQueue's controller, and one left free to schedule actors without a reservation."""


@check("Ray", "Ray", Needs.MACHINE)
def ray_cluster(case: Case) -> Finding | None:
    """The run can join the Ray cluster at RAY_ADDRESS or on this machine, or can start a new cluster."""
    configured = case.environ.get("RAY_ADDRESS", "")
    if case.joins and configured != "auto" and not answers(configured):
        remedy = "Start Ray there (ray start --head), correct the address, or unset RAY_ADDRESS"
        return problem(f"no Ray cluster answers at RAY_ADDRESS={configured}", remedy)
    if case.joins or case.nodes or configured == "local":
        return None
    # Ray's record of the cluster that was started last: `ray start` writes it, `ray.init` reads it.
    file = Path(ray_folder(case.environ)) / "ray/ray_current_cluster"
    address = file.read_text(errors="replace").strip() if case.machine.is_this_one and file.is_file() else ""
    if not address:
        return None
    if not answers(address):
        text = f"{file} names the address {address} of a Ray cluster that has ended, so the run would hang"
        return problem(text, f"Delete {file}, or set RAY_ADDRESS=local")
    ray_init = case.get("ray_kwargs.ray_init", {})
    text = f"a Ray cluster is already running on this machine ({address}), and the run would join it"
    if refused := [name for name in SIZES if ray_init.get(name) is not None]:
        text += f". Ray would reject {', '.join(refused)}"
        return problem(text, f"Set RAY_ADDRESS={address} to join it, or RAY_ADDRESS=local to start a new one")
    return warning(text, "To start a separate cluster, set RAY_ADDRESS=local")


@check("Ray")
def nodes(case: Case) -> Finding | None:
    """The number of nodes matches the environment, which sets this machine's rank."""
    count, several = case.number("trainer.nnodes", 1), Nodes.from_environment(case.environ)
    started = several.count if several else count if case.joins else 1
    if started != count:
        text = f"trainer.nnodes={count}, but {started} node(s) start the run, so "
        remedy = "Set NNODES, NODE_RANK and MASTER_ADDR on each node, and remove trainer.nnodes (the launcher sets it)"
        if started < count:
            return problem(f"{text}it would hang", remedy)
        return warning(f"{text}some nodes would be idle", remedy)
    if count > 1 and (unclear := unclear_interface(case.machine.interfaces, case.environ)):
        sentence, _, remedy = unclear.rpartition(": ")
        return warning(f"{count}; {sentence}", remedy[0].upper() + remedy[1:])
    return None


@check("Ray", "logical CPUs")
def logical_cpus(case: Case) -> Finding | None:
    """Ray has a logical CPU for every actor that needs one; otherwise the run hangs without a message."""
    storage = worker_counts(case.config).get(STORAGE_UNITS, case.get(STORAGE_UNITS, 8))
    units = int(storage) if case.get("transfer_queue.backend.storage_backend") == "SimpleStorage" else 0
    own, engines = case.judge_gpus, "actor_rollout_ref.rollout"
    if not case.get("actor_rollout_ref.hybrid_engine", True):
        own += case.number(f"{engines}.n_gpus_per_node", 1) * case.number(f"{engines}.nnodes", 1)
    visitors = sum(model.visits for model in case.settings.reward.models.values())
    per_gpu = max(CPUS_PER_GPU, 2 + visitors)  # `served_models.reward_pools`
    need = FIXED_CPUS + units + per_gpu * case.world_size + CPUS_PER_ENGINE_GPU * own
    num_cpus, machines = case.get("ray_kwargs.ray_init.num_cpus"), case.number("trainer.nnodes", 1)
    if case.joins:
        return skipped(f"the cluster needs {need} logical CPUs, but its nodes cannot be checked from this machine")
    if num_cpus is None and case.is_elsewhere:
        return skipped(f"{need} are needed, but this machine has no GPU, so the run would be on another machine")
    available = machines * (int(num_cpus) if num_cpus is not None else case.machine.cores)
    source = "ray_kwargs.ray_init.num_cpus" if num_cpus is not None else "the machine's cores"
    if available < need:
        more = FIXED_CPUS + CPUS_PER_ENGINE_GPU * own
        detail = f"{units} storage units, {per_gpu} for each of {case.world_size} GPU(s), {more} more"
        return problem(
            f"Ray has {available} ({source}), but {need} are needed ({detail}), so the run would hang",
            f"Set ray_kwargs.ray_init.num_cpus={-(-need // machines)}, which may be more than the number of cores",
        )
    return None


def answers(address: str) -> bool:
    """Whether a server listens at an address of the form `host:port`, with or without a scheme."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 0), TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True
