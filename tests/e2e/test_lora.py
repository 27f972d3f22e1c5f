"""LoRA on a CPU, stopped after two steps and continued: what is trained, what the engine has, what is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.e2e.training import PROMPTS, diffs, rollouts, train

pytestmark = pytest.mark.engine

RANK, ALPHA = 8, 16


def test_lora_with_a_kl_loss_goes_on_where_it_was_stopped(
    tmp_path: Path,
    tiny_llama: Path,
    run_processes: Callable[[], list[psutil.Process]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROBE_DIR", str(tmp_path))

    def run(steps: int) -> dict[int, dict[str, Any]]:
        return train(
            tmp_path,
            tiny_llama,
            "tuning=lora",
            agent="weights_probe",
            script=Path(__file__).with_name("probe_train.py"),
            actor_rollout_ref__model__lora_rank=RANK,
            actor_rollout_ref__model__lora_alpha=ALPHA,
            actor_rollout_ref__actor__use_kl_loss=True,
            actor_rollout_ref__actor__optim__lr=0.01,
            trainer__save_freq=1,
            trainer__total_training_steps=steps,
        )

    first, second = run(2), run(3)
    assert (list(first), list(second)) == ([1, 2], [3])
    assert max(diffs({**first, **second})) < 1e-5
    assert first[1]["actor/kl_loss"] < 1e-6  # the reference policy is the base model, where the policy began
    assert min(first[2]["actor/kl_loss"], second[3]["actor/kl_loss"]) > 1e-6
    check_weights(tmp_path, tiny_llama)
    check_continuation(tmp_path)
    assert run_processes() == []


def check_weights(folder: Path, model: Path) -> None:
    """Only adapters are trained, and the engine of the second run has the base with the first run's adapters."""
    import torch
    from safetensors.torch import load_file

    base = load_file(model / "model.safetensors")
    states = [load(folder, step, "model") for step in (1, 2, 3)]
    for name, tensor in base.items():
        for state in states:
            kept = [value for key, value in state.items() if plain(key) == name]
            assert len(kept) == 1
            assert torch.equal(whole(kept[0]), tensor), name
    adapters = [name for name in states[0] if ".lora_B." in name]
    assert len(adapters) == 2 * 7  # two layers with seven linear parts each
    for earlier, later in pairwise(states):
        assert not any(torch.equal(whole(earlier[name]), whole(later[name])) for name in adapters)

    engine = json.loads((folder / "engine_3.json").read_text())
    for name, values in engine.items():
        expected = base[name]
        prefix = "base_model.model." + name.removesuffix(".weight")
        if f"{prefix}.lora_A.default.weight" in states[1]:
            a, b = (whole(states[1][f"{prefix}.lora_{x}.default.weight"]) for x in "AB")
            expected = expected + ALPHA / RANK * b @ a
            assert not torch.allclose(expected, base[name], atol=1e-4)
        assert torch.allclose(torch.tensor(values), expected[: len(values)], atol=1e-5), name


def check_continuation(folder: Path) -> None:
    """The optimizer counts on, and the third step has the rows that come third."""
    optimizer = load(folder, 3, "optim")["state"]
    assert {int(state["step"]) for state in optimizer.values()} == {3}
    rows = pq.read_table(folder / "train.parquet").to_pylist()
    truths = [row["reward_model"]["ground_truth"] for row in rows]
    for step in (1, 2, 3):
        expected = truths[(step - 1) * PROMPTS : step * PROMPTS]
        assert sorted(sample["gts"] for sample in rollouts(folder, step)) == sorted(2 * expected)


def load(folder: Path, step: int, part: str) -> dict[str, Any]:
    import torch

    path = folder / f"checkpoints/global_step_{step}/actor/{part}_world_size_1_rank_0.pt"
    state: dict[str, Any] = torch.load(path, weights_only=False, map_location="cpu")
    return state


def plain(key: str) -> str:
    """A parameter's name in the model before the adapters were put beside it."""
    return key.removeprefix("base_model.model.").replace(".base_layer.", ".")


def whole(tensor: Any) -> Any:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
