"""LoRA on a CPU, stopped after two steps and continued: what is trained, served by the engine and kept.

The reward is that of verl's reward model under our manager.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_tokenizer
from tests.e2e.conftest import marked_run
from tests.e2e.flaky import EVERY
from tests.e2e.training import PROMPTS, diffs, rollouts, train

pytestmark = pytest.mark.engine

RANK, ALPHA = 8, 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lora")


@pytest.fixture(scope="module")
def first(folder: Path, tiny_llama: Path) -> dict[int, dict[str, Any]]:
    """The metrics of two steps."""
    return run(folder, tiny_llama, 2)


@pytest.fixture(scope="module")
def third(first: dict[int, dict[str, Any]], folder: Path, tiny_llama: Path) -> dict[int, dict[str, Any]]:
    """Those of the run that goes on where the first was stopped."""
    return run(folder, tiny_llama, 3)


def run(folder: Path, model: Path, steps: int) -> dict[int, dict[str, Any]]:
    judge = folder / "classifier"
    if not judge.is_dir():
        make_classifier(judge, make_tokenizer(CORPUS, judge, 512), hidden=48, layers=2, max_positions=4096)
    flaky = Path(__file__).with_name("flaky.py")
    with marked_run(PROBE_DIR=str(folder)) as find:
        logged = train(
            folder,
            model,
            "tuning=lora",
            "+reward.reward_model.rollout.engine_kwargs.sglang.is_embedding=True",
            f"agent_rl.reward.components.flaky={{kind: '{flaky}:Flaky', weight: 0}}",
            agent="weights_probe",
            script=Path(__file__).with_name("probe_train.py"),
            actor_rollout_ref__model__lora_rank=RANK,
            actor_rollout_ref__model__lora_alpha=ALPHA,
            actor_rollout_ref__actor__use_kl_loss=True,
            actor_rollout_ref__actor__optim__lr=0.01,
            reward__num_workers=1,
            reward__reward_model__enable=True,
            reward__reward_model__model_path=judge,
            reward__reward_manager__name="trajectory",
            reward__custom_reward_function__path="null",
            trainer__save_freq=1,
            trainer__total_training_steps=steps,
        )
        assert find() == []
        return logged


def test_two_steps_with_a_kl_loss(first: dict[int, dict[str, Any]]) -> None:
    assert list(first) == [1, 2]
    assert max(diffs(first)) < 1e-5
    assert first[1]["actor/kl_loss"] < 1e-6  # the reference policy is the base model, where the policy began
    assert first[2]["actor/kl_loss"] > 1e-6


def test_verls_own_keys_under_our_manager(first: dict[int, dict[str, Any]], folder: Path) -> None:
    """verl's model shares the policy's place and becomes a component; a row of each step cannot be scored."""
    for step, metrics in first.items():
        assert metrics["agent/unscored"] == 2  # the two samples of one of four rows
        assert len(rollouts(folder, step)) == 6
        assert metrics["agent/flaky"] == 1
        assert metrics["agent/reward_model"] == pytest.approx(metrics["agent/reward_model_reward_model"]) != 0
        parts = {"correctness": 1.0, "efficiency": 1.0, "format": 0.2, "reward_model": 1.0}
        total = sum(weight * metrics[f"agent/{name}"] for name, weight in parts.items())
        assert metrics["critic/score/mean"] == pytest.approx(total, abs=1e-5)
        assert metrics["actor/grad_norm"] > 0


@pytest.mark.usefixtures("first")
def test_only_adapters_are_trained(folder: Path, tiny_llama: Path) -> None:
    check_adapters(folder, tiny_llama, (1, 2))


@pytest.mark.usefixtures("first")
def test_the_engine_has_the_base_with_the_adapters_of_the_step_before(folder: Path, tiny_llama: Path) -> None:
    check_engine(folder, tiny_llama, 2)


@pytest.mark.recipes
def test_a_stopped_run_goes_on(folder: Path, tiny_llama: Path, third: dict[int, dict[str, Any]]) -> None:
    """The optimizer counts on, the third step has the rows that come third, the engine the first run's adapters."""
    assert list(third) == [3]
    assert max(diffs(third)) < 1e-5
    assert third[3]["actor/kl_loss"] > 1e-6
    check_adapters(folder, tiny_llama, (1, 2, 3))
    check_engine(folder, tiny_llama, 3)
    optimizer = load(folder, 3, "optim")["state"]
    assert {int(state["step"]) for state in optimizer.values()} == {3}
    rows = pq.read_table(folder / "train.parquet").to_pylist()
    truths = [row["reward_model"]["ground_truth"] for row in rows]
    for step in (1, 2, 3):
        expected = [truth for row, truth in enumerate(truths) if row // PROMPTS == step - 1 and row % EVERY != 1]
        assert sorted(sample["gts"] for sample in rollouts(folder, step)) == sorted(2 * expected)


def check_adapters(folder: Path, model: Path, steps: Sequence[int]) -> None:
    import torch
    from safetensors.torch import load_file

    base = load_file(model / "model.safetensors")
    states = [load(folder, step, "model") for step in steps]
    for name, tensor in base.items():
        for state in states:
            kept = [value for key, value in state.items() if plain(key) == name]
            assert len(kept) == 1
            assert torch.equal(whole(kept[0]), tensor), name
    adapters = [name for name in states[0] if ".lora_B." in name]
    assert len(adapters) == 2 * 7  # two layers with seven linear parts each
    for earlier, later in pairwise(states):
        assert not any(torch.equal(whole(earlier[name]), whole(later[name])) for name in adapters)


def check_engine(folder: Path, model: Path, step: int) -> None:
    import torch
    from safetensors.torch import load_file

    base, state = load_file(model / "model.safetensors"), load(folder, step - 1, "model")
    engine = json.loads((folder / f"engine_{step}.json").read_text())
    for name, values in engine.items():
        expected = base[name]
        prefix = "base_model.model." + name.removesuffix(".weight")
        if f"{prefix}.lora_A.default.weight" in state:
            a, b = (whole(state[f"{prefix}.lora_{x}.default.weight"]) for x in "AB")
            expected = expected + ALPHA / RANK * b @ a
            assert not torch.allclose(expected, base[name], atol=1e-4)
        assert torch.allclose(torch.tensor(values), expected[: len(values)], atol=1e-5), name


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
