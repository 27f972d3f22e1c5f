import pytest

from agent_rl.errors import ConfigError
from agent_rl.launch import command as module
from agent_rl.launch.command import require_device, trainer_command


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
