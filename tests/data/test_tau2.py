import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import read_parquet
from agent_rl.data.conversion import run
from agent_rl.data.tau2 import OPENING, TAU2, to_row
from agent_rl.errors import ConfigError

TASK: dict[str, Any] = {
    "id": 7,
    "user_scenario": {
        "persona": "Short.",
        "instructions": {"reason_for_call": "Cancel it.", "known_info": "You are Ann."},
    },
    "evaluation_criteria": {
        "actions": [
            {"name": "find", "arguments": {"name": "Ann"}},
            {"name": "cancel", "arguments": {"order": "#1", "why": "no need"}, "compare_args": ["order"]},
        ],
        "nl_assertions": ["It is cancelled."],
    },
}


def test_a_task_has_a_policy_a_customer_and_the_gold_actions() -> None:
    row = to_row(TASK, "test", 0, policy="Be kind.", domain="shop")
    assert row["prompt"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": OPENING}]
    assert row["data_source"] == "tau2/shop"
    assert row["reward_model"]["ground_truth"] == [
        {"name": "find", "arguments": {"name": "Ann"}},
        {"name": "cancel", "arguments": {"order": "#1", "why": "no need"}, "optional": ["why"]},
    ]
    assert row["extra_info"]["user"] == {"goal": "Cancel it.\n\nYou are Ann.\n\nHow you are: Short."}
    assert row["extra_info"]["nl_assertions"] == ["It is cancelled."]


def test_the_policy_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps([TASK]))
    (tmp_path / "policy.md").write_text("Be kind.")
    arguments = ["--input", str(tmp_path / "tasks.json"), "--local_save_dir", str(tmp_path / "out"), "--policy"]
    run(TAU2, None, [*arguments, str(tmp_path / "policy.md")])
    assert read_parquet(tmp_path / "out" / "train.parquet")[0]["prompt"][0]["content"] == "Be kind."
    with pytest.raises(SystemExit):
        run(TAU2, None, [*arguments, "absent.md"])
    assert "error: --policy: absent.md cannot be read" in capsys.readouterr().err


def test_a_task_without_instructions_is_refused() -> None:
    with pytest.raises(ConfigError, match="column user_scenario: it has no instructions"):
        to_row(TASK | {"user_scenario": {}}, "test", 0)
