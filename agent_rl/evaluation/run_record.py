"""`StoredSample`: a sampled trajectory and what a trainer did with it, from a run or from another trainer's dump.

A dump is a JSON lines file of trajectories (`Trajectory.to_json`) with these entries in `info`: `step`, `tokens`
(`Tokens`), `rows` (a list of `TrainedRow`, empty if no update trained on the trajectory), and, if known, `sampled_ids`
(the token ids of each turn as the engine returned them), `dropped` (why no update trained on the trajectory),
`temperature` (1 by default) and `truncated` (whether top_p or top_k limited the sampling).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import PositiveFloat, TypeAdapter

from agent_rl.agents.policies.left_out import masked_sequences
from agent_rl.agents.policies.token_policy import TrainingSequence, stored_sequences
from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings
from agent_rl.trajectory import LEFT_OUT, Trajectory, trace
from agent_rl.trajectory.trace import TrainedRow
from agent_rl.trajectory.trace.files import NAMES, trace_of
from agent_rl.trajectory.trace.tables import split_of
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.stragglers import EndedEarlyError
from agent_rl.verl_adapter.trained_samples import WITHOUT_GROUP

UNEXPLAINED = "unexplained"
"""The fate of a scored trajectory that is missing from all batches for no known reason."""
UNUSED = "unused"
"""The fate of a scored trajectory that was sampled after the last update, or in a step that a resumed run repeated."""


class StoredSample(NamedTuple):
    """A sampled trajectory, with its sequences in `info["tokens"]`, and its rows in the batches of updates."""

    trajectory: Trajectory
    rows: list[TrainedRow]
    fate: str
    """One of `FATES`, `UNEXPLAINED`, `UNUSED`, or another reason why no update trained on it."""
    temperature: float

    @property
    def id(self) -> str:
        """The id of the trajectory, `<prompt>_<sample>`."""
        return self.trajectory.id

    @property
    def group(self) -> str:
        """The id of the prompt."""
        return self.id.rpartition("_")[0]

    @property
    def sequences(self) -> list[Any]:
        """The trajectory's `TokenSequence`s, or an empty list if no tokens were stored."""
        return list(self.trajectory.info.get("tokens", {"sequences": []})["sequences"])

    def trained(self, settings: AgentRLSettings) -> list[TrainingSequence]:
        """Return the training sequences with the masks that the loss uses."""
        sequences = stored_sequences(self.sequences)
        masks = settings.mask_void, settings.mask_overlong
        return masked_sequences(sequences, self.trajectory, *masks) if sequences else []


def read_dump(path: Path) -> Iterator[StoredSample]:
    """Yield the samples of a dump.

    Raises:
        ConfigError: the file does not exist, or a line is invalid.
    """
    if not path.is_file():
        raise ConfigError(str(path), "there is no such file or folder", "Pass a run's folder, or a dump")
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            own = Trajectory.from_json(line)
            own.info["tokens"] = _adapter(trace.Tokens).validate_python(own.info.get("tokens"))
            rows = _adapter(list[TrainedRow]).validate_python(own.info.get("rows"))
            temperature = _adapter(PositiveFloat).validate_python(own.info.get("temperature", 1.0))
        except ValueError as error:
            problem = " ".join(str(error).split())
            raise ConfigError(f"{path}, line {number}", problem, "See docs/guides/algorithms.md") from error
        fate = "kept" if rows else "lost" if own.score is None else own.info.get("dropped", UNEXPLAINED)
        yield StoredSample(own, rows, fate, temperature)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_run(folder: Path, keys: Mapping[str, Any], started: Sequence[str]) -> Iterator[StoredSample]:
    """Yield the training samples of a run, without validation samples.

    Args:
        folder: the run's folder.
        keys: the values of the run's configuration by dotted key.
        started: the times at which the run was started and resumed, as in `run.json`.

    Raises:
        ConfigError: the run has no trace, or the trace lacks a trajectory of a batch.
    """
    path = keys.get("agent_rl.trace.path")
    file = trace_of(path if path and not (folder / NAMES[0]).is_file() else folder)
    every = list(trace.read_batches(file))
    rows = trace.read_trained_rows(file)
    groups = {name.rsplit("_", 2)[0] for batch in every for name in batch.names}
    last = max((batch.step for batch in every), default=0)
    greedy = f"_{remax.GREEDY_SESSION}" if keys["algorithm.adv_estimator"] == remax.ESTIMATOR else " "
    sampled = [
        own
        for own in trace.read(file, torn="skip")
        if (own.id.rpartition("_")[0] in groups or split_of(own) == "train") and not own.id.endswith(greedy)
    ]
    resumed = [datetime.strptime(each, "%Y-%m-%dT%H:%M:%S%z").timestamp() for each in started[1:]]

    def attempt(own: Trajectory) -> tuple[int, int]:
        return own.info.get("step") or 0, sum(own.ended >= time for time in resumed)

    trained = {attempt(own) for own in sampled if own.id in rows}
    scored = Counter(own.id.rpartition("_")[0] for own in sampled if own.score)
    reader, temperature = trace.TokenReader(file), float(keys["actor_rollout_ref.rollout.temperature"])
    for own in sampled:
        if tokens := reader.read(own.id):
            own.info["tokens"] = {**tokens, "messages": []}  # the checks ignore drift
        fate = "masked" if own.info.get(LEFT_OUT) else "kept" if own.id in rows else "lost"
        if fate == "lost" and str(EndedEarlyError()) in (own.error or ""):
            fate = "ended"
        if fate == "lost" and own.score is not None:
            is_unused = attempt(own)[0] > last or (bool(resumed) and attempt(own) not in trained)
            fate = UNUSED if is_unused else _reason(scored[own.id.rpartition("_")[0]], keys)
        yield StoredSample(own, rows.get(own.id, []), fate, temperature)
    missing = rows.keys() - {own.id for own in sampled}
    if missing:
        problem = f"training batches contain trajectories that this trace lacks: {', '.join(sorted(missing)[:3])}"
        raise ConfigError(str(file), problem, "Restore the whole trace, with all its parts")


def _reason(scored: int, keys: Mapping[str, Any]) -> str:
    """Return why a scored trajectory is in no batch, given the number of scores in its group and the configuration."""
    estimator = keys["algorithm.adv_estimator"]
    needs_group = estimator not in WITHOUT_GROUP and keys["actor_rollout_ref.rollout.n"] > 1
    if (scored < 2 and needs_group) or estimator == remax.ESTIMATOR:
        return "evicted"
    if keys["algorithm.filter_groups.enable"]:
        return "filtered"
    return UNEXPLAINED if keys["trainer.v1.trainer_mode"] == "sync" else "stale"
