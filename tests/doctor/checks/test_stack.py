"""An engine's batches; the table of what a node needs is tried in tests/doctor/test_machine.py."""

from __future__ import annotations

from typing import Any

import pytest

from agent_rl.doctor.checks import stack
from agent_rl.preflight.check import Status
from tests.doctor.conftest import MakeCase, only

ROLLOUT = "actor_rollout_ref.rollout"
SGLANG = f"{ROLLOUT}.engine_kwargs.sglang"


@pytest.mark.parametrize(
    ("keys", "status", "text"),
    [
        ({}, "ok", "256 trajectories for each engine, 256 at once, CUDA graphs: up to 512"),
        ({"trainer.n_gpus_per_node": 1}, "warning", "2048 trajectories for each engine, 512 at once"),
        ({f"{SGLANG}.cuda_graph_max_bs_decode": 64}, "ok", "CUDA graphs: up to 64"),
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
