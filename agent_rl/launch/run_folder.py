"""`RunFolder`: the folder for a run's output, `outputs/<experiment>` unless `agent_rl.run.folder` sets another.

`run.json` records what was started and how it ended; `train.log`, `metrics.jsonl`, `tensorboard/`, `trace.jsonl`,
`rollouts/` and `checkpoints/` are the run's output. A run with the same configuration resumes from the newest
checkpoint; a different configuration is rejected. A run that starts from scratch moves old files to `earlier/<time>/`.

A change in code or tool files is only reported, because users often change them to fix a run. The keys in
`FREE_TO_CHANGE` are not compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

import agent_rl
from agent_rl.cpu import switch as cpu
from agent_rl.cpu.profile import TRAINING_THREADS, profile_of
from agent_rl.errors import ConfigError
from agent_rl.launch.composition import resolved
from agent_rl.launch.stopping import Aborted, StoppedRun
from agent_rl.settings.secrets import Redactor
from agent_rl.trajectory.run_files import leaves, this_process
from agent_rl.work.parts import replace_file
from agent_rl.work.store import file_digest

FREE_TO_CHANGE = (
    "trainer.total_epochs",
    "trainer.total_training_steps",
    "trainer.save_freq",
    "trainer.test_freq",
    "trainer.val_before_train",
    "trainer.logger",
    "trainer.log_val_generations",
    "trainer.max_actor_ckpt_to_keep",
    "trainer.max_critic_ckpt_to_keep",
    "trainer.resume_mode",
    "trainer.resume_from_path",
    "trainer.default_local_dir",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
    "ray_kwargs",
    "agent_rl.run",
    "agent_rl.trace",
)
"""Keys and sections that may differ when a run resumes."""

PARTS = (
    *("train.log", "metrics*.jsonl", "tensorboard", "trace*.jsonl", "trace.images", "rollouts", "checkpoints"),
    *("hydra", "run.json"),
)
"""Patterns of the files that a run writes into its folder; `run.json`, which marks a run, is moved last."""
VERSIONS = ("verl", "sglang", "torch", "transformers", "ray", "TransferQueue")
MODEL = "actor_rollout_ref.model.path"
MOST_SHOWN = 10
END_BYTES = 1 << 20


def folder_of(config: DictConfig) -> Path:
    """Return the absolute path of the run folder that a composed configuration sets."""
    folder = OmegaConf.select(config, "agent_rl.run.folder")
    return Path(folder or f"outputs/{config.trainer.experiment_name}").expanduser().absolute()


class RunFolder:
    """The folder of a run; a context manager that locks it for this process.

    Args:
        config: the composed configuration.
        command: the user's command line, for `run.json`.
        script: the user's entry point.
    """

    def __init__(self, config: DictConfig, command: Sequence[str] = (), script: str | None = None) -> None:
        self.path = folder_of(config)
        self.notes: list[str] = []
        """Notes for the user about an earlier run."""
        self.stopped: StoppedRun | None = None
        """The last step of a run that has ended early on request, to be set before the block ends."""
        self._redact = Redactor(os.environ)
        plain, model = resolved(config), Path(str(OmegaConf.select(config, MODEL))).expanduser()
        self.record: dict[str, Any] = {
            "command": [self._word(word) for word in command],
            "configuration": self._redact(plain),
            "files": _files(plain, script),
            "versions": versions(),
            "machine": machine(model),
            "model": _model_files(model),
        }
        self._checkpoints = Path(str(config.trainer.default_local_dir)).expanduser().absolute()
        self._mode = str(config.trainer.resume_mode)
        self._lock = FileLock(self.path / "lock")

    def __enter__(self) -> RunFolder:
        """Compare this run with the run in the folder, move that run away unless it is resumed, and write `run.json`.

        Raises:
            ConfigError: another process uses the folder, or it contains a run with a different configuration.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            remedy = "Wait for that process, or set another trainer.experiment_name"
            raise ConfigError("trainer.experiment_name", f"another process is using {self.path}", remedy) from None
        try:
            self._begin()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Record how the run has ended."""
        status = "trained" if self.stopped is None else "stopped"
        if error is not None:
            status = "aborted" if isinstance(error, Aborted | KeyboardInterrupt) else "failed"
        text = f"ended by {error.by}" if isinstance(error, Aborted) else str(error or "")
        end = {"status": status, "time": _now(), **({"error": text} if text else {})}
        try:
            self._write(end=end)
        finally:
            self._lock.release()

    def require_same(self) -> Any:
        """Refuse to resume in a folder that contains a run with a different configuration.

        Returns:
            The record of the run in this folder, or None if there is no run.

        Raises:
            ConfigError: the configurations differ; the error lists the keys.
        """
        file = self.path / "run.json"
        before = json.loads(file.read_text()) if file.is_file() else None
        begun = self._checkpoint() is not None or (self.path / "metrics.jsonl").exists()
        if before is None or not begun or self._mode == "disable":
            return before
        differ, self.notes = compared(before, self.record)
        if differ:
            more = f" and {len(differ) - MOST_SHOWN} more" if len(differ) > MOST_SHOWN else ""
            shown = "; ".join([*differ.values()][:MOST_SHOWN])
            raise ConfigError(
                "trainer.experiment_name",
                f"{self.path} contains a run with a different configuration: {shown}{more}",
                "Choose a different trainer.experiment_name, or start over with trainer.resume_mode=disable, which "
                "moves the old run to the folder earlier/",
            )
        return before

    def _begin(self) -> None:
        before, step = self.require_same(), self._checkpoint()
        started = []
        if step is not None:
            self.notes.append(f"the run resumes from {step}")
            started += (before or {}).get("started", [])
        elif before is not None:
            self._move_away()
        self.record |= {"started": [*started, _now()], "process": this_process()}
        self._write()

    def _write(self, **end: Any) -> None:
        replace_file(self.path / "run.json", json.dumps({**self.record, **self._redact(end)}, indent=2) + "\n")

    def _checkpoint(self) -> str | None:
        """Return the checkpoint from which verl will resume, or None if it starts from scratch."""
        tracker = self._checkpoints / "latest_checkpointed_iteration.txt"
        if self._mode == "auto" and tracker.is_file():
            return f"step {tracker.read_text().strip()}"
        return "trainer.resume_from_path" if self._mode == "resume_path" else None

    def _move_away(self) -> None:
        """Move an earlier run that is not resumed to `earlier/`; a folder on another disk gets its own `earlier/`."""
        begun = (self.path / "metrics.jsonl").exists()
        place = Path("earlier", f"{datetime.now():%Y-%m-%d_%H-%M-%S_%f}")
        targets = [self.path / place]
        targets[0].mkdir(parents=True)
        for part in [part for pattern in PARTS for part in self.path.glob(pattern)]:
            if part.is_mount() or (part.is_symlink() and part.is_dir()):
                files = [file for file in part.iterdir() if file.name != "earlier"]
                targets.append(part / place)
                targets[-1].mkdir(parents=True)
                for file in files:
                    os.rename(file, targets[-1] / file.name)
            else:
                os.rename(part, targets[0] / part.name)
        if begun:
            why = "" if self._mode == "disable" else ", because it has no checkpoint"
            self.notes.append(f"the earlier run is in {' and '.join(map(str, targets))}{why}")

    def _word(self, word: str) -> str:
        """Return a word of the command line with its secrets redacted."""
        key, sign, value = word.partition("=")
        hidden = self._redact({key.rpartition(".")[2].lstrip("-"): value})
        return f"{self._redact(key)}{sign}{next(iter(hidden.values()))}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def compared(
    before: Mapping[str, Any], run: Mapping[str, Any], free: tuple[str, ...] = FREE_TO_CHANGE
) -> tuple[dict[str, str], list[str]]:
    """Return what differs between two runs: keys without a prefix in `free`, and the content of other files."""
    old, new = (dict(leaves(each["configuration"])) for each in (before, run))
    differ: dict[str, str] = {}
    changed: list[str] = []
    for key in sorted({*old, *new, "--script"}):
        was, now = ({file["path"]: file["sha256"] for file in each["files"].get(key, [])} for each in (before, run))
        same = was and list(was.values()) == list(now.values())  # the content is the same, even if the paths differ
        if not same and not key.startswith(free) and repr(old.get(key)) != repr(new.get(key)):  # repr: NaN equals NaN
            differ[key] = f"{key} is {new.get(key)!r}, was {old.get(key)!r}"
        elif was and now and not same:
            changed_files = [path for path, digest in now.items() if was.get(path) != digest]
            changed.append(f"{key}: the content of {', '.join(changed_files)} has changed")
            if key.startswith("data."):
                differ[key] = changed.pop()
    return differ, changed


def _files(config: Mapping[str, Any], script: str | None) -> dict[str, list[dict[str, str]]]:
    """Return the local files that each key refers to, with a hash of their content."""
    hashes = {}
    for key, value in [*leaves(config), ("--script", script)]:
        texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
        # a value is `path/to/file.py:Name` or just a path; isfile is false for a string that is too long for a path
        paths = [os.path.expanduser(re.sub(r"(?<=\.py):.*", "", text, flags=re.DOTALL)) for text in texts]
        files = [Path(path) for path in paths if os.path.isfile(path)]
        if files and not key.startswith("agent_rl.trace."):  # the trace is an output of the run, not an input
            hashes[key] = [{"path": str(path), "sha256": file_digest(path)} for path in files]
    return hashes


def versions() -> dict[str, str]:
    """Return the versions of agent_rl, Python and the installed packages that affect a run."""
    installed = {"agent_rl": agent_rl.__version__, "python": platform.python_version()}
    for name in VERSIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def machine(model: Path) -> dict[str, Any]:
    """Return this machine's CPU and GPUs, and how many torch threads a process uses, also when it trains a model."""
    cpus, gpus = [Path("/proc/cpuinfo")], sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    processor = {"cpu": next(_models("model name", cpus), platform.machine()), "cores": os.cpu_count()}
    if not cpu.is_selected():
        return {**processor, "gpus": [*_models("Model", gpus)], "torch_threads": os.environ.get("OMP_NUM_THREADS")}
    profile = profile_of(model)
    with profile.in_environment():
        threads = cpu.child_environment()["OMP_NUM_THREADS"]
        training = os.environ.get(TRAINING_THREADS, threads)
        return {**processor, "torch_threads": threads, "training_threads": training, "products": profile.dtype}


def _models(key: str, files: Sequence[Path]) -> Iterator[str]:
    lines = (line for file in files if file.is_file() for line in file.read_text(encoding="utf-8").splitlines())
    return (line.partition(":")[2].strip() for line in lines if line.startswith(key))


def _model_files(model: Path) -> dict[str, str]:
    """Return a hash of each file in a model's folder, computed from the file's size and its first and last MiB."""
    digests = {}
    for path in sorted(model.iterdir()) if (model / "config.json").is_file() else ():
        if path.is_file():
            with open(path, "rb") as file:
                first, size = file.read(END_BYTES), file.seek(0, os.SEEK_END)
                file.seek(max(0, size - END_BYTES))
                digests[path.name] = hashlib.sha256(b"%d\n" % size + first + file.read()).hexdigest()
    return digests
