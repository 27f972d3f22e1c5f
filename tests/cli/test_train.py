"""`agent-rl train` with a class of TRL, as far as the composed configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent_rl.cli.main import app
from agent_rl.data import read_parquet
from agent_rl.errors import AgentRLError
from tests.cli.test_play import TRL

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def composed(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["train", *words, "--model", "mine", "--dry-run", "--json"])
    if isinstance(done.exception, AgentRLError):
        raise done.exception
    assert done.exit_code == 0, done.output
    configuration: dict[str, Any] = json.loads(done.stdout)["configuration"]
    return configuration


def test_a_class_of_trl_trains_with_rows_and_a_reward_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    (tmp_path / "camera.py").write_text(TRL)
    (tmp_path / "rewards.py").write_text("def brief(completions, **kwargs):\n    return [1.0]\n")
    rows = [{"prompt": f"Look {number}.", "place": "a wall"} for number in range(24)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    functions = ["--reward", "camera.py:looked", "--reward", "rewards.py:brief"]
    configuration = composed("camera.py", "--data", "rows.jsonl", *functions)
    section = configuration["agent_rl"]
    weights = {name: each["weight"] for name, each in section["reward"]["components"].items()}
    assert weights == {"looked": 1.0, "brief": 1.0}
    assert section["environments"] == {
        "camera": " + ".join(str(tmp_path / each) for each in ("camera.py", *functions[1::2], "rows.jsonl"))
    }
    assert configuration["actor_rollout_ref"]["model"]["path"] == "mine"
    written = read_parquet(Path(configuration["data"]["train_files"]))
    assert [row["prompt"][0]["content"] for row in written[:8]] == [*(f"Look {n}." for n in range(7)), "Look 8."]
    with pytest.raises(AgentRLError, match=r"Camera .* no reward. Define get_reward\(self\) .*or give .*--reward"):
        composed("camera.py", "--data", "rows.jsonl")
