"""A reward model's own SGLang server beside the policy's: a judge that chats."""

from pathlib import Path

import pytest

from tests.e2e.judge import ANSWER_TOKENS
from tests.e2e.training import PROMPTS, diffs, train

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("run_processes")]


@pytest.mark.recipes
def test_a_judge_on_a_server_of_its_own_and_a_policy_with_two_engines(
    tmp_path: Path, tiny_model: Path, tiny_llama: Path
) -> None:
    logged = train(
        tmp_path,
        tiny_llama,
        trainer__n_gpus_per_node=2,
        actor_rollout_ref__actor__optim__lr=0.01,
        actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=PROMPTS,
        actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu=PROMPTS,
        reward__num_workers=1,
        reward__reward_model__enable=True,
        reward__reward_model__enable_resource_pool=True,
        reward__reward_model__model_path=tiny_model,
        reward__custom_reward_function__path=Path(__file__).with_name("judge.py"),
    )
    assert list(logged) == [1, 2]
    for metrics in logged.values():
        assert metrics["agent/judged_tokens"] == ANSWER_TOKENS
        assert metrics["actor/grad_norm"] > 0
    assert max(diffs(logged)) < 1e-5
