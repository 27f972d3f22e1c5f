"""What is in force on a node: kernels, the engine's batches, and how often log-probs are computed before the update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent_rl.doctor.checks import stack
from agent_rl.doctor.machine import Machine
from agent_rl.preflight.check import Status
from tests.doctor.conftest import MakeCase, node_facts, only

MODEL, ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"
SGLANG = f"{ROLLOUT}.engine_kwargs.sglang"


@pytest.mark.parametrize(
    ("keys", "packages", "text"),
    [
        ({}, {}, "attention: flash_attention_2, by torch's kernel; log-probs: in chunks of 1,024 tokens"),
        ({}, {"flash-attn": "2.8.3"}, "attention: flash_attention_2; log-probs: flash-attn 2.8.3"),
        ({f"{MODEL}.override_config.attn_implementation": "sdpa"}, {}, "attention: sdpa; "),
        ({f"{MODEL}.use_fused_kernels": True}, {}, "log-probs: verl's fused kernels"),
    ],
)
def test_the_kernels_in_force_are_named(
    make_case: MakeCase, keys: dict[str, Any], packages: dict[str, str], text: str
) -> None:
    facts = node_facts()
    given = Machine({}, {**facts, "packages": {**facts["packages"], **packages}})
    assert text in only(stack.kernels(replace(make_case(keys, on_cpu=False), given=given))).text
    assert not list(stack.kernels(make_case()))


@pytest.mark.parametrize(
    ("keys", "status", "text"),
    [
        ({}, "ok", "256 trajectories for each engine, 256 at once, CUDA graphs: up to 512"),
        ({"trainer.n_gpus_per_node": 1}, "warning", "2048 trajectories for each engine, 512 at once"),
        ({f"{ROLLOUT}.enforce_eager": True}, "warning", "CUDA graphs: none"),
        ({f"{SGLANG}.disable_radix_cache": True}, "warning", "reads its whole history again"),
        ({f"{SGLANG}.chunked_prefill_size": -1}, "warning", "a long prompt stops all others"),
    ],
)
def test_the_engines_batches(make_case: MakeCase, keys: dict[str, Any], status: str, text: str) -> None:
    finding = only(stack.engine_batches(make_case(keys, on_cpu=False)))
    assert finding.status.value == status
    assert text in finding.text
    assert finding.status is Status.OK or finding.remedy


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, "every 10 steps: a batch is used for one update"),
        ({"actor_rollout_ref.actor.ppo_epochs": 2}, "in each step: actor.ppo_epochs=2"),
        ({"agent_rl.run.log_probs_every": 5}, "every 5 steps"),
    ],
)
def test_how_often_the_pass_runs(make_case: MakeCase, keys: dict[str, Any], text: str) -> None:
    assert text in only(stack.log_prob_pass(make_case(keys, on_cpu=False))).text
