"""Checks of Ray: what the run would join or start, the ports that it needs, and whether its actors find room."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning
from agent_rl.launch.cluster import Nodes
from agent_rl.launch.command import SIZES

__all__ = ["logical_cpus", "nodes", "ports", "ray_cluster"]

TIMEOUT_S = 2.0
CPUS_PER_GPU = 3
"""What verl's resource pools reserve beside each GPU (`max_colocate_count`)."""
CPUS_PER_ENGINE_GPU = 2
"""The same for engines on GPUs of their own."""
FIXED_CPUS = 2
"""TransferQueue's controller, and one that must be free while actors without a reservation are placed."""


def ray_cluster(case: Case) -> Iterator[Finding]:
    """Which Ray the run would use: a named one, one that runs here already, or its own."""
    if case.joins:
        yield _named(case, case.environ["RAY_ADDRESS"])
        return
    if several := case.nodes:
        yield ok("Ray", f"the launcher starts it on {several.count} nodes, with its head at {several.address}")
        return
    if case.environ.get("RAY_ADDRESS") == "local":
        yield ok("Ray", "RAY_ADDRESS=local: the run starts its own")
        return
    file = _address_file(case.environ)
    address = file.read_text(errors="replace").strip() if file.is_file() else ""
    if not address:
        yield ok("Ray", "none runs here; the run starts its own")
    elif not answers(address):
        text = f"{file} names {address}, where nothing answers: a Ray that is gone has left it, and the run would wait"
        yield problem("Ray", text, f"Delete {file}, or set RAY_ADDRESS=local")
    elif refused := _refused(case):
        text = f"one runs here ({address}); the run would join it, and Ray refuses {', '.join(refused)} then"
        yield problem("Ray", text, f"Set RAY_ADDRESS={address} to join it, or RAY_ADDRESS=local to start one")
    else:
        yield warning("Ray", f"one runs here ({address}); the run would join it", "Or set RAY_ADDRESS=local")


def ports(case: Case) -> Iterator[Finding]:
    """Ports that the environment or the configuration fixes are free."""
    named: dict[str, str] = {}
    if case.nodes and case.nodes.rank == 0:
        named["MASTER_PORT"] = str(case.nodes.port)
    metrics = case.get("transfer_queue.metrics", {})
    if metrics.get("enabled") and metrics.get("port"):
        named["transfer_queue.metrics.port"] = str(metrics["port"])
    taken = False
    for name, port in named.items():
        if not port.isdigit() or not 0 < int(port) < 65536:
            taken = True
            yield problem(name, f"{port!r} is not a port", "Set a number from 1024 to 65535, or unset it")
        elif not _is_free(int(port)):
            taken = True
            yield problem(name, f"port {port} is taken", "Set another one, or end the program that uses it (ss -ltnp)")
    if not taken:
        fixed = ", ".join(f"{name}={port}" for name, port in named.items())
        yield ok("ports", f"{fixed} free" if fixed else "none is fixed; verl and Ray look for free ones")


def nodes(case: Case) -> Iterator[Finding]:
    """The number of machines, and this machine's place among them."""
    count, several = int(case.get("trainer.nnodes", 1)), Nodes.from_environment(case.environ)
    if several and several.count < count:
        text = f"trainer.nnodes={count}, but NNODES={several.count}: the run would wait for ever"
        yield problem("nodes", text, "Leave trainer.nnodes out: the launcher sets it")
    elif several and several.count > count:
        text = f"trainer.nnodes={count}, but NNODES={several.count}: nodes would stand idle"
        yield warning("nodes", text, "Leave trainer.nnodes out: the launcher sets it")
    elif several:
        yield ok("nodes", f"{count}, this one is {several.rank}")
    elif count > 1 and not case.joins:
        text = f"trainer.nnodes={count}, but this run would be alone and wait for ever"
        yield problem("nodes", text, "Set NNODES, NODE_RANK and MASTER_ADDR on each node, or RAY_ADDRESS")
    else:
        yield ok("nodes", str(count))


def logical_cpus(case: Case) -> Iterator[Finding]:
    """Ray has a logical CPU for every actor that asks for one; else the run waits for ever, without a word."""
    subject = "logical CPUs"
    storage = case.get("transfer_queue.backend.SimpleStorage.num_data_storage_units", 8)
    units = int(storage) if case.get("transfer_queue.backend.storage_backend") == "SimpleStorage" else 0
    own = 0 if case.get("actor_rollout_ref.hybrid_engine", True) else case.engine_world
    need = FIXED_CPUS + units + CPUS_PER_GPU * case.world_size + CPUS_PER_ENGINE_GPU * own
    if case.joins:
        yield skipped(subject, f"the cluster needs {need}; it is not asked")
        return
    given = case.get("ray_kwargs.ray_init.num_cpus")
    if given is None and case.is_elsewhere:
        yield skipped(subject, f"{need} needed; this machine has no GPU, so the run would be on another one")
        return
    machines = int(case.get("trainer.nnodes", 1))
    there = machines * (int(given) if given is not None else len(os.sched_getaffinity(0)))
    source = "ray_kwargs.ray_init.num_cpus" if given is not None else "the machine's cores"
    detail = f"{units} storage units, {CPUS_PER_GPU} for each of {case.world_size} GPU(s), {FIXED_CPUS + 2 * own} more"
    if there < need:
        text = f"{there} ({source}), {need} needed ({detail}): the run would wait for ever"
        each = -(-need // machines)
        remedy = f"Set ray_kwargs.ray_init.num_cpus={each}: the number is logical, cores may be fewer"
        yield problem(subject, text, remedy)
    else:
        yield ok(subject, f"{there} ({source}), {need} needed")


def answers(address: str) -> bool:
    """Whether something listens at host:port, with or without a scheme in front."""
    host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if not port.isdigit():
        return False
    try:
        socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _named(case: Case, address: str) -> Finding:
    if address == "auto":
        return ok("Ray", "RAY_ADDRESS=auto: one that runs here")
    if not answers(address):
        remedy = "Start Ray there (ray start --head), mend the address, or unset RAY_ADDRESS"
        return problem("Ray", f"RAY_ADDRESS={address}: nothing answers", remedy)
    return ok("Ray", f"RAY_ADDRESS={address} answers")


def _refused(case: Case) -> list[str]:
    given = case.get("ray_kwargs.ray_init", {})
    return [name for name in SIZES if given.get(name) is not None]


def _address_file(environ: Mapping[str, str]) -> Path:
    """Where Ray notes the cluster that was started last: `ray start` writes it, `ray.init` reads it."""
    temporary = environ.get("RAY_TMPDIR") or environ.get("TMPDIR") or "/tmp"
    return Path(temporary) / "ray" / "ray_current_cluster"


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True
