"""The sizes of gsm8k_calculator pass verl's validation, their batches divide, its README's figures are the doctor's."""

import functools
import json
import re
import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from omegaconf import DictConfig

from agent_rl.launch.composition import compose
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks.memory import GIB, gpu_need

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes/gsm8k_calculator"
README = (RECIPE / "README.md").read_text()
SHAPES = runpy.run_path(str(ROOT / "docs/gpu_pages.py"))["SHAPES"]
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


@pytest.mark.parametrize("size", ["0.5b", "3b", "7b"])
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
def test_the_memory_table_is_what_the_doctor_estimates(
    row: str, size: str, overrides: list[str], card: float, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES[size.upper()]))
    config = composed(f"size={size}", *overrides)
    config.actor_rollout_ref.model.path = str(tmp_path)
    case = Case(environ={}, config=config)
    need = gpu_need(case, card * GIB)
    cache = need.pool - need.engine_weights
    gib = [each / GIB for each in (need.states, need.activations, need.logits, need.update, need.pool, cache)]
    figures = "{:.1f} | {:.1f} | {:.1f} | {:.0f} | {:.1f} | {:.1f}".format(*gib)
    cached = f"{cache / need.kv_per_token / 1000:.0f} k | {need.rollout / GIB:.0f}"
    assert f"| {row} | {float(case.model.parameters or 0) / 1e9:.2f} G | {figures} | {cached} |" in README
    assert max(need.update, need.rollout) < (card - 2) * GIB  # room for what the formulas leave out
