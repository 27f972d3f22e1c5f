"""Generates docs/reference/scale.md from the points of `make scale`: what a step costs, and what GPU clusters need.

The CPU-seconds of a component in a step are a fixed cost and a cost per trajectory, which has a share for each turn and
each token. A component that is one process for a whole cluster is compared with the seconds of a step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["scale_page"]

Step = dict[str, Any]
Steps = list[Step]

DRIVER, CONTROLLER, STORAGE = "driver", "TransferQueue controller", "TransferQueue storage"
WORKER, REWARD, TRAINING, BALANCER = "agent-loop worker", "reward worker", "training worker", "load balancer"
ROLES = (WORKER, REWARD, DRIVER, CONTROLLER, STORAGE, TRAINING, BALANCER)
WAITING = "wait for the trajectories"
"""The part of the driver during which the GPUs sample."""
SHARE = 0.1
"""A component that takes more of a step than this is a bottleneck."""
FEW, MANY = 256, 4096
"""Trajectories of the steps whose costs are compared."""


class Workload(NamedTuple):
    """Trajectories of a training with a 7B model: turns, and tokens with observations."""

    name: str
    turns: float
    tokens: float


class Cluster(NamedTuple):
    """GPUs, in nodes of 8 with as many agent-loop workers, reward workers and storage units."""

    gpus: int


WORKLOADS = (Workload("500 tokens in 3 turns", 3, 500), Workload("16,000 tokens in 15 turns", 15, 16_000))
CLUSTERS = (Cluster(8), Cluster(64), Cluster(1000))
ENGINE_TOKENS_S, PER_GPU, UPDATE, POLL_S = 20_000, 128, 0.5, 2.0
"""Tokens per second of a GPU, trajectories per GPU in a step, seconds of the update per second of sampling, and seconds
between two polls of verl's replay buffer."""


class Cost(NamedTuple):
    """An amount that is fixed in each step, and the amounts per trajectory, per turn and per token of a trajectory."""

    fixed: float
    trajectory: float
    turn: float
    token: float

    def of(self, workload: Workload) -> float:
        """Return the amount for each trajectory of a workload."""
        return self.trajectory + self.turn * workload.turns + self.token * workload.tokens


def cpu(step: Step, role: str) -> float:
    """Return the CPU-seconds of a role's processes in a step, without polls, whose number depends on the clock."""
    seconds = float(sum(step["cpu"].get(role, ())))
    poll = {DRIVER: "poll_driver_s", CONTROLLER: "poll_controller_s"}.get(role)
    polled = float(step["polls"] * step[poll]) / 2 if poll else 0.0  # tags arrive evenly
    return max(0.0, seconds - polled)


def serial(step: Step) -> float:
    """Return the CPU-seconds of the driver in which the GPUs wait for it."""
    return float(sum(seconds for part, seconds in step["parts"].items() if part != WAITING))


class Points:
    """The points of scale.json."""

    def __init__(self, points: list[Step]) -> None:
        self._points = points

    def steps(self, **fields: int) -> dict[int, Step]:
        """Return the steps with these fields and otherwise usual ones, by trajectories."""
        wanted = {"workers": 4, "nodes": 1, "turns": 1, "tokens": 1, "is_repaired": True, **fields}
        fitting = [point for point in self._points if all(point[name] == value for name, value in wanted.items())]
        return {point["trajectories"]: point for point in sorted(fitting, key=lambda point: point["trajectories"])}

    def cost(self, amount: Callable[[Step], float]) -> Cost:
        """Separate an amount by steps with usual trajectories, with more turns, and with longer turns as well."""
        usual, several, long = self.steps(), self.steps(turns=5)[FEW], self.steps(turns=5, tokens=20)[FEW]
        each = (amount(usual[MANY]) - amount(usual[FEW])) / (MANY - FEW)
        fixed = max(0.0, amount(usual[FEW]) - each * FEW)
        (turns, tokens), (more_turns, more_tokens), (_, most_tokens) = map(size, (usual[FEW], several, long))
        several_each, long_each = ((amount(step) - fixed) / FEW for step in (several, long))
        token = max(0.0, (long_each - several_each) / (most_tokens - more_tokens))
        turn = max(0.0, (several_each - each - token * (more_tokens - tokens)) / (more_turns - turns))
        return Cost(fixed, max(0.0, each - turn * turns - token * tokens), turn, token)


def size(step: Step) -> tuple[float, float]:
    """Return turns and tokens of a step's mean trajectory."""
    metrics = step["metrics"]
    return metrics["agent/turns"], metrics["response_length/mean"] + metrics["prompt_length/mean"]


def scale_page(note: str, table: Any) -> str:
    """Return the page.

    Args:
        note: the first line.
        table: the content of scale.json.
    """
    points = Points(table["points"])
    usual = points.steps()
    turns, tokens = size(usual[MANY])
    _, tokens_long = size(points.steps(turns=5, tokens=20)[FEW])
    versions = ", ".join(f"{name} {version}" for name, version in table["versions"].items())
    values = {"note": note, "versions": versions, "turns": turns, "tokens": tokens, "long": tokens_long}
    shares = [_shares(points, workload) for workload in WORKLOADS]
    parts = [
        _INTRODUCTION.format(**table["machine"], **values),
        _first_limits(shares),
        _BREAKS,
        _ASSUMPTIONS.format(**values),
        _growth(usual),
        _driver(usual),
        _memory(usual),
        _processes(points),
        _repairs(points),
        _CLUSTERS.format(per_gpu=PER_GPU, update=UPDATE, share=SHARE),
        *(_cluster_table(points, workload, own) for workload, own in zip(WORKLOADS, shares, strict=True)),
        _LIMITS,
    ]
    return "\n".join(parts)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _all(step: Step) -> float:
    return sum(cpu(step, role) for role in ROLES)


def _growth(usual: dict[int, Step]) -> str:
    pairs = list(itertools.pairwise(sorted(usual)))

    def row(name: str, amount: Callable[[Step], float]) -> list[str]:
        each = [(amount(usual[more]) - amount(usual[less])) / (more - less) for less, more in pairs]
        fixed = max(0.0, amount(usual[FEW]) - FEW * (amount(usual[MANY]) - amount(usual[FEW])) / (MANY - FEW))
        return [name, f"{fixed:.2f}", *(f"{1000 * seconds:.2f}" for seconds in each)]

    rows = [row(role, lambda step, role=role: cpu(step, role)) for role in ROLES]  # type: ignore[misc]
    last = [(_all(usual[more]) - _all(usual[less])) / (more - less) for less, more in pairs if less >= 1024]
    change = f"{max(last) / min(last) - 1:.0%}" if len(last) > 1 else "an unknown amount"
    return f"""## CPU time by the number of trajectories

Seconds that are fixed in each step, and milliseconds for each further trajectory between two sizes of a step, with 4
agent-loop and 4 reward workers on one node.

{_table(["", "fixed, s", *(f"{less:,} to {more:,}" for less, more in pairs)], [*rows, row("all of these", _all)])}
From 1,024 to {max(usual):,} trajectories, the cost of a further one differs by {change}.
"""


def _driver(usual: dict[int, Step]) -> str:
    sizes = [number for number in usual if number >= FEW]
    parts = dict.fromkeys(part for number in sizes for part in usual[number]["parts"])
    rows = [
        [part, *(f"{1000 * usual[number]['parts'].get(part, 0) / number:.3f}" for number in sizes)] for part in parts
    ]
    return f"""## The driver

Milliseconds per trajectory of the trainer's process. The GPUs wait during all of its parts, except while it waits for
the trajectories, when it polls TransferQueue every two seconds.

{_table(["", *(f"{number:,}" for number in sizes)], rows)}"""


def _memory(usual: dict[int, Step]) -> str:
    few, many = usual[FEW], usual[max(usual)]
    rows = []
    for role in ROLES:
        if role in many["peak"]:
            held = [f"{sum(step['pss'].get(role, [0])) / 1024:.0f}" for step in (few, many)]
            peaks = [sum(step["peak"].get(role, [0])) for step in (few, many)]
            rows.append([role, *held, f"{max(0.0, (peaks[1] - peaks[0]) / (max(usual) - FEW)):.1f}"])
    fields = sorted(many["bytes"].items(), key=lambda item: -item[1])
    largest = ", ".join(f"`{name}` {int(number):,}" for name, number in fields[:4])
    return f"""## Memory and bytes

MiB of all processes of a kind when all trajectories of a step are stored, and KiB by which their greatest memory grows
for each further trajectory.

{_table(["", f"MiB, {FEW}", f"MiB, {max(usual):,}", "KiB per trajectory"], rows)}
TransferQueue holds {int(sum(many["bytes"].values())):,} bytes per trajectory ({largest}). The trace takes
{int(many["trace_bytes"]):,} bytes per trajectory with tokens.
"""


def _processes(points: Points) -> str:
    rows = []
    for fields in ({"workers": 1}, {}, {"workers": 16}, {"nodes": 2}, {"nodes": 4}):
        if step := points.steps(**fields).get(1024):
            memory = step["pss"].get(WORKER, [0])
            times = [f"{1000 * cpu(step, role) / 1024:.2f}" for role in ROLES[:5]]
            name = f"{step['workers']} worker(s), {step['nodes']} node(s)"
            rows.append([name, *times, f"{sum(memory) / len(memory) / 1024:.0f}"])
    few, many = (points.steps(workers=workers).get(1024) for workers in (4, 16))
    if few and many:
        pairs = [(cpu(few, role), cpu(many, role)) for role in ROLES[:5]]
        times = [f"{1000 * (more + (more - less) * (64 - 16) / (16 - 4)) / 1024:.2f}" for less, more in pairs]
        rows.append(["64 workers, calculated from 4 and 16", *times, ""])
    return f"""## Workers and nodes

Milliseconds per trajectory in a step of 1,024, with the fixed cost, and MiB of an agent-loop worker. With more workers,
fewer trajectories of a worker are stored together, and more processes share the cores of this machine.

{_table(["", *ROLES[:5], "MiB"], rows)}"""


def _repairs(points: Points) -> str:
    verls, ours = points.steps(is_repaired=False).get(1024), points.steps().get(1024)
    if not verls or not ours:
        return ""
    of = [(role, 1000 * cpu(verls, role) / 1024, 1000 * cpu(ours, role) / 1024) for role in ROLES]
    return f"""## What agent_rl changes

In verl, each turn asks one load balancer for an engine, each trajectory is stored alone, a batch is balanced among the
GPUs from a tensor, and the trainer's process looks for garbage among all objects that it has loaded. With agent_rl,
workers choose the engines in synchronous training, what ends together is stored in one request, a batch is balanced
from a list, and the trainer collects garbage rarely. Milliseconds per trajectory in a step of 1,024:

{_table(["", "verl", "agent_rl"], ([role, f"{before:.2f}", f"{after:.2f}"] for role, before, after in of))}"""


def _shares(points: Points, workload: Workload) -> dict[str, dict[Cluster, float]]:
    """Return, for each component and cluster, the share of a step in which each of its processes is busy."""
    costs = {role: points.cost(lambda step, role=role: cpu(step, role)) for role in ROLES}  # type: ignore[misc]
    waits, many = points.cost(serial), points.steps()[MANY]
    poll = many["poll_controller_s"] / many["tags"]
    verls = points.steps(is_repaired=False).get(1024)
    balancer = cpu(verls, BALANCER) / 1024 / size(verls)[0] if verls else 0.0
    shares: dict[str, dict[Cluster, float]] = {}
    for cluster in CLUSTERS:
        number, sampling, whole = _step(cluster, workload)
        of = {role: cost.fixed + number * cost.of(workload) for role, cost in costs.items()}
        for name, share in {
            f"{DRIVER} (1), while the GPUs wait": (waits.fixed + number * waits.of(workload)) / whole,
            f"{CONTROLLER} (1)": of[CONTROLLER] / whole,
            f"{CONTROLLER} (1), polls": number / 2 * poll / POLL_S * sampling / whole,
            f"verl's {BALANCER} (1), in the asynchronous modes": number * workload.turns * balancer / sampling,
            f"{STORAGE} (8 per node)": of[STORAGE] / cluster.gpus / whole,
            f"{WORKER}s (8 per node)": of[WORKER] / cluster.gpus / sampling,
            f"{REWARD}s (8 per node)": of[REWARD] / cluster.gpus / sampling,
        }.items():
            shares.setdefault(name, {})[cluster] = share
    return shares


def _step(cluster: Cluster, workload: Workload) -> tuple[int, float, float]:
    """Return trajectories, seconds of sampling and seconds of a step, if nothing but the GPUs took time."""
    sampling = PER_GPU * workload.tokens / ENGINE_TOKENS_S
    return cluster.gpus * PER_GPU, sampling, sampling * (1 + UPDATE)


def _first_limits(shares: list[dict[str, dict[Cluster, float]]]) -> str:
    rows = []
    for workload, own in zip(WORKLOADS, shares, strict=True):
        cells = []
        for cluster in CLUSTERS:
            name = max((each for each in own if "asynchronous" not in each), key=lambda each: own[each][cluster])
            cells.append(f"{name}: {own[name][cluster]:.0%}")
        rows.append([workload.name, *cells])
    return f"""## What limits a 7B model first

The component with the greatest share of a step in synchronous training. At 100%, a step takes twice as long if the GPUs
wait for the component, and otherwise the component sets the pace.

{_table(["", *(f"{cluster.gpus:,} GPUs" for cluster in CLUSTERS)], rows)}"""


def _cluster_table(points: Points, workload: Workload, shares: Mapping[str, Mapping[Cluster, float]]) -> str:
    steps = [_step(cluster, workload) for cluster in CLUSTERS]
    rows = [
        ["trajectories of a step", *(f"{number:,}" for number, *_ in steps)],
        ["seconds of a step on the GPUs", *(f"{whole:.1f}" for *_, whole in steps)],
    ]
    for name, of in shares.items():
        rows.append([name, *(f"**{share:.0%}**" if share > SHARE else f"{share:.0%}" for share in of.values())])
    idle = next(iter(shares.values()))
    lost = [f"{cluster.gpus * idle[cluster] / (1 + idle[cluster]):.1f}" for cluster in CLUSTERS]
    rows.append(["GPUs' worth of time that the driver costs", *lost])
    for name, cost in {
        "GiB of the driver, at most": points.cost(lambda step: 1024 * sum(step["peak"][DRIVER])),
        "GiB in TransferQueue": points.cost(lambda step: step["trajectories"] * sum(step["bytes"].values())),
    }.items():
        rows.append([name, *(f"{(cost.fixed + number * cost.of(workload)) / 2**30:.1f}" for number, *_ in steps)])
    return f"""### {workload.name}

{_table(["", *(f"{cluster.gpus:,} GPUs" for cluster in CLUSTERS)], rows)}"""


_INTRODUCTION = """{note}
# Scale

What a training step costs besides the GPUs, from 64 to 16,384 trajectories, and what limits a cluster first. Written by
`make scale` on {cpu} ({cores} cores) with {versions}; [scale.json](scale.json) has all figures.
"""

_ASSUMPTIONS = """## What is real, and what is assumed

Costs are CPU-seconds of processes (`/proc/PID/stat`), so other load of the machine does not count. Memory is the
proportional set size (`smaps_rollup`). **Real** are agent loops, calls of tools, trajectories, rewards, trace,
TransferQueue, Ray, and the trainer with its own work on each batch. **Assumed:**

- The engine, the tools' work and the model's passes are simulated. The engine answers through verl's client and Ray,
  and the training workers fetch their rows from TransferQueue and store log-probs there.
- 64 trajectories are repeated. Their lengths are those of a run of `recipes/service`, with {turns:.1f} turns and
  {tokens:.0f} tokens on average (with prompt and observations); the observations of a trajectory are equally long, and
  each turn but the last calls a tool. Costs per turn and per token come from steps of {few} trajectories with five
  times the turns, and with {long:,.0f} tokens in as many turns.
- A GPU with a 7B model generates 20,000 tokens per second for 512 requests at once, and a tool takes 0.5 s. Both are
  estimates. The latencies are scaled down by 100, which changes only the number of polls, whose cost is stated apart.
- The patches that make a small run on a CPU faster are off. Ray workers are forked from one process, so memory that
  they share here is not shared on GPU nodes, where each worker needs about 0.5 GiB.
- Logical nodes are Ray nodes on one machine: their messages cost CPU time, but no network delays them.
- Cores are those of this machine.
""".replace("{few}", str(FEW))

_BREAKS = """What breaks, rather than slows down:

- The driver pads a batch to its longest sequence, so its memory grows with trajectories and tokens (see below).
- verl's TransferQueue stores 100,000 training sequences; a run with larger steps is refused before it starts, and
  `transfer_queue.backend.SimpleStorage.total_storage_size=null` lifts the limit.
- verl's load balancer remembers the engines of 10,000 conversations. With more at once, turns move to engines that have
  not cached their conversations. In synchronous training agent_rl does not use it; the asynchronous modes do.
"""

_CLUSTERS = """## Clusters: a 7B model on 8, 64 and 1,000 GPUs

Calculated from the tables above: {per_gpu} trajectories per GPU in a step, an update that takes {update} of the time of
sampling, and 8 agent-loop workers, reward workers and storage units per node of 8 GPUs. Each figure is the share of a
step for which a process of the kind is busy (for workers and the load balancer: of the time of sampling). A bold share
is above {share:.0%}. The number in brackets is the number of processes; a cluster has only one of those with (1).
"""

_LIMITS = """## Limits of one process, of a node and of a cluster

| what | where the limit applies |
| --- | --- |
| programs in the sandbox | a node: its processes share the places ([sandbox](../guides/sandbox.md)) |
| index of the tool `search` | a node: it is built once, and all processes map the same files into memory |
| replies of a judge | all processes that share `cache_path`; without it, each reward worker asks for itself |
| `rate_per_s` of judges, reward services and HTTP tools | a node: its processes share the rate; the service sees it times the number of nodes |
| `max_concurrent` of judges, reward services and HTTP tools | a process: the service sees the limit times the number of reward or agent-loop workers |
| circuit breaker of an endpoint | a process: each worker finds out for itself that a server is down |
| `max_concurrency` of a tool | an agent-loop worker |
| trajectories in TransferQueue | a cluster: `transfer_queue.backend.SimpleStorage.total_storage_size`, 100,000 in verl; a larger step is refused at the start |
"""  # noqa: E501 (rows of tables)
