"""`agent-rl train` with a class of TRL, as far as the composed configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import read_parquet
from agent_rl.errors import AgentRLError
from tests.cli.test_play import TRL
from tests.support.cli import printed

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def composed(*words: str) -> dict[str, Any]:
    configuration: dict[str, Any] = printed("train", *words, "--model", "mine", "--dry-run")["configuration"]
    return configuration


def test_a_class_of_trl_trains_with_rows_and_a_reward_beside_it(here: Path) -> None:
    (here / "camera.py").write_text(TRL)
    (here / "rewards.py").write_text("def brief(completions, **kwargs):\n    return [1.0]\n")
    rows = [{"prompt": f"Look {number}.", "place": "a wall"} for number in range(24)]
    (here / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    functions = ["--reward", "camera.py:looked", "--reward", "rewards.py:brief"]
    configuration = composed("camera.py", "--data", "rows.jsonl", *functions)
    section = configuration["agent_rl"]
    weights = {name: each["weight"] for name, each in section["reward"]["components"].items()}
    assert weights == {"looked": 1.0, "brief": 1.0, "reset_differs": 0.0}
    assert section["environments"] == {
        "camera": " + ".join(str(here / each) for each in ("camera.py", *functions[1::2], "rows.jsonl"))
    }
    assert configuration["actor_rollout_ref"]["model"]["path"] == "mine"
    written = read_parquet(Path(configuration["data"]["train_files"]))
    assert [row["prompt"][0]["content"] for row in written[:8]] == [*(f"Look {n}." for n in range(7)), "Look 8."]
    with pytest.raises(AgentRLError, match=r"Camera .* no reward. Define get_reward\(self\) .*--reward"):
        composed("camera.py", "--data", "rows.jsonl")
