"""Starts a Ray cluster on several nodes: the same command runs on each node, and the node's rank decides its role.

Rank 0 starts the head, waits until every node has joined, trains as the cluster's driver, and stops the head. Every
other rank starts a Ray node that joins the cluster and stops when the head is gone. Every process is a descendant of
the launcher that started it and exits with it, even if the launcher is killed; other processes are not touched.

With `RAY_ADDRESS`, the trainer only joins an existing cluster, which this module neither starts nor stops.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from agent_rl.cpu import switch as cpu
from agent_rl.errors import AgentRLError, ConfigError
from agent_rl.launch.environment import joins_ray
from agent_rl.launch.process import process_tree
from agent_rl.launch.stopping import StopRequest

PORT = 6379
"""Port of the head, which is Ray's default."""
POLL_S = 0.5
ANY_PORT = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")
"""Options that choose free ports, since another node on this host or `MASTER_PORT` may use Ray's fixed ports."""
SILENT_S = 60.0
"""The head is considered gone after this number of seconds without an answer (Ray's limit), or immediately if its port
is closed."""
MARK = "AGENT_RL_NODE"
"""Environment variable that all processes of a node inherit."""
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
BRIDGES = ("lo", "docker", "br-", "veth", "virbr", "cni", "flannel", "cali")
"""Name prefixes of interfaces that cannot reach other nodes."""
OWN = ("NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables that the launcher reads but does not pass to its children, because verl's workers use two of these names
for other purposes."""

Check = Callable[[str], None]


class ClusterError(AgentRLError):
    """Nodes did not join in time, or one of Ray's own processes exited."""


@dataclass(frozen=True)
class Nodes:
    """The number of nodes, the rank of this node, and the address of the first node."""

    count: int
    rank: int
    head: str
    port: int = PORT

    @property
    def address(self) -> str:
        """The head's host and port, as Ray writes them."""
        return f"[{self.head}]:{self.port}" if ":" in self.head else f"{self.head}:{self.port}"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Nodes | None:
        """Read `NNODES`, `NODE_RANK`, `MASTER_ADDR` and `MASTER_PORT`, or torchrun's `PET_` forms, or SLURM's
        variables.

        Returns:
            The nodes, or None for a single node or a trainer that joins the cluster at `RAY_ADDRESS`.

        Raises:
            ConfigError: a variable is missing or invalid.
        """
        if joins_ray(environ):
            if (_number(environ, "NNODES", "PET_NNODES") or 1) > 1:
                raise ConfigError("RAY_ADDRESS", "NNODES is also set", "Unset RAY_ADDRESS to start a cluster")
            return None
        count = _number(environ, "NNODES", "PET_NNODES", "SLURM_STEP_NUM_NODES", "SLURM_NNODES") or 1
        if count == 1:
            return None
        rank = _number(environ, "NODE_RANK", "PET_NODE_RANK", "SLURM_NODEID")
        if rank is None:
            raise ConfigError("NODE_RANK", f"there are {count} nodes, but no rank is set", "Set 0 on the first node")
        if not 0 <= rank < count:
            raise ConfigError(
                "NODE_RANK",
                f"there is no rank {rank} among {count} nodes",
                f"Set a number from 0 to {count - 1}, different on each node",
            )
        if _number(environ, "SLURM_LOCALID"):
            raise ConfigError("--ntasks-per-node", "SLURM runs several tasks on a node", "Set --ntasks-per-node=1")
        head = environ.get("MASTER_ADDR") or environ.get("PET_MASTER_ADDR") or _slurm_head(environ)
        if not head:
            raise ConfigError("MASTER_ADDR", "the variable is not set", "Set the first node's host name or address")
        return cls(count, rank, head, _number(environ, "MASTER_PORT", "PET_MASTER_PORT") or PORT)


def interfaces() -> list[str]:
    """Return the interfaces of this machine with an address that another node could use."""
    internet = (socket.AF_INET, socket.AF_INET6)
    return sorted(
        name
        for name, addresses in psutil.net_if_addrs().items()
        if not name.startswith(BRIDGES)
        and any(each.family in internet and not each.address.startswith("fe80:") for each in addresses)
    )


def unclear_interface(names: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """Return a warning if NCCL and Gloo would have to choose among several interfaces, otherwise ""."""
    if len(names) < 2 or any(environ.get(name) for name in INTERFACES):
        return ""
    return (
        f"this node has several addresses ({', '.join(names)}), and NCCL and Gloo choose one of them. If they choose a "
        f"wrong address, the run hangs: set {' and '.join(INTERFACES)} to the interface in the nodes' network"
    )


def node_options(config: Any, *, head: bool) -> list[str]:
    """Return the `ray start` options that correspond to `ray_kwargs.ray_init` in a composed configuration."""
    ray_init = config.ray_kwargs.ray_init
    keys = ("num_cpus", "num_gpus", "object_store_memory", *(("include_dashboard",) if head else ()))
    options = [f"--{key.replace('_', '-')}={ray_init[key]}" for key in keys if ray_init.get(key) is not None]
    if resources := ray_init.get("resources"):
        options.append(f"--resources={json.dumps(dict(resources))}")
    return options


@contextmanager
def head(nodes: Nodes, options: Sequence[str], wait_s: float) -> Iterator[tuple[dict[str, str], Callable[[], None]]]:
    """Run the cluster's head on rank 0 during this block, which starts when all other nodes have joined.

    Args:
        nodes: the nodes.
        options: the options of `ray start`.
        wait_s: seconds within which all nodes must join.

    Returns:
        The trainer's environment, and a function to call repeatedly, which raises an error when the head has exited.

    Raises:
        ClusterError: the port is taken, nodes are missing, or the head exits before the trainer.
    """
    if _answers(nodes):
        raise ClusterError(f"{nodes.address} is already in use. Set MASTER_PORT to another port on every node")
    arguments = ["--head", f"--port={nodes.port}", *_own_address(nodes.head), *options]
    with _ray_node(arguments) as (forks, check):
        _wait_for_nodes(nodes, check, wait_s)
        environment = {**_environment(), **forks, "RAY_ADDRESS": nodes.address}
        yield environment, partial(check, "the head of the Ray cluster exited before the trainer")


def run_worker(nodes: Nodes, options: Sequence[str], wait_s: float, stopping: StopRequest) -> None:
    """Join the head's cluster on a rank other than 0, and stay until the head is gone.

    A signal that ends a job reaches all nodes, but the run needs this node until rank 0 has saved a checkpoint.

    Args:
        nodes: the nodes.
        options: the options of `ray start`.
        wait_s: seconds within which the head must answer.
        stopping: receives the signals of this process.

    Raises:
        ClusterError: the head does not answer in time, or this node's Ray exits before the head.
    """
    rank = f"rank {nodes.rank}"
    problem = f"{rank}: no head answered at {nodes.address} within {wait_s:.0f} s"
    _wait_for_head(nodes, time.monotonic() + wait_s, problem)
    _say(f"{rank} of {nodes.count} joins {nodes.address}")
    with _ray_node([f"--address={nodes.address}", *options]) as (_, check):
        last_answer, announced = time.monotonic(), False
        stopping.can_wait = lambda: True
        while (answer := _answers(nodes)) is not False and time.monotonic() - last_answer < SILENT_S:
            if stopping.asked and not announced:
                _say(f"{rank}: {stopping.asked}: waiting for rank 0; another signal stops this node immediately")
                announced = True
            if answer:
                last_answer = time.monotonic()
                check(f"{rank}: this node's Ray exited before the head")
            time.sleep(POLL_S)
        _say(f"{rank}: the head is gone, so this node stops")


@contextmanager
def _ray_node(arguments: Sequence[str]) -> Iterator[tuple[Mapping[str, str], Check]]:
    """Run a Ray node during this block; all processes that the node started exit with it.

    Returns:
        The environment of the server that starts the node's workers, and a check that takes the text of an error: if
        the node has exited, the check raises a ClusterError with this text and the last lines of Ray's output.
    """
    if warning := unclear_interface(interfaces()):
        _say(f"warning: {warning}")
    env = {**_environment(), **(cpu.child_environment() if cpu.is_selected() else {})}
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *ANY_PORT, *arguments]
    if folder := env.get("RAY_TMPDIR"):
        command.append(f"--temp-dir={folder}")
    with tempfile.TemporaryFile() as output, process_tree(command, env, output, MARK) as (process, forks):

        def check(problem: str) -> None:
            if process.poll() is not None:
                output.seek(0)
                lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
                raise ClusterError("\n  ".join([problem, *lines[-12:]]))

        yield forks, check


def _wait_for_head(nodes: Nodes, deadline: float, problem: str, check: Check = lambda problem: None) -> None:
    while not _answers(nodes):
        check("the head of the Ray cluster did not start")
        if time.monotonic() > deadline:
            raise ClusterError(problem)
        time.sleep(POLL_S)


def _wait_for_nodes(nodes: Nodes, check: Check, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    _wait_for_head(nodes, deadline, f"the head does not answer at {nodes.address}, its own address", check)
    os.environ.update(_security())
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    try:
        known = 0
        while known < nodes.count:
            check("the head of the Ray cluster exited")
            joined = sum(each["Alive"] for each in ray.nodes())
            if joined != known:
                _say(f"{joined} of {nodes.count} nodes have joined at {nodes.address}")
                known = joined
            elif time.monotonic() > deadline:
                raise ClusterError(
                    f"{nodes.count - known} of {nodes.count} nodes did not join {nodes.address} within {wait_s:.0f} s. "
                    "Run the same command on every node, each with its own NODE_RANK"
                )
            time.sleep(POLL_S)
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, handler)  # Ray replaced the handler


def _environment() -> dict[str, str]:
    """Return the environment of Ray's processes and the trainer."""
    inherited = {name: value for name, value in os.environ.items() if name not in (*OWN, "RAY_ADDRESS")}
    # By default, Ray would wait 30 seconds for a node's work to move to another node, but no other node exists.
    defaults = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
    return {**defaults, **inherited, **_security()}


def _security() -> dict[str, str]:
    """If the user has set a token, return the variable that makes Ray's processes send it, as the head requires."""
    token = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if "RAY_AUTH_MODE" in os.environ or not (token or (Path.home() / ".ray" / "auth_token").is_file()):
        return {}
    return {"RAY_AUTH_MODE": "token"}


def _answers(nodes: Nodes) -> bool | None:
    """Whether the head's port is open, or None if there is no answer or the host is unknown."""
    try:
        with socket.create_connection((nodes.head, nodes.port), timeout=5):
            return True
    except ConnectionRefusedError:
        return False
    except OSError:
        return None


def _own_address(head: str) -> list[str]:
    """Return the option that binds Ray to this host's address, if the name `head` resolves to such an address."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(head, None, type=socket.SOCK_STREAM)}
    except OSError:
        return []
    own = {each.address for interface in psutil.net_if_addrs().values() for each in interface}
    usable = sorted(each for each in addresses & own if not each.startswith("127.") and each != "::1")
    return [f"--node-ip-address={usable[0]}"] if usable else []


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the value of the first of `names` that is set, as a number."""
    for name in names:
        if text := environ.get(name):
            if not text.isdecimal():
                raise ConfigError(name, f"{text!r} is not a number", "Use a whole number")
            return int(text)
    return None


def _slurm_head(environ: Mapping[str, str]) -> str | None:
    """Return the first host of the SLURM step or job."""
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    if not hosts:
        return None
    try:
        done = subprocess.run(["scontrol", "show", "hostnames", hosts], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            "MASTER_ADDR",
            f"scontrol could not list the first host of {hosts}",
            'Before srun: export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        ) from error
    return done.stdout.split()[0]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
