"""A reward model's own SGLang server beside the policy's: a judge that chats, and a classifier that scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_tokenizer
from tests.e2e.judge import ANSWER_TOKENS
from tests.e2e.training import PROMPTS, diffs, rollouts, train

pytestmark = pytest.mark.engine


@pytest.mark.recipes
def test_a_judge_on_a_server_of_its_own_and_a_policy_with_two_engines(
    tmp_path: Path, tiny_model: Path, tiny_llama: Path, run_processes: Callable[[], list[psutil.Process]]
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
    assert run_processes() == []


@pytest.mark.recipes
def test_a_classifier_that_shares_the_policys_place(
    tmp_path: Path, tiny_llama: Path, run_processes: Callable[[], list[psutil.Process]]
) -> None:
    """verl scores with it after sampling; its scores are what the same model gives under transformers."""
    import torch

    folder = tmp_path / "classifier"
    tokenizer = make_tokenizer(CORPUS, folder, 512)
    model = make_classifier(folder, tokenizer, hidden=48, layers=2, max_positions=4096)
    logged = train(
        tmp_path,
        tiny_llama,
        "+reward.reward_model.rollout.engine_kwargs.sglang.is_embedding=True",
        reward__num_workers=1,
        reward__reward_model__enable=True,
        reward__reward_model__model_path=folder,
        reward__custom_reward_function__path="null",
        data__max_response_length=24,
        actor_rollout_ref__rollout__multi_turn__max_assistant_turns=1,
    )
    assert list(logged) == [1, 2]
    assert max(diffs(logged)) < 1e-5
    assert run_processes() == []

    def score(question: str, answer: str) -> float:
        chat = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        ids = tokenizer(tokenizer.apply_chat_template(chat, tokenize=False), return_tensors="pt").input_ids
        with torch.no_grad():
            return float(model(ids).logits[0, 0])

    questions = [row["prompt"][-1]["content"] for row in pq.read_table(tmp_path / "train.parquet").to_pylist()]
    samples = rollouts(tmp_path, 1) + rollouts(tmp_path, 2)
    agree = 0
    for sample in samples:
        (question,) = (each for each in questions if each in sample["input"])
        agree += score(question, sample["output"]) == pytest.approx(sample["score"], abs=1e-4)
    assert len({sample["score"] for sample in samples}) > len(samples) / 2
    assert agree > len(samples) / 2  # the others sampled a special token, which the file's text does not have
