"""`Ledger`: stores one evaluation in a folder, so that the same command can resume after a crash.

`settings.json` records the settings; `trajectories.jsonl` gets one line per finished episode. If a killed process
leaves an incomplete line, that episode runs again. If the machine itself crashes, the last lines may be lost.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from agent_rl.errors import ConfigError
from agent_rl.evaluation.settings import FREE_TO_CHANGE, EvaluationSettings
from agent_rl.launch.run_folder import versions
from agent_rl.rewards import extra_info
from agent_rl.rewards.metrics import component_metrics
from agent_rl.settings.errors import read_yaml
from agent_rl.trajectory import Trajectory, trace
from agent_rl.trajectory.run_files import leaves
from agent_rl.verl_adapter.checkpoints import weights_digest
from agent_rl.work.parts import replace_file
from agent_rl.work.store import by_content, file_digest

WEIGHTS = "weights"
WRITTEN = {"trace", "run", "cache_path"}
"""Keys whose values are, or contain, paths of output files."""


@dataclass(frozen=True, slots=True)
class Record:
    """The values of one episode that a summary needs."""

    row: int
    sample: int
    data_source: str
    error: str | None
    """The reason why the episode has no score, or None if it has a score."""
    reward: float = 0.0
    components: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    """The values of `agent_rl.rewards.extra_info`, except the components."""
    tokens: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


class Ledger:
    """The folder of one evaluation; only one process at a time can have it open.

    Args:
        folder: the folder, which is created if it does not exist.
        settings: the settings of the evaluation.
        model: the folder of the weights, or None if an endpoint serves the model.

    Raises:
        ConfigError: the folder contains an evaluation with other settings or weights, or another process uses it.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: EvaluationSettings, model: Path | None = None) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "trajectories.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError("--out", f"{self.folder}: {error.strerror}", "Choose another folder") from error
        self._lock = FileLock(self.folder / "lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            problem = f"another process is evaluating in {self.folder}"
            raise ConfigError("--out", problem, "Wait, or choose another folder") from None
        try:
            self._require_same({**_fixed(settings), WEIGHTS: model and f"sha256:{weights_digest(model)}"})
        except BaseException:
            self._lock.release()
            raise

    def close(self, *_: object) -> None:
        """Release the folder for another process."""
        self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    __exit__ = close

    def about(self) -> dict[str, Any]:
        """Return the evaluation's model and versions, and the hashes of its weights, data, tools and settings file."""
        file = self.folder / "settings.json"
        known = json.loads(file.read_text())
        return {
            **{key: known.get(key) for key in ("model", WEIGHTS, "data", "tools")},
            "settings": _digest(str(file), "--out"),
            "versions": versions(),
        }

    def append(self, trajectory: Trajectory) -> Record:
        """Store a finished episode.

        Raises:
            OSError: the file cannot be written; no part of the episode is stored.
        """
        try:
            trace.append(self.path, trajectory)
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise
        return summarize_trajectory(trajectory)

    def read(self) -> dict[tuple[int, int], Record]:
        """Return the finished episodes by row and sample; for an episode that ran again, the last record is used."""
        if not self.path.exists():
            return {}
        records = map(summarize_trajectory, trace.read(self.path, torn="skip"))
        return {(record.row, record.sample): record for record in records}

    def _require_same(self, fixed: dict[str, Any]) -> None:
        path = self.folder / "settings.json"
        if not (self.path.exists() and self.path.stat().st_size):  # no episode has finished in this folder yet
            replace_file(path, json.dumps(fixed, indent=2) + "\n")
            return
        if not path.exists():
            problem = f"{self.path} exists without the settings of its evaluation"
            raise ConfigError("--out", problem, "Choose another folder")
        known, wanted = dict(leaves(json.loads(path.read_text()))), dict(leaves(fixed))
        for key in [*wanted, *known]:
            if key == WEIGHTS and None in (known.get(key), wanted.get(key)):
                continue  # cannot be compared, because an endpoint does not report its weights
            if known.get(key) != wanted.get(key):
                problem = f"{wanted.get(key)!r}, but {self.folder} was started with {known.get(key)!r}"
                if "sha256:" in str(wanted.get(key)):
                    problem = f"the content has changed since the evaluation in {self.folder} was started"
                raise ConfigError(key, problem, "Choose another folder (--out), or use the same settings")


def summarize_trajectory(trajectory: Trajectory) -> Record:
    """Return the record of a trajectory that an evaluation produced."""
    info, score = trajectory.info, trajectory.score
    tokens = {
        "input": info.get("input_tokens", 0),
        "sampled": sum(turn.tokens for turn in trajectory.turns),
        "requests": info.get("requests", 0),
    }
    common = (info["row"], info["sample"], trajectory.data_source)
    if score is None:
        return Record(*common, trajectory.error or "no score", tokens=tokens, seconds=trajectory.seconds)
    omitted = {"acc", *component_metrics(score.components)}
    metrics = {name: value for name, value in extra_info(trajectory, score).items() if name not in omitted}
    return Record(*common, None, score.total, score.components, metrics, tokens, trajectory.seconds)


def _fixed(settings: EvaluationSettings) -> dict[str, Any]:
    """Return the settings on which the results depend, with file hashes instead of file names."""
    fixed: dict[str, Any] = by_content(settings.model_dump(mode="json", exclude=set(FREE_TO_CHANGE)), written=WRITTEN)
    fixed["data"] = _digest(settings.data, "data")
    fixed["tools"] = settings.tools and _digest(settings.tools, "tools")
    if settings.tools:
        entries = read_yaml(Path(settings.tools))
        code = by_content(entries, Path(settings.tools).parent, WRITTEN)
        if code != entries:  # the tool file refers to the user's own code or documents
            fixed["tools"] = f"sha256:{hashlib.sha256(json.dumps([fixed['tools'], code]).encode()).hexdigest()}"
    fixed["script"] = settings.script and _digest(settings.script, "script")
    return fixed


def _digest(path: str, key: str) -> str:
    try:
        return f"sha256:{file_digest(Path(path))}"
    except OSError as error:
        raise ConfigError(key, f"{path} cannot be read ({error.strerror})", "Correct the path") from error
