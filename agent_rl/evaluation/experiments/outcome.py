"""`RunOutcome`: what a finished run of an experiment has reached, read from its folder."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from agent_rl.trajectory.viewer.report import Run, read_run

__all__ = ["Judgement", "RunOutcome", "judgement", "read_outcome", "solved", "success"]


@dataclass(frozen=True)
class Judgement:
    """How well the scores that a model gave agree with the true ones, as `agent-rl rm eval` has it."""

    spearman: float
    """Of the verdicts that can be read; 0 where it is not defined."""
    unparsable: float


_Solved = Mapping[Any, Sequence[float]]
_Samples = list[tuple[float, Judged | None]]
"""Whether each is solved, and its verdict, where it gives one."""


@dataclass(frozen=True)
class RunOutcome:
    """One run's success.

    Attributes:
        before, after: on the held-out rows, with Wilson's interval.
        gain: of the same rows, with its interval.
        curve: (step, success of the training rows).
        seconds: of all training steps together.
        probs_diff: greatest mean difference between the engine's and the trainer's probabilities in a step.
        judgements: before and after, of a model that scores answers.
    """

    before: Estimate
    after: Estimate
    gain: Estimate
    curve: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0
    probs_diff: float = 0.0
    judgements: tuple[Judgement, ...] = ()

    def plain(self) -> dict[str, Any]:
        """JSON data, without the curve."""
        found: dict[str, Any] = {name: getattr(self, name).plain(4) for name in ("before", "after", "gain")}
        found |= {"steps": len(self.curve), "training_seconds": round(self.seconds, 1),
                  "rollout_probs_diff_mean_max": self.probs_diff}  # fmt: skip
        if self.judgements:
            found["judgement"] = dict(zip(("before", "after"), map(asdict, self.judgements), strict=True))
        return found


def read_outcome(folder: Path) -> RunOutcome:
    """The outcome of the run in a folder.

    Raises:
        ConfigError: it was not evaluated before and after training, or not on the same rows.
    """
    run = read_run(str(folder))
    tested: dict[int, dict[str, dict[str, _Samples]]] = {}  # by step, row and evaluation
    trained: dict[int, deque[float]] = {}
    size = _batch(run)
    for trajectory in trace.read(folder / "trace.jsonl", torn="skip"):
        if trajectory.score is None:
            continue
        step = int(trajectory.info["step"])
        if trajectory.info.get("split") == "test":
            groups = tested.setdefault(step, {}).setdefault(_row(trajectory), {})
            sample = solved(trajectory), _judged(trajectory)
            groups.setdefault(trajectory.id.rpartition("_")[0], []).append(sample)
        else:  # of a step that a killed run had begun, the last samples are those that were trained on
            trained.setdefault(step, deque(maxlen=size)).append(solved(trajectory))
    if len(tested) < 2:
        raise ConfigError(str(folder), "it was evaluated only once", "Set trainer.val_before_train=true")
    rows = (tested[step] for step in (min(tested), max(tested)))  # a run that was killed repeats an evaluation
    before, after = ({row: list(evaluations.values())[-1] for row, evaluations in each.items()} for each in rows)
    return RunOutcome(
        *success(*({row: [each[0] for each in rows[row]] for row in rows} for rows in (before, after))),
        curve=[(step, fmean(trained[step])) for step in sorted(trained)],
        seconds=sum(value for _, value in series(run.training, "timing_s/step")),
        probs_diff=max((v for _, v in series(run.training, "training/rollout_probs_diff_mean")), default=0.0),
        judgements=tuple(
            _agreement(found)
            for rows in (before, after)
            if (found := [verdict for samples in rows.values() for _, verdict in samples if verdict])
        ),
    )


def solved(trajectory: Trajectory) -> float:
    """1 for a trajectory that counts as right, as in `agent-rl eval`; 0 for another, or one without a score."""
    return float(trajectory.score is not None and trajectory.score.components.get("correctness", 0.0) >= SOLVED)


def judgement(trajectories: Iterable[Trajectory]) -> Judgement | None:
    """Of trajectories that score an answer; None where there is none."""
    found = [verdict for each in trajectories if (verdict := _judged(each))]
    return _agreement(found) if found else None


def success(before: _Solved, after: _Solved) -> tuple[Estimate, Estimate, Estimate]:
    """Success before and after, and the gain, of the same rows.

    Args:
        before: by row, 0 or 1 of each of its samples.
        after: the same.

    Raises:
        ConfigError: these are not the same rows.
    """
    if before.keys() != after.keys():
        missing = len(before.keys() ^ after.keys())
        raise ConfigError("trace.jsonl", f"{missing} rows were scored only once", "Start this seed again")
    rows = sorted(before)
    return (
        estimate_rate([before[row] for row in rows]),
        estimate_rate([after[row] for row in rows]),
        estimate_mean([[fmean(after[row]) - fmean(before[row])] for row in rows]),
    )


def _judged(trajectory: Trajectory) -> Judged | None:
    """What a trajectory says of a sample with one answer."""
    if len((trajectory.extra_info.get(SAMPLE) or {}).get("scores") or ()) != 1:
        return None
    sample = DataSample.from_row(trajectory.row)
    try:
        verdict = PointwiseTemplate.read(trajectory.turns[-1].text if trajectory.turns else "", sample.answers[0])
    except VerdictError:
        return Judged(sample, [None])
    return Judged(sample, [float(verdict.score)])


def _agreement(judged: Iterable[Judged]) -> Judgement:
    report = report_on(list(judged))
    return Judgement(round(report.spearman or 0.0, 4), round(report.unparsable or 0.0, 4))


def _batch(run: Run) -> int | None:
    """Trajectories of a step."""
    configuration = run.about.get("configuration")
    if configuration is None:
        return None
    return int(configuration["data"]["train_batch_size"] * configuration["actor_rollout_ref"]["rollout"]["n"])


def _row(trajectory: Trajectory) -> str:
    """What the samples of a row have in common, and no other row: files share numbers, a simulated user may write."""
    columns = [trajectory.row.get(name) for name in ("extra_info", "reward_model")]
    return json.dumps([trajectory.data_source, trajectory.info["index"], *columns], sort_keys=True)
