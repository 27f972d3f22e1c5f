from itertools import product
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from agent_rl.cli._arguments import keys_with_model
from agent_rl.errors import ConfigError
from agent_rl.launch import command as module
from agent_rl.launch.command import hydra_arguments, quoted, require_device, trainer_command


def test_the_command_on_a_cpu_and_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    command = trainer_command("quickstart", ["agent_rl.trace.path=x"])
    assert command[1:3] == ["-m", "verl.trainer.main_ppo"]
    assert command[-2:] == ["+platform=cpu", "++agent_rl.trace.path=x"]  # hydra does not know our section
    assert trainer_command("gsm8k_calculator")[-2:] == ["+platform=cpu", "size=cpu"]
    monkeypatch.delenv("VERL_PLATFORM")
    command = trainer_command("gsm8k_calculator", script="mine.py")
    assert command[1] == "mine.py"
    assert not [part for part in command if "platform" in part or "size" in part]


def test_without_accelerator_and_without_the_switch_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(module, "has_accelerator", lambda: False)
    with pytest.raises(ConfigError, match="VERL_PLATFORM=cpu"):
        require_device()


def test_hydra_reads_every_character_of_a_quoted_value_and_of_a_model() -> None:
    parser = OverridesParser.create()
    values = ["".join(letters) for length in range(5) for letters in product("a\\'\"", repeat=length)]
    for value in [*values, "runs/lr=1e-6/m", "a [b], (c)", "~/m", "größe", "2024"]:
        assert parser.parse_override(f"key={quoted(value)}").value() == value
        assert parser.parse_override(keys_with_model("", ["key=1"], value)[0]).value() == value


def test_a_variable_of_a_joined_cluster_keeps_its_characters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "host:6379")
    monkeypatch.setenv("CUDA_HOME", "/home/rené/cuda")
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    (tmp_path / "config.yaml").write_text("{}")
    (word,) = [word for word in hydra_arguments(tmp_path, []) if "CUDA_HOME" in word]
    assert OverridesParser.create().parse_override(word).value() == "/home/rené/cuda"
