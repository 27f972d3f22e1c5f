import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.launch.doctor.checks import memory
from agent_rl.launch.doctor.model_files import ModelFiles
from tests.launch.doctor.conftest import ROOT, MakeCase, shaped

GIB = 1 << 30
FSDP = "actor_rollout_ref.actor.fsdp_config"


def test_the_figures_are_those_of_the_recipes_readme(make_case: MakeCase, three_b: str) -> None:
    keys = {"actor_rollout_ref.model.path": three_b}
    need = memory.gpu_need(make_case(keys, on_cpu=False), 79 * GIB)
    cache = need.pool - need.engine_weights
    figures = [need.states, need.activations, need.logits, need.update, need.pool, cache]
    shown = [f"{figure / GIB:.{digits}f}" for figure, digits in zip(figures, (1, 1, 1, 0, 1, 1), strict=True)]
    row = "| " + " | ".join(shown)
    row += f" | {cache / need.kv_per_token / 1000:.0f} k | {need.rollout / GIB:.0f} |"
    assert f"| `size=3b`, 8 x 80 GB | 3.09 G {row}" in (ROOT / "recipes/gsm8k_calculator/README.md").read_text()


def test_what_changes_the_estimate(make_case: MakeCase, three_b: str) -> None:
    parameters = 3_085_846_528

    def need(keys: dict[str, Any]) -> memory.GpuNeed:
        model = {"actor_rollout_ref.model.path": three_b, "trainer.n_gpus_per_node": 1}
        return memory.gpu_need(make_case({**model, **keys}, on_cpu=False), 80 * GIB)

    assert need({}).states == 16 * parameters
    assert need({}).resting == 12 * parameters
    offloaded = need({f"{FSDP}.param_offload": True, f"{FSDP}.optimizer_offload": True})
    assert (offloaded.states, offloaded.resting) == (16 * parameters, 0)
    assert need({"algorithm.adv_estimator": "gae"}).states == 32 * parameters
    assert need({"actor_rollout_ref.model.lora_rank": 32}).states == 4 * parameters
    assert need({f"{FSDP}.model_dtype": "bf16"}).states == 8 * parameters
    assert need({"actor_rollout_ref.hybrid_engine": False}).resting == 0
    assert need({}).vocabulary == 4 * 151_936 * 2048
    rollout = "actor_rollout_ref.rollout"
    without = ({f"{rollout}.enforce_eager": True}, {f"{rollout}.engine_kwargs.sglang.disable_cuda_graph": True})
    assert [need(keys).graphs for keys in ({}, *without)] == [memory.GRAPHS, 0, 0]
    assert need({"actor_rollout_ref.model.use_fused_kernels": True}).logits == 0
    unchecked = need({"actor_rollout_ref.model.enable_gradient_checkpointing": False})
    assert unchecked.activations == 17 * need({}).activations
    assert need({"actor_rollout_ref.rollout.tensor_model_parallel_size": 2}).engine_weights == parameters


@pytest.mark.parametrize(
    ("shape", "gpus", "tokens", "printed_gib"),
    [
        ((48, 32, 4, 2048), 1, 1_669_816, 152.88),  # Qwen3-30B-A3B, sglang's pull request 18263
        ((94, 64, 4, 4096), 4, 367_404, 16.46),  # Qwen3-235B-A22B, each of four H100, vllm's issue 21348
    ],
)
def test_a_token_of_the_cache_takes_what_sglang_printed(
    shape: tuple[int, int, int, int], gpus: int, tokens: int, printed_gib: float
) -> None:
    names = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size")
    model = ModelFiles("", config=dict(zip(names, shape, strict=True)) | {"head_dim": 128})
    assert (model.kv_values_per_token or 0) * 2 * tokens / gpus / GIB == pytest.approx(printed_gib, rel=0.01)


def test_the_engines_pool_is_what_sglang_printed(make_case: MakeCase, tmp_path: Path) -> None:
    """Qwen3-30B-A3B on a card with 287.18 GiB free: 56.98 of weights leave 204.63 (sglang's pull request 18263)."""
    shape = {"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4}
    shape |= {"head_dim": 128, "num_experts": 128, "moe_intermediate_size": 768, "vocab_size": 151936}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_moe", **shape}))
    rollout = "actor_rollout_ref.rollout"
    keys = {"actor_rollout_ref.model.path": str(tmp_path), "actor_rollout_ref.hybrid_engine": False}
    keys |= {f"{rollout}.gpu_memory_utilization": 0.911}
    need = memory.gpu_need(make_case(keys, on_cpu=False), 287.18 * GIB + memory.CONTEXTS)
    assert need.engine_weights / GIB == pytest.approx(56.98, rel=0.01)
    assert (need.pool - need.engine_weights) / GIB == pytest.approx(204.63, rel=0.01)


ACTOR = "actor_rollout_ref.actor"
DYNAMIC = {f"{ACTOR}.use_dynamic_bsz": True}
PPO = {"algorithm.adv_estimator": "gae"}
NIGHTLY = {**DYNAMIC, f"{ACTOR}.ppo_max_token_len_per_gpu": 2048}


@pytest.mark.parametrize(
    ("size", "gpus", "keys", "printed_gib"),
    [
        # "Before building vllm rollout, memory allocated": hkust-nlp/simpleRL-reason's issue 84, and verl's issue 2151,
        # whose script trains with a critic.
        ("7B", 8, {}, 3.564),
        ("0.5B", 2, PPO, 1.84),
        # `perf/max_memory_allocated_gb`, which has no CUDA contexts and nothing of the engine.
        # verl's quickstart, PPO: a log with its command, 4 sequences of 512 + 256 tokens in a micro-batch.
        ("0.5B", 1, {**PPO, **DYNAMIC, f"{ACTOR}.ppo_max_token_len_per_gpu": 4 * 768}, 20.76),
        # GRPO on two L20: 32 tokens a second and GPU in a step of 171 s, all in one micro-batch.
        ("3B", 2, {**DYNAMIC, f"{ACTOR}.ppo_max_token_len_per_gpu": 32 * 171}, 28.8),
        # verl's nightly of GSPO under FSDP2.
        ("8B", 8, NIGHTLY, 20.82),
    ],
)
def test_weights_and_updates_take_what_verl_printed(
    make_case: MakeCase, tmp_path: Path, size: str, gpus: int, keys: dict[str, Any], printed_gib: float
) -> None:
    known = {"actor_rollout_ref.model.path": shaped(tmp_path, size), "trainer.n_gpus_per_node": gpus}
    need = memory.gpu_need(make_case({**known, **keys}, on_cpu=False), 80 * GIB)
    if DYNAMIC.keys() <= keys.keys():
        assert (need.update - need.graphs - memory.CONTEXTS) / GIB == pytest.approx(printed_gib, rel=0.2)
    else:
        assert need.states / memory.STATE / GIB == pytest.approx(printed_gib, rel=0.01)
