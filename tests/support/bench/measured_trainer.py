"""A trainer that measures each step: CPU-seconds and memory of all processes of the run, and of its own parts.

The variable `MEASURED` names the file that gets a line of JSON for each step, and the trajectories of each step.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from agent_rl.settings.old_keys import RUN
from agent_rl.verl_adapter.trainer import AgentTrainer

MEASURED: dict[str, Any] = json.loads(os.environ["MEASURED"])
ROLES = {
    "AgentLoopWorker": "agent-loop worker",
    "RewardLoopWorker": "reward worker",
    "TaskRunner": "driver",
    "TransferQueueController": "TransferQueue controller",
    "SimpleStorageUnit": "TransferQueue storage",
    "GlobalRequestLoadBalancer": "load balancer",
    "WorkerDict": "training worker",
    "SimulatedServer": "engine",
    "raylet": "raylet",
    "gcs_server": "GCS",
}
PARTS = {
    "prepare_step": "rows to the workers",
    "_balance_batch": "balance",
    "_compute_old_log_prob": "old log-probs",
    "_compute_ref_log_prob": "reference log-probs",
    "_compute_advantage": "advantages",
    "_update_actor": "update",
    "on_step_end": "weights to the engines",
    "_compute_metrics": "metrics",
}
"""The methods of a step, in order."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
LISTINGS, KEYS = 5, 64


def role_of(command: str) -> str:
    return next((role for name, role in ROLES.items() if name in command), "other")


class Meter:
    """The processes of this run: those that inherited its mark."""

    def __init__(self) -> None:
        self._mark = f"{RUN}={os.environ[RUN]}".encode()
        self.roles: dict[int, str] = {}

    def look(self) -> None:
        """Find the processes of the run."""
        for pid in psutil.pids():
            with suppress(OSError):
                if self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                    self.roles[pid] = role_of(words[:200])

    def cpu(self) -> dict[int, float]:
        """Return the CPU-seconds of each process so far."""
        seconds = {}
        for pid in self.roles:
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                seconds[pid] = (int(fields[11]) + int(fields[12])) * TICK_S
        return seconds

    def pss(self) -> dict[str, list[int]]:
        """Return the proportional memory of each process in KiB, by role."""
        return self._kib("smaps_rollup", "Pss")

    def peak(self) -> dict[str, list[int]]:
        """Return the greatest resident memory of each process in KiB since `reset_peak`, by role."""
        return self._kib("status", "VmHWM")

    def reset_peak(self) -> None:
        for pid in self.roles:
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def _kib(self, file: str, name: str) -> dict[str, list[int]]:
        values = defaultdict(list)
        for pid, role in self.roles.items():
            with suppress(OSError):
                text = Path(f"/proc/{pid}/{file}").read_text()
                if line := re.search(rf"^{name}:\s+(\d+)", text, re.M):
                    values[role].append(int(line[1]))
        return dict(values)


class MeasuredTrainer(AgentTrainer):
    """Trains with another number of trajectories in each step."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.meter = Meter()
        self._record: dict[str, Any] = {}
        self._own_cpu: defaultdict[int, float] = defaultdict(float)

    def on_step_begin(self) -> None:
        self._finish()
        trajectories = MEASURED["trajectories"][self.global_steps - 1]
        self._resize(trajectories // self.config.actor_rollout_ref.rollout.n)
        self.meter.look()
        self.meter.reset_peak()
        self.parts: defaultdict[str, float] = defaultdict(float)
        self._own_cpu = defaultdict(float)
        self._polls = 0
        self._began = time.monotonic()
        self._before = self.meter.cpu()
        self._record = {"trajectories": trajectories}
        self._traced = self._trace_bytes()
        super().on_step_begin()

    def _resize(self, prompts: int) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        data, actor = self.config.data, self.config.actor_rollout_ref.actor
        data.train_batch_size = actor.ppo_mini_batch_size = prompts
        collate = self.train_dataloader.collate_fn
        self.train_dataloader = StatefulDataLoader(self.train_dataset, batch_size=prompts, collate_fn=collate)
        self.train_dataloader_it = None

    def on_sample_begin(self) -> None:
        super().on_sample_begin()
        buffer = self.replay_buffer
        if "_sync_metadata_from_transfer_queue" not in vars(buffer):
            poll = buffer._sync_metadata_from_transfer_queue

            def counted() -> None:
                self._polls += 1
                poll()

            buffer._sync_metadata_from_transfer_queue = counted
        self._sampling = time.process_time()

    def on_sample_end(self) -> None:
        self.parts["wait for the trajectories"] += time.process_time() - self._sampling
        with self._unmeasured():
            self._record |= {"pss": self.meter.pss(), "polls": self._polls, **self._listing(), "bytes": self._bytes()}
        super().on_sample_end()

    def _listing(self) -> dict[str, float]:
        """Return the CPU-seconds of the driver and of TransferQueue's controller for one poll."""
        import transfer_queue as tq

        mine, before = time.process_time(), self.meter.cpu()
        for _ in range(LISTINGS):
            tags = tq.kv_list()
        mine, after = time.process_time() - mine, self.meter.cpu()
        controller = sum(after[pid] - before[pid] for pid, role in self.meter.roles.items() if "controller" in role)
        return {
            "tags": sum(map(len, tags.values())),
            "poll_driver_s": mine / LISTINGS,
            "poll_controller_s": controller / LISTINGS,
        }

    def _bytes(self) -> dict[str, float]:
        """Return the bytes of each stored field per trajectory, from a sample of them."""
        import torch
        import transfer_queue as tq

        tags = (tq.kv_list("train") or {})["train"]
        keys = [key for key, tag in tags.items() if not tag.get("is_prompt")]  # in the order in which they ended
        keys = keys[:: max(1, len(keys) // KEYS)]
        data = tq.kv_batch_get(keys=keys, partition_id="train")
        sizes = {}
        for name, values in data.items():
            if isinstance(values, torch.Tensor):
                size = (values.values() if values.is_nested else values).nbytes
            else:
                size = len(pickle.dumps([getattr(value, "data", value) for value in values]))
            sizes[name] = size / len(keys)
        return sizes

    def _trace_bytes(self) -> int:
        path = Path(self.settings.trace.path or "")
        return sum(file.stat().st_size for file in path.parent.glob(f"{path.stem}*"))

    @contextmanager
    def _unmeasured(self) -> Iterator[None]:
        """What processes do in this block does not count."""
        before = self.meter.cpu()
        yield
        for pid, seconds in self.meter.cpu().items():
            self._own_cpu[pid] += seconds - before.get(pid, seconds)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        begin = time.process_time()
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        self.parts["metrics"] += time.process_time() - begin
        names = (
            "response_length/mean",
            "prompt_length/mean",
            "training/num_turns/mean",
            "agent/turns",
            "agent/unscored",
        )
        self._record["metrics"] = {name: float(metrics[name]) for name in names if name in metrics}

    def _finish(self) -> None:
        """Write the line of the step that has ended."""
        if not self._record:
            return
        self.meter.look()  # a worker has its name when it has had work
        after = self.meter.cpu()
        cpu = defaultdict(list)
        for pid, seconds in after.items():
            cpu[self.meter.roles[pid]].append(seconds - self._before.get(pid, 0.0) - self._own_cpu[pid])
        line = {**self._record, "cpu": cpu, "parts": self.parts, "peak": self.meter.peak()}
        line["trace_bytes"] = (self._trace_bytes() - self._traced) / line["trajectories"]
        with open(MEASURED["file"], "a") as file:
            file.write(json.dumps({**line, "seconds": time.monotonic() - self._began}) + "\n")

    def _shutdown_dump_executor(self) -> None:
        self._finish()
        super()._shutdown_dump_executor()


def _measured(method: str, part: str) -> Any:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin = time.process_time()
        try:
            return getattr(super(MeasuredTrainer, self), method)(*args, **kwargs)
        finally:
            if hasattr(self, "parts"):
                self.parts[part] += time.process_time() - begin

    return run


for _method, _part in PARTS.items():
    if _method not in vars(MeasuredTrainer):
        setattr(MeasuredTrainer, _method, _measured(_method, _part))
