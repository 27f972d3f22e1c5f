"""The GPU sizes have the values of the published runs that the READMEs quote; every README says what was published.

The values are those of the sources: verl-tool 980962b (examples/train/math_tir), verl-recipe 48ea0a7 (retool),
SimpleTIR e7b5b44 (README, train.sh), SkyRL a956457 (run_search.sh with 3 turns, run_skyrl_sql.sh), ToolRL
8cee13e (run_grpo.sh), verl 1dda039 (run_qwen2_5_vl_7b_megatron.sh), GiGPO's and Qwen3-4B-tau2-grpo-v1's publications.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.launch.composition import compose

ROOT = Path(__file__).parents[2]
KEYS = {
    "batch": "data.train_batch_size",
    "prompt": "data.max_prompt_length",
    "response": "data.max_response_length",
    "mini": "actor_rollout_ref.actor.ppo_mini_batch_size",
    "warmup": "actor_rollout_ref.actor.optim.lr_warmup_steps",
    "lr": "actor_rollout_ref.actor.optim.lr",
    "grad": "actor_rollout_ref.actor.optim.clip_grad",
    "high": "actor_rollout_ref.actor.clip_ratio_high",
    "c": "actor_rollout_ref.actor.clip_ratio_c",
    "kl": "actor_rollout_ref.actor.kl_loss_coef",
    "kl_in_loss": "actor_rollout_ref.actor.use_kl_loss",
    "kl_in_reward": "algorithm.use_kl_in_reward",
    "n": "actor_rollout_ref.rollout.n",
    "temperature": "actor_rollout_ref.rollout.temperature",
    "top_p": "actor_rollout_ref.rollout.top_p",
    "turns": "actor_rollout_ref.rollout.multi_turn.max_assistant_turns",
    "output": "agent_rl.tools.max_result_tokens",
    "val_n": "actor_rollout_ref.rollout.val_kwargs.n",
    "val_t": "actor_rollout_ref.rollout.val_kwargs.temperature",
    "val_p": "actor_rollout_ref.rollout.val_kwargs.top_p",
    "val_k": "actor_rollout_ref.rollout.val_kwargs.top_k",
    "tis": "algorithm.rollout_correction.rollout_is_threshold",
    "gpus": "trainer.n_gpus_per_node",
    "steps": "trainer.total_training_steps",
    "epochs": "trainer.total_epochs",
}
TORL = {"batch": 128, "mini": 128, "n": 16, "prompt": 1024, "response": 3064, "turns": 11, "output": 512, "warmup": 10}
PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    ("math_python", "1.5b"): {**TORL, "steps": 320, "gpus": 4, "val_n": 8, "val_t": 1, "kl_in_loss": False},
    ("math_python", "7b"): {**TORL, "steps": 310, "gpus": 8, "val_n": 1, "val_t": 0},
    ("math_python", "retool"): {
        **{"batch": 64, "mini": 16, "n": 16, "turns": 16, "prompt": 2048, "response": 16384, "warmup": -1, "gpus": 8},
        **{"high": 0.28, "c": 10.0, "val_n": 30, "val_t": 1, "val_p": 0.6, "epochs": 1, "steps": None},
    },
    ("math_python", "simpletir"): {
        **{"batch": 512, "mini": 128, "n": 16, "turns": 5, "response": 8000, "output": 4096, "warmup": -1},
        **{"high": 0.28, "c": 3.0, "val_n": 32, "val_t": 1, "gpus": 8},
    },
    ("search_qa", "3b"): {
        **{"batch": 512, "mini": 256, "n": 5, "turns": 3, "prompt": 2048, "response": 4096, "warmup": 94 // 2},
        **{"grad": 0.5, "tis": 2.0, "kl": 0.001, "steps": 330, "val_t": 0},
    },
    ("text_world", "1_5b"): {"batch": 16, "n": 8, "kl": 0.01, "steps": 150, "val_t": 0.4, "gpus": 2},
    ("text_to_sql", "7b"): {
        **{"batch": 256, "mini": 256, "n": 5, "turns": 6, "prompt": 6000, "response": 23000, "temperature": 0.6},
        **{"top_p": 0.95, "grad": 0.5, "kl_in_loss": False, "epochs": 30},
    },
    ("tool_calls", "3b"): {
        **{"batch": 512, "mini": 128, "n": 4, "prompt": 2048, "response": 1024, "steps": 105},
        **{"kl_in_loss": False, "kl_in_reward": True},
    },
    ("service", "4b"): {"steps": 100, "val_n": 4, "val_t": 0.8, "val_k": 20},
    ("geo3k", "7b"): {"batch": 512, "mini": 128, "n": 5, "kl": 0.01, "response": 2048, "epochs": 15},
}
NONE = [
    *("bt_reward_model", "code", "code_fusion", "hh_rlhf", "llm_judge", "multi_rm", "quickstart"),
    *("reasoning_rm_pairwise", "reasoning_rm_pointwise", "reward_api", "self_judged", "verifiers"),
]
"""Recipes to which no published number is comparable."""


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "size"), PUBLISHED)
def test_a_size_has_the_values_of_its_source(recipe: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    config = compose(ROOT / "recipes" / recipe, [f"size={size}"])
    values = {name: OmegaConf.select(config, KEYS[name]) for name in PUBLISHED[recipe, size]}
    assert values == PUBLISHED[recipe, size]
    assert config.actor_rollout_ref.actor.optim.lr == 1e-6


def test_every_recipe_with_such_a_size_is_quoted_with_its_source() -> None:
    for recipe in {recipe for recipe, _ in PUBLISHED} - {*NONE}:
        text = _published(recipe)
        assert re.search(r"[0-9a-f]{7}\b|arxiv.org/abs/\d{4}\.\d{5}|model card", text), recipe


def test_where_nothing_is_comparable_the_readme_says_so() -> None:
    assert [recipe for recipe in NONE if not re.match(r"We know of no\b", _published(recipe))] == []


def _published(recipe: str) -> str:
    """What the recipe's README says under its heading."""
    _, text = (ROOT / "recipes" / recipe / "README.md").read_text().split("## Published by others\n\n")
    return text
