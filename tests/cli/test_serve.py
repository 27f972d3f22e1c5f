"""The command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def reward(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent_rl.cli.main", "reward", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_help_explains() -> None:
    text = reward("serve", "--help").stdout
    for part in ("/get_reward2", "token_env", "rules_file=my_rules.py"):
        assert part in text


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("rules: {}\nhost: 0.0.0.0\n")
    done = reward("serve", "--config", str(tmp_path / "service.yaml"), "port=0")
    assert done.returncode == 2
    assert done.stderr.startswith("error: host: '0.0.0.0' is reached by other machines")
    assert "Traceback" not in done.stderr


def test_without_fastapi_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("rules: {}\n")
    hide = "import sys; sys.modules['fastapi'] = None; from agent_rl.cli.main import main; main()"
    command = [sys.executable, "-c", hide, "reward", "serve", "--config", str(tmp_path / "service.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "pip install 'agent-rl[service]'" in done.stderr
