"""Rows and scorers that no run can use are refused before anything is started."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import write_parquet
from agent_rl.errors import FatalError
from agent_rl.preflight import rows
from agent_rl.preflight.check import checks_at
from tests.launch.doctor.conftest import MakeCase
from tests.support.rows import sum_row

SCORER = "agent_rl.reward.correctness.scorer"


def refusals(case: Any, at: str = "launch") -> list[str]:
    """The errors of this module's checks."""
    checks = [each for each in checks_at(at) if each.function.__module__ == rows.__name__]
    return [str(error) for each in checks for error in each.found(case) if isinstance(error, FatalError)]


@pytest.fixture
def own(tmp_path: Path) -> str:
    """Rows of a data source that has no scorer."""
    write_parquet([sum_row(data_source="own/from_file")], tmp_path / "own.parquet")
    return str(tmp_path / "own.parquet")


@pytest.mark.parametrize("at", rows.AT)
def test_rows_without_a_prompt_are_refused_with_the_command_that_makes_one(
    at: str, make_case: MakeCase, tmp_path: Path
) -> None:
    raw = tmp_path / "raw.jsonl"
    raw.write_text(json.dumps({"question": "1+1?", "answer": "2", "level": 1}) + "\n")
    (error,) = refusals(make_case({"data.train_files": str(raw)}), at)
    assert error.startswith("data.train_files: ")
    assert "raw.jsonl has no prompt column, only question, answer, level." in error
    assert error.endswith("raw.jsonl --prompt question --answer answer")


@pytest.mark.parametrize("at", rows.AT)
def test_a_data_source_without_a_scorer_is_refused_in_one_line(at: str, make_case: MakeCase, own: str) -> None:
    keys = {"data.train_files": own, SCORER: "auto"}
    (error,) = refusals(make_case(keys), at)
    assert error.startswith("data_source: no scorer is known for 'own/from_file'. Set agent_rl.reward.correctness.sc")
    assert len(error) < 300
    for settled in ({SCORER: "math"}, {SCORER: "none"}, {"agent_rl.reward.reward_api": "http://localhost:1/"}):
        assert refusals(make_case({**keys, **settled}), at) == []


@pytest.mark.parametrize("at", rows.AT)
def test_rows_that_their_program_judges_need_no_scorer(at: str, make_case: MakeCase, tmp_path: Path) -> None:
    judged = sum_row(data_source="own/task", ground_truth=None, style="environment")
    write_parquet([judged], tmp_path / "own.parquet")
    assert refusals(make_case({"data.train_files": str(tmp_path / "own.parquet"), SCORER: "auto"}), at) == []


def test_a_scorer_of_an_unknown_name_is_refused(make_case: MakeCase, own: str) -> None:
    override = {"agent_rl.reward.per_data_source": {"own/*": {"correctness": {"scorer": "maths"}}}}
    (error,) = refusals(make_case({"data.train_files": own, **override}))
    assert error.startswith("agent_rl.reward.per_data_source.own/*.correctness.scorer: there is no scorer 'maths'")


def test_code_of_the_user_may_register_a_scorer_until_the_trainer_has_imported_it(
    make_case: MakeCase, own: str
) -> None:
    keys = {"data.train_files": own, SCORER: "auto"}
    with_component = {"agent_rl.reward.components": {"mine": {"kind": "mine.py:Mine", "weight": 1}}}
    for case in (make_case(keys | with_component), make_case(keys, environ={"VERL_USE_EXTERNAL_MODULES": "mine"})):
        assert refusals(case) == []
        assert refusals(case, "trainer")


@pytest.mark.parametrize("at", rows.AT)
def test_a_row_of_the_gateway_needs_a_program(at: str, make_case: MakeCase, tmp_path: Path) -> None:
    write_parquet([sum_row(agent_name="gateway_agent")], tmp_path / "without.parquet")
    write_parquet([sum_row(agent_name="gateway_agent", extra_info={"program": "true"})], tmp_path / "with.parquet")
    keys = {"data.train_files": str(tmp_path / "without.parquet")}
    with_program = {"data.train_files": str(tmp_path / "with.parquet")}
    for case in (make_case(keys), make_case({**with_program, "data.val_files": str(tmp_path / "without.parquet")})):
        (error,) = refusals(case, at)
        problem = "without.parquet, row 0, is for gateway_agent, but has no program. Set agent_rl.gateway.com"
        assert error.startswith("agent_rl.gateway: ")
        assert problem in error
    assert refusals(make_case({**keys, "agent_rl.gateway.command": "true"}), at) == []
    assert refusals(make_case(with_program), at) == []


@pytest.mark.parametrize("at", rows.AT)
def test_a_validation_batch_that_finds_no_room_in_the_store_is_refused(
    at: str, make_case: MakeCase, tmp_path: Path
) -> None:
    write_parquet([sum_row()] * 8, tmp_path / "val.parquet")
    room = "transfer_queue.backend.SimpleStorage.total_storage_size"
    keys = {"data.val_files": str(tmp_path / "val.parquet"), "actor_rollout_ref.rollout.val_kwargs.n": 4, room: 31}
    (error,) = refusals(make_case(keys), at)
    assert error.startswith("data.val_batch_size: a validation batch has 32 trajectories, but TransferQueue stores at")
    for settled in ({"data.val_batch_size": 7}, {"data.val_max_samples": 7}, {room: None}, {room: 32}):
        assert refusals(make_case({**keys, **settled}), at) == []
