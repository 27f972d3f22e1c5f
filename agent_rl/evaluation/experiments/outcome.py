"""`RunOutcome`: the success of a finished run of an experiment, read from its folder."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.evaluation.judges import Judged, report_on
from agent_rl.evaluation.summary import SOLVED
from agent_rl.reasoning_rm.sample import SAMPLE, DataSample
from agent_rl.rewards.judge.kinds import PointwiseTemplate
from agent_rl.rewards.judge.verdict import VerdictError
from agent_rl.trajectory import Trajectory, trace
from agent_rl.trajectory.estimates import Estimate, estimate_mean, estimate_rate
from agent_rl.trajectory.symptoms import series
from agent_rl.trajectory.viewer.report import read_run

Judgement = dict[str, float]
"""The agreement of a model's scores with the true scores, measured as in `agent-rl rm eval`.

`spearman` is the rank correlation over the readable verdicts, or 0 if it is undefined; `unparsable` is the share of
verdicts that cannot be read.
"""
_Solved = Mapping[Any, Sequence[float]]
_Samples = list[tuple[float, Judged | None]]
"""For each sample, its success (0 or 1), and its verdict if the sample judges an answer."""


@dataclass(frozen=True)
class RunOutcome:
    """The success of one run.

    Attributes:
        before, after: success on the held-out rows, with Wilson's confidence interval.
        gain: the increase in success on the same rows, with its confidence interval.
        curve: for each step, its number and the success on its training rows.
        seconds: total time of all training steps.
        probs_diff: maximum over all steps of the mean difference between the engine's and the trainer's probabilities.
        judgements: agreement with the true scores before and after training, for a model that scores answers.
    """

    before: Estimate
    after: Estimate
    gain: Estimate
    curve: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0
    probs_diff: float = 0.0
    judgements: tuple[Judgement, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the outcome as JSON data, without the curve."""
        data: dict[str, Any] = {name: getattr(self, name).plain(4) for name in ("before", "after", "gain")}
        data |= {"steps": len(self.curve), "training_seconds": round(self.seconds, 1),
                  "rollout_probs_diff_mean_max": self.probs_diff}  # fmt: skip
        if self.judgements:
            data["judgement"] = dict(zip(("before", "after"), self.judgements, strict=True))
        return data


def read_outcome(folder: Path) -> RunOutcome:
    """Return the outcome of the run in a folder.

    Raises:
        ConfigError: the run was not evaluated both before and after training on the same rows.
    """
    run = read_run(str(folder))
    tested: dict[int, dict[str, dict[str, _Samples]]] = {}  # step -> row -> evaluation -> samples
    trained: dict[int, deque[float]] = {}
    size = None  # trajectories per step
    if (configuration := run.about.get("configuration")) is not None:
        size = int(configuration["data"]["train_batch_size"] * configuration["actor_rollout_ref"]["rollout"]["n"])
    for trajectory in trace.read(folder / "trace.jsonl", torn="skip"):
        if trajectory.score is None:
            continue
        step = int(trajectory.info["step"])
        if trajectory.info.get("split") == "test":
            groups = tested.setdefault(step, {}).setdefault(_row(trajectory), {})
            sample = solved(trajectory), _read_verdict(trajectory)
            groups.setdefault(trajectory.id.rpartition("_")[0], []).append(sample)
        else:  # a resumed run repeats an interrupted step, and trains only on the new samples
            trained.setdefault(step, deque(maxlen=size)).append(solved(trajectory))
    if len(tested) < 2:
        raise ConfigError(str(folder), "the run was evaluated only once", "Set trainer.val_before_train=true")
    rows = (tested[step] for step in (min(tested), max(tested)))  # a resumed run may repeat an evaluation
    before, after = ({row: list(tests.values())[-1] for row, tests in evaluated.items()} for evaluated in rows)
    return RunOutcome(
        *success(*({row: [success for success, _ in rows[row]] for row in rows} for rows in (before, after))),
        curve=[(step, fmean(trained[step])) for step in sorted(trained)],
        seconds=sum(value for _, value in series(run.training, "timing_s/step")),
        probs_diff=max((v for _, v in series(run.training, "training/rollout_probs_diff_mean")), default=0.0),
        judgements=tuple(
            agreement
            for rows in (before, after)
            if (agreement := _agreement(verdict for samples in rows.values() for _, verdict in samples))
        ),
    )


def solved(trajectory: Trajectory) -> float:
    """Return 1 if `agent-rl eval` considers a trajectory right, and 0 if the trajectory is wrong or has no score."""
    return float(trajectory.score is not None and trajectory.score.components.get("correctness", 0.0) >= SOLVED)


def judgement(trajectories: Iterable[Trajectory]) -> Judgement | None:
    """Return the agreement of the trajectories' verdicts with the ground truth, or None if there are no verdicts."""
    return _agreement(map(_read_verdict, trajectories))


def success(before: _Solved, after: _Solved) -> tuple[Estimate, Estimate, Estimate]:
    """Return the success before and after training, and the gain, on the same rows.

    Args:
        before: the success of each sample before training (0 or 1), by row.
        after: the success of each sample after training (0 or 1), by row.

    Raises:
        ConfigError: `before` and `after` have different rows.
    """
    if before.keys() != after.keys():
        missing = len(before.keys() ^ after.keys())
        raise ConfigError("trace.jsonl", f"{missing} rows were scored only once", "Run this seed again")
    rows = sorted(before)
    return (
        estimate_rate([before[row] for row in rows]),
        estimate_rate([after[row] for row in rows]),
        estimate_mean([[fmean(after[row]) - fmean(before[row])] for row in rows]),
    )


def _read_verdict(trajectory: Trajectory) -> Judged | None:
    """Return a trajectory's verdict on the answer in its row, or None if the row does not have exactly one answer."""
    if len((trajectory.extra_info.get(SAMPLE) or {}).get("scores") or ()) != 1:
        return None
    sample = DataSample.from_row(trajectory.row)
    try:
        verdict = PointwiseTemplate.read(trajectory.turns[-1].text if trajectory.turns else "", sample.answers[0])
    except VerdictError:
        return Judged(sample, [None])
    return Judged(sample, [float(verdict.score)])


def _agreement(verdicts: Iterable[Judged | None]) -> Judgement | None:
    if not (judged := [verdict for verdict in verdicts if verdict]):
        return None
    report = report_on(judged)
    return {name: round(report[name] or 0.0, 4) for name in ("spearman", "unparsable")}


def _row(trajectory: Trajectory) -> str:
    """Return a key that only the samples of one row share, unlike the row's number, which may recur in another file."""
    columns = [trajectory.row.get(name) for name in ("extra_info", "reward_model")]
    return json.dumps([trajectory.data_source, trajectory.info["index"], *columns], sort_keys=True)
