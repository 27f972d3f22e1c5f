"""2,000 sessions of which 5 % fail, in each mode: no group of two survivors is lost, and none is counted twice.

tests/verl_adapter/test_trained_samples.py does the same with fewer sessions and without Ray, in `make test`.
"""

import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from agent_rl.evaluation.run_certificate import certify_run
from agent_rl.trajectory import trace
from tests.e2e.failing_train import SHARE
from tests.e2e.training import train, write_problems

N, BATCH, STEPS = 8, 25, 10
SCRIPT = Path(__file__).with_name("failing_train.py")

pytestmark = [pytest.mark.engine, pytest.mark.recipes]


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_a_failure_costs_one_sample(mode: str, tmp_path: Path, tiny_llama: Path) -> None:
    write_problems(tmp_path, "failing", 2 * BATCH * STEPS, 1)
    logged = train(
        tmp_path,
        tiny_llama,
        f"mode={mode}",
        agent="failing",
        script=SCRIPT,
        data__train_batch_size=BATCH,
        actor_rollout_ref__rollout__n=N,
        actor_rollout_ref__actor__ppo_mini_batch_size=BATCH,
        reward__reward_manager__name="trajectory",
        reward__custom_reward_function__path=SCRIPT,
        agent_rl__trace__path=tmp_path / "trace.jsonl",
        agent_rl__trace__tokens=True,
        trainer__total_training_steps=STEPS,
    )
    assert sorted(logged) == list(range(1, STEPS + 1))
    rewards: dict[str, dict[str, float]] = defaultdict(dict)
    ended: dict[str, int] = defaultdict(int)
    for each in trace.read(tmp_path / "trace.jsonl"):
        uid, _, session = str(each.id).rpartition("_")
        ended[uid] += 1
        if each.score is not None:
            rewards[uid][session] = each.score.total
    assert sum(ended.values()) >= N * BATCH * STEPS  # 2,000
    failed = 1 - sum(map(len, rewards.values())) / sum(ended.values())
    assert SHARE < failed < 3 * SHARE  # each twentieth row loses seven more

    names = [name for batch in trace.read_batches(tmp_path / "trace.jsonl") for name in batch.names]
    assert len(set(names)) == len(names)
    trained: dict[str, dict[str, object]] = defaultdict(dict)
    for batch in trace.read_batches(tmp_path / "trace.jsonl"):
        for name, advantage in zip(batch.names, batch.advantages, strict=True):
            uid, session, _ = name.rsplit("_", 2)
            trained[uid][session] = advantage
    for uid, advantages in trained.items():
        own = rewards[uid]
        assert set(advantages) == set(own)
        mean, deviation = statistics.fmean(own.values()), statistics.stdev(own.values())
        for session, value in advantages.items():
            assert value == pytest.approx((own[session] - mean) / (deviation + 1e-6), abs=1e-4)

    small = {uid for uid in ended if ended[uid] == N and len(rewards[uid]) < 2}
    evicted = sum(step.get("training/rollout_failure/evicted_samples", 0) for step in logged.values())
    if mode == "sync":
        assert set(trained) == set(ended) - small
        assert evicted == 0
    else:
        assert len(trained) == BATCH * STEPS
        assert 0 < evicted <= len(small)
    assert sum(step["agent/evicted_share"] > 0 for step in logged.values()) > 0
    assert all(0 < step["agent/lost_share"] < 0.5 for step in logged.values())
    assert all(step["agent/bias_reward_bound"] >= abs(step["agent/bias_reward"]) for step in logged.values())

    lines = {line.check: line for line in certify_run(tmp_path)}
    problems = {name: line.problems for name, line in lines.items() if line.status == "problem"}
    assert problems.keys() <= {"log-probs", "sampling"}, problems  # the script invents log-probs
    assert ("log-probs" in problems) == (mode == "sync")
    assert {lines[name].status for name in ("tokens", "advantages", "rewards", "dropped")} == {"ok"}
    assert "evicted" in lines["dropped"].text
    assert "lost" in lines["dropped"].text
