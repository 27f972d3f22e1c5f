"""Keys of today's verl that a run of agent_rl does not read: each of verl's own YAML files is read, or in the table."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.launch.composition import compose, verl_defaults
from agent_rl.settings import old_keys
from agent_rl.settings.old_keys import change_config, written

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.find_spec("verl")
assert SPEC is not None
assert SPEC.origin is not None
VERL = Path(SPEC.origin).parent
ROLLOUT = "actor_rollout_ref.rollout"
GSM8K = ROOT / "recipes/gsm8k_calculator"

WORKER = "experimental/agent_loop/agent_loop.py"
"""The worker that runs agent loops, ours too; verl's own loops are in other files."""
TRAINER = ("trainer/main_ppo.py", "trainer/ppo/utils.py", "trainer/ppo/v1/*.py", "workers/engine_workers.py")
SERVER = ("workers/rollout/llm_server.py", "workers/rollout/replica.py", "workers/rollout/sglang_rollout/*.py")
OURS = ("agents/episode/budget.py", "verl_adapter/trainer.py")

SECTIONS: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("data/legacy_data.yaml", "", "data", (*TRAINER, WORKER, "utils/dataset/rl_dataset.py")),
    ("rollout/rollout.yaml", "multi_turn", f"{ROLLOUT}.multi_turn", (WORKER,)),
    ("rollout/rollout.yaml", "agent", f"{ROLLOUT}.agent", (*TRAINER, WORKER)),
    ("rollout/rollout.yaml", "val_kwargs", f"{ROLLOUT}.val_kwargs", TRAINER),
    ("rollout/rollout.yaml", "", ROLLOUT, (*TRAINER, *SERVER, WORKER, "workers/utils/padding.py")),
    ("reward/reward.yaml", "", "reward", (*TRAINER, "experimental/reward_loop/*.py", "trainer/ppo/reward.py")),
]
ELSEWHERE = {
    "data.custom_cls": "a section, read by get_dataset_class",
    f"{ROLLOUT}.qat": "of the actor's engine",
    f"{ROLLOUT}.load_format": "of SGLang's server",
}


def keys_of(file: str, section: str) -> Iterator[tuple[str, Any]]:
    """The keys of a section of verl's YAML and their defaults, those of its sections left out."""
    content = yaml.safe_load((VERL / "trainer/config" / file).read_text())
    for key, value in (content[section] if section else content).items():
        if key not in ("_target_", "defaults", "hydra") and not (isinstance(value, dict) and value):
            yield key, value


def is_read(key: str, files: tuple[str, ...]) -> bool:
    """Whether one of these files of verl names the key as an attribute or as text, or our episode's limits have it."""
    texts = [path.read_text() for pattern in files for path in VERL.glob(pattern)]
    texts += [(ROOT / "agent_rl" / path).read_text() for path in OURS]
    return any(re.search(rf"""\.{key}\b|["']{key}["']|^    {key}:""", text, re.MULTILINE) for text in texts)


@pytest.mark.parametrize(("file", "section", "prefix", "files"), SECTIONS, ids=[prefix for _, _, prefix, _ in SECTIONS])
def test_every_key_of_verl_is_read_or_reported(file: str, section: str, prefix: str, files: tuple[str, ...]) -> None:
    reported = {row.old for row in old_keys.rows()}
    unread = [
        full
        for key, _ in keys_of(file, section)
        if (full := f"{prefix}.{key}") not in reported and full not in ELSEWHERE and not is_read(key, files)
    ]
    assert not unread, "name them in agent_rl/settings/old_keys.yaml"


ROWS = [row for row in old_keys.rows() if row.section == "Keys that a run does not read"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.old)
def test_the_default_of_a_reported_key_is_verls(row: old_keys.OldKey) -> None:
    value: Any = verl_defaults()
    for part in row.old.split("."):
        value = value[part]
    assert (None if value is None else written(value).lower()) == row.default


def test_a_key_that_has_no_effect_is_reported_once_and_its_default_not_at_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    compose(GSM8K, ["data.truncation=left", f"{ROLLOUT}.multi_turn.format=glm"])
    lines = [line for line in capsys.readouterr().err.splitlines() if "has no effect" in line]
    assert len(lines) == 2
    assert any(line.startswith("agent_rl: data.truncation=left has no effect: ") for line in lines)
    compose(GSM8K, ["data.truncation=error", f"{ROLLOUT}.agent.default_agent_loop=tool_call_agent"])
    assert "has no effect" not in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["recipes", "agent_rl/config"])
def test_our_own_files_have_no_such_keys(folder: str) -> None:
    for file in sorted((ROOT / folder).rglob("*.yaml")):
        if OmegaConf.is_dict(content := OmegaConf.load(file)):
            assert not [note for note in change_config(content) if "has no effect" in note], file


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        (f"{ROLLOUT}.multi_turn.max_user_turns=3", "multi_turn.max_assistant_turns=3"),
        ("trainer.use_v1=false", "agent_rl runs only under verl's v1 trainer"),
    ],
)
def test_a_key_that_would_change_the_run_is_refused(override: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(GSM8K, [override])
    assert caught.value.key == override.partition("=")[0]
    assert remedy in str(caught.value)


def test_keys_that_take_effect_elsewhere_are_not_refused() -> None:
    """verl's own tool loop counts the turns of tools."""
    own = [f"{ROLLOUT}.multi_turn.max_user_turns=3", f"{ROLLOUT}.agent.default_agent_loop=tool_agent"]
    config = compose(GSM8K, [*own, "actor_rollout_ref.actor.grad_clip=0.5"])
    assert config.actor_rollout_ref.actor.optim.clip_grad == 0.5
