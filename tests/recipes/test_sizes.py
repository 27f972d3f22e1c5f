"""The sizes of gsm8k_calculator pass verl's validation, their batches divide, its README's figures can be redone."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from agent_rl.launch.composition import compose

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes/gsm8k_calculator"
README = (RECIPE / "README.md").read_text()
GIB = 2**30
CONTEXTS = 1.5  # GiB on each GPU: CUDA contexts of trainer and engine, NCCL
GRAPHS = 1.5  # and the engine's CUDA graphs
QWEN = {  # hidden, layers, heads, key-value heads, MLP, vocabulary, tied embeddings: Qwen2.5's published configurations
    "0.5b": (896, 24, 14, 2, 4864, 151_936, True),
    "3b": (2048, 36, 16, 2, 11_008, 151_936, True),
    "7b": (3584, 28, 28, 4, 18_944, 152_064, False),
}
DOCUMENTED = [
    ("0.5b", []),
    ("3b", []),
    ("3b", ["trainer.n_gpus_per_node=4"]),
    ("7b", []),
    ("7b", ["trainer.n_gpus_per_node=4", "actor_rollout_ref.rollout.gpu_memory_utilization=0.5"]),
]

pytestmark = pytest.mark.filterwarnings("ignore:Disabled critic:UserWarning")  # verl's, for every algorithm but PPO


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.chdir(ROOT)


def composed(*overrides: str) -> DictConfig:
    """The recipe's configuration, a copy that may be changed: composing takes a second."""
    return _composed(overrides).copy()


@functools.cache
def _composed(overrides: tuple[str, ...]) -> DictConfig:
    return compose(RECIPE, overrides)


def validate(config: DictConfig) -> None:
    """verl's own checks, as its main does them before it starts Ray."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    validate_config(config, need_reference_policy(config), need_critic(config))
    for part in (config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout):
        omega_conf_to_dataclass(part)


@pytest.mark.parametrize(("size", "overrides"), DOCUMENTED)
def test_a_size_passes_verls_validation(size: str, overrides: list[str]) -> None:
    config = composed(f"size={size}", *overrides)
    validate(config)
    assert config.trainer.device == "cuda"
    assert f"Qwen2.5-{size.upper()}-Instruct" in config.actor_rollout_ref.model.path


def test_without_a_choice_the_size_is_3b() -> None:
    assert composed() == composed("size=3b")


def batches_divide(config: DictConfig) -> bool:
    """What verl asserts in its workers only: after the models are loaded, and for the last of these after a rollout."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    gpus = config.trainer.n_gpus_per_node * config.trainer.nnodes
    longest = config.data.max_prompt_length + config.data.max_response_length
    return bool(
        gpus % rollout.tensor_model_parallel_size == 0
        and config.data.train_batch_size % actor.ppo_mini_batch_size == 0
        and actor.ppo_mini_batch_size * rollout.n % gpus == 0
        and actor.ppo_max_token_len_per_gpu >= longest
        and rollout.log_prob_max_token_len_per_gpu >= longest
    )


@pytest.mark.parametrize("size", QWEN)
@pytest.mark.parametrize("gpus", [1, 4, 8])
def test_batches_divide_among_1_4_and_8_gpus(size: str, gpus: int) -> None:
    config = composed(f"size={size}")
    config.trainer.n_gpus_per_node = gpus
    assert batches_divide(config)


def test_batches_that_do_not_divide_are_noticed() -> None:
    config = composed("size=3b")
    config.trainer.n_gpus_per_node = 3
    assert not batches_divide(config)
    config = composed("size=3b")
    config.data.max_response_length = 20_000
    assert not batches_divide(config)


def overrides_in(text: str) -> list[str]:
    """Every `key=value` in backticks; one pair of backticks may hold several."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return [span for span in spans if all(re.fullmatch(r"\+{0,2}[\w.]+=\S+", part) for part in span.split())]


def test_every_override_that_the_readme_names_passes_verls_validation() -> None:
    named = overrides_in(README)
    assert len(named) > 15
    for overrides in merged(span.split() for span in named):
        validate(composed(*overrides))


def merged(groups: Iterable[Sequence[str]]) -> list[list[str]]:
    """As few lists as possible in which no key comes twice."""
    lists: list[list[str]] = []
    for group in groups:
        keys = {override.split("=")[0] for override in group}
        for each in lists:
            if keys.isdisjoint(override.split("=")[0] for override in each):
                each.extend(group)
                break
        else:
            lists.append(list(group))
    return lists


def memory(size: str, config: DictConfig, card: float) -> dict[str, Any]:
    """GiB of a GPU, by the README's formulas. `card` is what the GPU has to give."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    hidden, layers, heads, kv_heads, mlp, vocabulary, tied = QWEN[size]
    with torch.device("meta"):
        model = Qwen2ForCausalLM(
            Qwen2Config(
                hidden_size=hidden,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                num_key_value_heads=kv_heads,
                intermediate_size=mlp,
                vocab_size=vocabulary,
                tie_word_embeddings=tied,
            )
        )
    parameters = model.num_parameters()
    gpus = config.trainer.n_gpus_per_node
    tokens = config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu
    pool = config.actor_rollout_ref.rollout.gpu_memory_utilization * (card - 4 * parameters / gpus / GIB - CONTEXTS)
    cache = pool - 2 * parameters / GIB
    cached = cache * GIB / (2 * layers * kv_heads * (hidden // heads) * 2)
    states = 16 * parameters / gpus / GIB
    whole = 4 * hidden * vocabulary / GIB + GRAPHS
    activations = tokens * hidden * layers * 2 / GIB
    logits = 4 * tokens * vocabulary * 2 / GIB
    return {
        "parameters": f"{parameters / 1e9:.2f} G",
        "states": f"{states:.1f}",
        "activations": f"{activations:.1f}",
        "logits": f"{logits:.1f}",
        "update": f"{states + activations + logits + whole + CONTEXTS:.0f}",
        "pool": f"{pool:.1f}",
        "cache": f"{cache:.1f}",
        "tokens": f"{cached / 1000:.0f} k",
        "rollout": f"{12 * parameters / gpus / GIB + pool + GRAPHS + CONTEXTS:.0f}",
    }


@pytest.mark.parametrize(
    ("row", "size", "overrides", "card"),
    [
        ("`size=0.5b`, 1 x 24 GB", "0.5b", [], 23.5),
        ("`size=3b`, 8 x 80 GB", "3b", [], 79),
        ("`size=3b`, 4 x 80 GB", "3b", DOCUMENTED[2][1], 79),
        ("`size=7b`, 8 x 80 GB", "7b", [], 79),
        ("`size=7b`, 4 x 80 GB", "7b", DOCUMENTED[4][1], 79),
    ],
)
def test_the_memory_table_is_what_its_formulas_give(row: str, size: str, overrides: list[str], card: float) -> None:
    figures = memory(size, composed(f"size={size}", *overrides), card)
    assert f"| {row} | {' | '.join(figures.values())} |" in README
    assert float(figures["update"]) < card - 2  # room for what the formulas leave out
    assert float(figures["rollout"]) < card - 2
