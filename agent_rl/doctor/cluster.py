"""Checks of Ray: what the run would join or start, the ports that it needs, and whether its actors find room."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning

__all__ = ["logical_cpus", "nodes", "ports", "ray_cluster"]

TIMEOUT_S = 2.0
CPUS_PER_GPU = 3
"""What verl's resource pools reserve beside each GPU (`max_colocate_count`)."""
FIXED_CPUS = 2
"""TransferQueue's controller, and one that must be free while actors without a reservation are placed."""
GIVEN = ("num_cpus", "num_gpus", "resources", "object_store_memory")
"""Arguments of `ray.init` that Ray refuses when it joins a cluster."""


def ray_cluster(case: Case) -> Iterator[Finding]:
    """Which Ray the run would use: a named one, one that runs here already, or its own."""
    if address := case.environ.get("RAY_ADDRESS"):
        yield _named(case, address)
        return
    file = _address_file(case.environ)
    address = file.read_text(errors="replace").strip() if file.is_file() else ""
    if not address:
        yield ok("Ray", "none runs here; the run starts its own")
    elif not answers(address):
        text = f"{file} names {address}, where nothing answers: a Ray that is gone has left it, and the run would wait"
        yield problem("Ray", text, f"Delete {file}, or run ray stop")
    elif refused := _refused(case):
        text = f"one runs here ({address}); the run would join it, and Ray refuses {', '.join(refused)} then"
        remedy = "End it with ray stop, or give the run its own: RAY_TMPDIR=/tmp/myray"
        yield problem("Ray", text, remedy)
    else:
        remedy = "If that is not wanted: ray stop, or RAY_TMPDIR=/tmp/myray"
        yield warning("Ray", f"one runs here ({address}); the run would join it", remedy)


def ports(case: Case) -> Iterator[Finding]:
    """Ports that the environment or the configuration fixes are free."""
    named = {"MASTER_PORT": case.environ.get("MASTER_PORT")}
    metrics = case.get("transfer_queue.metrics", {})
    if metrics.get("enabled") and metrics.get("port"):
        named["transfer_queue.metrics.port"] = str(metrics["port"])
    taken = False
    for name, port in named.items():
        if port in (None, ""):
            continue
        if not str(port).isdigit() or not 0 < int(str(port)) < 65536:
            taken = True
            yield problem(name, f"{port!r} is not a port", "Set a number from 1024 to 65535, or unset it")
        elif not _is_free(int(str(port))):
            taken = True
            yield problem(name, f"port {port} is taken", "Set another one, or end the program that uses it (ss -ltnp)")
    if not taken:
        fixed = ", ".join(f"{name}={port}" for name, port in named.items() if port)
        yield ok("ports", f"{fixed} free" if fixed else "none is fixed; verl and Ray look for free ones")


def nodes(case: Case) -> Iterator[Finding]:
    """The number of machines and this machine's place among them go together."""
    subject, count = "nodes", int(case.get("trainer.nnodes", 1))
    rank = case.environ.get("NODE_RANK", "")
    joins = bool(case.environ.get("RAY_ADDRESS"))
    if rank and not rank.isdigit():
        yield problem(
            "NODE_RANK", f"{rank!r} is not a number", f"Set 0 to {count - 1}, a different one on each machine"
        )
    elif rank and int(rank) >= count:
        text = f"NODE_RANK={rank}, but trainer.nnodes is {count}"
        yield problem("NODE_RANK", text, f"Set trainer.nnodes={int(rank) + 1} or more, or unset NODE_RANK")
    elif count > 1 and case.on_cpu and not joins:
        yield problem(
            subject,
            f"trainer.nnodes={count} on one CPU machine",
            "Set trainer.nnodes=1, or RAY_ADDRESS to a cluster's head",
        )
    elif count > 1 and not (rank or joins):
        text = f"trainer.nnodes={count}, but neither NODE_RANK nor RAY_ADDRESS is set: the run would wait for ever"
        yield problem(subject, text, "Set NODE_RANK on each machine, or RAY_ADDRESS to the cluster's head")
    else:
        yield ok(subject, f"{count}" + (f", this one is {rank}" if rank else ""))


def logical_cpus(case: Case) -> Iterator[Finding]:
    """Ray has a logical CPU for every actor that asks for one; else the run waits for ever, without a word."""
    subject = "logical CPUs"
    storage = case.get("transfer_queue.backend.SimpleStorage.num_data_storage_units", 8)
    units = int(storage) if case.get("transfer_queue.backend.storage_backend") == "SimpleStorage" else 0
    gpus = int(case.get("trainer.n_gpus_per_node", 1))
    need = FIXED_CPUS + units + CPUS_PER_GPU * gpus
    if case.environ.get("RAY_ADDRESS"):
        yield skipped(subject, f"the cluster needs {need} on this run's head; it is not asked")
        return
    given = case.get("ray_kwargs.ray_init.num_cpus")
    if given is None and case.is_elsewhere:
        yield skipped(subject, f"{need} needed; this machine has no GPU, so the run would be on another one")
        return
    there = int(given) if given is not None else len(os.sched_getaffinity(0))
    source = "ray_kwargs.ray_init.num_cpus" if given is not None else "this machine's cores"
    detail = f"{units} storage units, {CPUS_PER_GPU} for each of {gpus} GPU(s), {FIXED_CPUS} more"
    if there < need:
        text = f"{there} ({source}), {need} needed ({detail}): the run would wait for ever"
        remedy = f"Set ray_kwargs.ray_init.num_cpus={need}: the number is logical, cores may be fewer"
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
    if address in ("auto", "local"):
        return ok("Ray", f"RAY_ADDRESS={address}")
    if not answers(address):
        remedy = "Start Ray there (ray start --head), mend the address, or unset RAY_ADDRESS"
        return problem("Ray", f"RAY_ADDRESS={address}: nothing answers", remedy)
    if refused := _refused(case):
        text = f"RAY_ADDRESS={address} answers, but Ray refuses {', '.join(refused)} when it joins a cluster"
        remedy = " ".join(f"~ray_kwargs.ray_init.{name}" for name in refused)
        return problem("Ray", text, f"Add to the command: {remedy}")
    return ok("Ray", f"RAY_ADDRESS={address} answers")


def _refused(case: Case) -> list[str]:
    given = case.get("ray_kwargs.ray_init", {})
    return [name for name in GIVEN if given.get(name) is not None]


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
