"""One session of each step never ends: the step leaves it out and aborts its requests, and the next step samples."""

from pathlib import Path

import pytest

from agent_rl.trajectory import trace
from tests.e2e.endless_train import EVERY, SESSION
from tests.e2e.training import train, write_problems

N, STEPS = 4, 3
SCRIPT = Path(__file__).with_name("endless_train.py")

pytestmark = [pytest.mark.engine, pytest.mark.recipes]


@pytest.mark.parametrize(
    "words",
    [{"actor_rollout_ref__rollout__over_sample_rate": 0.02}, {"agent_rl__run__max_sampling_s": 20}],
    ids=["share", "seconds"],
)
def test_a_step_ends_without_its_last_session(words: dict[str, float], tmp_path: Path, tiny_llama: Path) -> None:
    write_problems(tmp_path, "endless", EVERY * STEPS, 2)
    logged = train(
        tmp_path,
        tiny_llama,
        agent="endless",
        script=SCRIPT,
        data__train_batch_size=EVERY,
        actor_rollout_ref__rollout__n=N,
        actor_rollout_ref__actor__ppo_mini_batch_size=EVERY,
        reward__reward_manager__name="trajectory",
        agent_rl__trace__path=tmp_path / "trace.jsonl",
        trainer__total_training_steps=STEPS,
        trainer__test_freq=STEPS,
        **words,
    )
    assert sorted(logged) == list(range(1, STEPS + 1))
    for metrics in logged.values():
        assert metrics["agent/ended_share"] == 1 / (N * EVERY)
        assert metrics["agent/kept_share"] + metrics["agent/evicted_share"] == pytest.approx(1 - 1 / (N * EVERY))
        assert metrics["agent/ended_tokens"] == 0  # the client never returned an answer
        assert metrics["agent/unscored"] == 0
    trajectories = list(trace.read(tmp_path / "trace.jsonl"))
    ended = [each for each in trajectories if each.error is not None]
    assert [each.id.rpartition("_")[2] for each in ended] == [str(SESSION)] * STEPS
    assert all("ended early" in str(each.error) for each in ended)
    assert len(trajectories) == N * EVERY * STEPS + 2  # and the validation
