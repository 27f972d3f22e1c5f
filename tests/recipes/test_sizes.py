"""The sizes of gsm8k_calculator and every override that its README names pass verl's validation."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from omegaconf import DictConfig

from agent_rl.launch.composition import compose

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes/gsm8k_calculator"
README = (RECIPE / "README.md").read_text()
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
