"""Seconds of sampling when one trajectory in a hundred is 20 times slower, and the bias of ending these early."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from agent_rl.trajectory import trace
from tests.e2e.training import train, write_problems
from tests.support.bench.slow_sessions import words

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

N, BATCH, STEPS = 4, 64, 2
SCRIPT = Path(__file__).parents[1] / "tests/support/bench/slow_sessions.py"


def _run(folder: Path, model: Path, share: float) -> tuple[float, list[int], float]:
    """Return mean seconds of sampling, the lengths of the trained answers, and the mean share that was ended early."""
    folder.mkdir()
    write_problems(folder, "slow", BATCH * STEPS, 1)
    logged = train(
        folder,
        model,
        agent="slow",
        script=SCRIPT,
        data__train_batch_size=BATCH,
        data__max_response_length=256,
        actor_rollout_ref__rollout__n=N,
        actor_rollout_ref__rollout__over_sample_rate=share,
        actor_rollout_ref__actor__ppo_mini_batch_size=BATCH,
        reward__reward_manager__name="trajectory",
        agent_rl__trace__path=folder / "trace.jsonl",
        trainer__total_training_steps=STEPS,
    )
    trained = [each for each in trace.read(folder / "trace.jsonl") if each.error is None]
    lengths = [words(each.info["index"], int(each.id.rpartition("_")[2])) for each in trained]
    ended = fmean(metrics["agent/ended_share"] for metrics in logged.values())
    return fmean(metrics["timing_s/gen"] for metrics in logged.values()), lengths, ended


def _distance(one: list[int], other: list[int]) -> float:
    """Return the Kolmogorov distance of two samples."""
    values = sorted({*one, *other})
    return max(abs(sum(x <= v for x in one) / len(one) - sum(x <= v for x in other) / len(other)) for v in values)


def test_long_tail(tmp_path: Path, model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean, sampled, _ = _run(tmp_path / "clean", model_dir, 0)
    monkeypatch.setenv("SLOW_SESSIONS", "1")
    waiting, _, _ = _run(tmp_path / "waiting", model_dir, 0)
    ending, trained, ended = _run(tmp_path / "ending", model_dir, 0.02)
    distance = _distance(sampled, trained)
    print(f"\nclean: {clean:.1f} s; with slow trajectories: {waiting / clean:.2f} times as long")
    print(
        f"with over_sample_rate=0.02: {ending / clean:.2f} times as long, {ended:.1%} of the trajectories ended early"
    )
    print(f"Kolmogorov distance of the lengths trained and sampled: {distance:.3f}")
    assert ending < 1.2 * clean
    assert ended <= 0.02
    assert distance <= 0.02
