import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from agent_rl.backend import launch
from agent_rl.backend.launch import TrainerError, run_trainer, trainer_command
from agent_rl.errors import ConfigError

RECIPES = Path(__file__).parents[2] / "recipes"


def script(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def test_on_a_cpu_the_profile_and_the_small_size_are_laid_over_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    command = trainer_command(RECIPES / "gsm8k_calculator", ["trainer.total_training_steps=5"])
    assert command[1:3] == ["-m", "verl.trainer.main_ppo"]
    assert command[-3:] == ["+platform=cpu", "size=cpu", "trainer.total_training_steps=5"]


def test_on_an_accelerator_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(launch, "_has_accelerator", lambda: True)
    command = trainer_command(RECIPES / "gsm8k_calculator", script="mine.py")
    assert not [part for part in command if "platform" in part or "size" in part]
    assert command[1] == "mine.py"


def test_without_accelerator_and_without_the_switch_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(launch, "_has_accelerator", lambda: False)
    with pytest.raises(ConfigError, match="VERL_PLATFORM=cpu"):
        trainer_command(RECIPES / "gsm8k_calculator")


def test_our_section_can_be_overridden_though_hydra_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert trainer_command(RECIPES / "quickstart", ["agent_rl.trace.path=x"])[-1] == "++agent_rl.trace.path=x"


def test_an_override_without_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    with pytest.raises(ConfigError, match=r"trainer\.total_epochs: not a hydra override"):
        trainer_command(RECIPES / "quickstart", ["trainer.total_epochs"])


def test_metrics_are_followed_line_by_line(tmp_path: Path) -> None:
    code = (
        "import os, time, json\n"
        "with open(os.environ['VERL_FILE_LOGGER_PATH'], 'ab', buffering=0) as file:\n"
        "    for step in range(3):\n"
        "        line = json.dumps({'step': step, 'data': {'x': step}}).encode()\n"
        "        file.write(line[:5]); time.sleep(0.3); file.write(line[5:] + b'\\n')\n"
    )
    seen: list[tuple[int, dict]] = []
    run_trainer(script(code), tmp_path, on_metrics=lambda step, data: seen.append((step, data)))
    assert seen == [(step, {"x": step}) for step in range(3)]
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [0, 1, 2]


def test_a_failure_names_its_cause_and_the_log(tmp_path: Path) -> None:
    code = (
        "print('ray.exceptions.RayTaskError(ValueError): repeated')\n"
        "print('\\x1b[36m(TaskRunner pid=7)\\x1b[0m agent_rl.errors.ConfigError: key: wrong value')\n"
        "print('some more output')\n"
        "raise SystemExit(3)"
    )
    with pytest.raises(TrainerError, match="ConfigError: key: wrong value") as caught:
        run_trainer(script(code), tmp_path)
    assert str(tmp_path / "train.log") in str(caught.value)


def test_a_failure_without_exception_shows_the_last_lines(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="Key 'trace' is not in struct"):
        run_trainer(script("print(\"Key 'trace' is not in struct\"); raise SystemExit(1)"), tmp_path)


def test_a_trainer_that_hangs_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="stopped after 1 seconds"):
        run_trainer(script("import time; time.sleep(60)"), tmp_path, timeout_s=1)
    assert not [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]


def test_the_trainer_dies_with_its_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    trainer = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    code = (
        "import sys\nfrom agent_rl.backend.launch import run_trainer\n"
        f"run_trainer([sys.executable, '-c', {trainer!r}], {str(tmp_path)!r})"
    )
    with subprocess.Popen(script(code)) as parent:
        deadline = time.monotonic() + 20
        while not (pid_file.exists() and pid_file.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child = psutil.Process(int(pid_file.read_text()))
        parent.kill()
    assert not psutil.wait_procs([child], timeout=5)[1]
