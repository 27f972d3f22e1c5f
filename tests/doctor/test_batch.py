from typing import Any

import pytest

from agent_rl.doctor import batch
from agent_rl.doctor.finding import Status

from .conftest import MakeCase, only

ACTOR = "actor_rollout_ref.actor"


def test_the_recipe_passes(make_case: MakeCase) -> None:
    for on_cpu in (True, False):
        case = make_case(on_cpu=on_cpu)
        assert only(batch.validation(case)).status is Status.OK
        assert only(batch.mini_batches(case)).status is Status.OK


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"data.train_batch_size": 3, "trainer.n_gpus_per_node": 4}, "real_train_batch_size (6) must be divisible"),
        ({f"{ACTOR}.ppo_mini_batch_size": 8}, "must be >= actor.ppo_mini_batch_size (8)"),
        ({f"{ACTOR}.ppo_micro_batch_size_per_gpu": None}, "Please set at least one of"),
        ({"actor_rollout_ref.rollout.val_kwargs.do_sample": True, "actor_rollout_ref.rollout.temperature": 0}, "temp"),
    ],
)
def test_what_verl_asserts_is_told_once(make_case: MakeCase, keys: dict[str, Any], text: str) -> None:
    finding = only(batch.validation(make_case(keys)))
    assert finding.status is Status.PROBLEM
    assert text in finding.text


@pytest.mark.parametrize(
    ("keys", "subject", "status"),
    [
        ({f"{ACTOR}.ppo_mini_batch_size": 3, "trainer.n_gpus_per_node": 4}, "mini-batch", "problem"),
        ({f"{ACTOR}.ppo_mini_batch_size": 3}, "mini-batch", "warning"),
        ({f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3}, "micro-batch", "problem"),
        ({"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 3}, "micro-batch", "problem"),
    ],
)
def test_divisions_that_workers_would_refuse(
    make_case: MakeCase, keys: dict[str, Any], subject: str, status: str
) -> None:
    first = next(batch.mini_batches(make_case(keys)))
    assert (first.subject, first.status.value) == (subject, status)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"agent_rl.reward.overlong.penalty": 1, "agent_rl.reward.overlong.buffer_tokens": 9999},
            "buffer_tokens: 9999",
        ),
        ({"actor_rollout_ref.model.lora_rank": 8}, "lora.merge"),
        ({"algorithm.adv_estimator": "remax"}, "no baselines"),
    ],
)
def test_our_own_checks_are_made_as_well(
    make_case: MakeCase, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], text: str
) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    finding = only(batch.validation(make_case(keys)))
    assert finding.status is Status.PROBLEM
    assert text in finding.text


def test_tokens_of_a_micro_batch(make_case: MakeCase) -> None:
    finding = next(batch.mini_batches(make_case({f"{ACTOR}.ppo_max_token_len_per_gpu": 3000}, on_cpu=False)))
    assert finding.status is Status.PROBLEM
    assert "less than the longest prompt and response together, 3072" in finding.text


def test_the_batch_of_the_asynchronous_mode(make_case: MakeCase) -> None:
    keys = {"trainer.v1.trainer_mode": "separate_async", "trainer.v1.separate_async.parameter_sync_step": 2}
    first = next(batch.mini_batches(make_case(keys)))
    assert first.status is Status.PROBLEM
    assert "Set data.train_batch_size=8" in first.remedy


def test_with_dynamic_batches_micro_batches_do_not_count(make_case: MakeCase) -> None:
    keys = {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3, f"{ACTOR}.use_dynamic_bsz": True}
    assert only(batch.mini_batches(make_case(keys))).status is Status.OK
