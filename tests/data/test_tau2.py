import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data.tau2 import OPENING, TAU2, read_tasks, to_row
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
            {"name": "cancel", "arguments": {"order": "#1", "why": "no need"}},
        ],
        "nl_assertions": ["It is cancelled."],
    },
}


def test_a_task_has_a_policy_a_customer_and_the_gold_actions() -> None:
    row = to_row(TASK, "test", 0, policy="Be kind.", domain="shop", database="db.json")
    assert row["prompt"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": OPENING}]
    assert row["data_source"] == "tau2/shop"
    actions = [
        {"name": "find", "arguments": {"name": "Ann"}},
        {"name": "cancel", "arguments": {"order": "#1", "why": "no need"}},
    ]
    assert row["reward_model"]["ground_truth"] == {"domain": "shop", "database": "db.json", "actions": actions}
    assert row["extra_info"]["user"] == {"goal": "Cancel it.\n\nYou are Ann.\n\nHow you are: Short."}
    assert row["extra_info"]["nl_assertions"] == ["It is cancelled."]


def test_a_task_may_begin_with_another_database() -> None:
    user = {"orders": {"2": {"state": "open"}}}
    act = {"env_type": "assistant", "func_name": "cancel_order", "arguments": {"number": "1"}}
    phone = {"env_type": "user", "func_name": "add_notification", "arguments": {}}
    state = {"initialization_data": {"agent_data": user}, "initialization_actions": [act, phone]}
    row = to_row(TASK | {"initial_state": state}, "test", 0, domain="shop")
    initial = {"tables": user, "actions": [{"name": "cancel_order", "arguments": act["arguments"]}]}
    assert row["reward_model"]["ground_truth"]["initial"] == initial
    assert row["extra_info"]["tools_kwargs"]["get_order"] == {"create_kwargs": {"initial": initial}}


def test_calls_are_required_where_the_task_asks_for_them() -> None:
    actions = [TASK["evaluation_criteria"]["actions"][0] | {"compare_args": each} for each in (None, [])]
    row = to_row(TASK | {"evaluation_criteria": {"actions": actions, "reward_basis": ["DB", "ACTION"]}}, "test", 0)
    called = [{"name": "find", "arguments": {"name": "Ann"}}, {"name": "find", "arguments": {}}]
    assert row["reward_model"]["ground_truth"]["required"] == called


def test_tasks_that_rows_cannot_express_are_left_out(tmp_path: Path) -> None:
    begun = TASK | {"initial_state": {"message_history": [{"role": "user", "content": "Hello."}]}}
    judged = TASK | {"evaluation_criteria": {"nl_assertions": ["It is done."]}}
    nothing = TASK | {"evaluation_criteria": {"actions": []}}
    (tmp_path / "tasks.json").write_text(json.dumps([begun, TASK, judged, nothing]))
    assert [raw.value for raw in read_tasks(tmp_path / "tasks.json")] == [TASK, nothing]


def test_the_official_split_lies_next_to_the_tasks(tmp_path: Path, convert: Any, refusal: Any) -> None:
    tasks = [TASK | {"id": number} for number in range(4)]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    (tmp_path / "db.json").write_text("{}")
    command = ["--input", tmp_path / "tasks.json", "--split_by", "split", "--database", tmp_path / "db.json"]
    (tmp_path / "split_tasks.json").write_text(json.dumps({"train": ["0", "3"], "test": ["1", "2"], "base": ["0"]}))
    written = convert(TAU2, *command)
    ids = {name: [row["extra_info"]["task_id"] for row in rows] for name, rows in written.items()}
    assert ids == {"train": ["0", "3"], "test": ["1", "2"]}
    (tmp_path / "split_tasks.json").write_text('{"train": ["0"], "test": ["1"]}')
    assert "column split: the value is None" in refusal(TAU2, *command)
    (tmp_path / "split_tasks.json").write_text("[")
    assert "cannot be read" in refusal(TAU2, *command)


def test_the_policy_is_a_file(tmp_path: Path, convert: Any, refusal: Any) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps([TASK]))
    (tmp_path / "policy.md").write_text("Be kind.")
    (tmp_path / "db.json").write_text("{}")
    given = ["--input", tmp_path / "tasks.json"]
    arguments = [*given, "--database", tmp_path / "db.json", "--policy"]
    (row,) = convert(TAU2, *arguments, tmp_path / "policy.md")["train"]
    assert row["prompt"][0]["content"] == "Be kind."
    assert row["reward_model"]["ground_truth"]["database"] == str(tmp_path / "db.json")
    assert "error: --policy: absent.md cannot be read" in refusal(TAU2, *arguments, "absent.md")
    assert "error: database: absent.json cannot be read" in refusal(TAU2, *given, "--database", "absent.json")


def test_a_task_without_instructions_is_refused() -> None:
    with pytest.raises(ConfigError, match="column user_scenario: it has no instructions"):
        to_row(TASK | {"user_scenario": {}}, "test", 0)
