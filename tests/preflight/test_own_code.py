"""The user's own agents, which a script registers; other bugs are in tests/doctor/test_user_bugs.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents import registry
from agent_rl.data import write_parquet
from agent_rl.preflight import own_code
from agent_rl.preflight.check import Status
from tests.doctor.conftest import MakeCase

SCRIPT = """
from agent_rl import Agent, Hooks, register_agent_loop
from agent_rl.agents.react import ReactFormat


class Mine(Hooks):
    async def before_trun(self, trajectory):
        return None


register_agent_loop(Agent("doctors_own", lambda settings, limits: ReactFormat(""), hooks=Mine))
"""


@pytest.fixture(autouse=True)
def no_agent_is_left() -> Iterator[None]:
    yield
    registry.registered.pop("doctors_own", None)


def found(make_case: MakeCase, rows: list[dict[str, Any]], folder: Path, script: str) -> list[Any]:
    write_parquet([{**row, "agent_name": "doctors_own"} for row in rows], folder / "rows.parquet")
    (folder / "train.py").write_text(script)
    case = make_case({f"data.{kind}_files": str(folder / "rows.parquet") for kind in ("train", "val")})
    object.__setattr__(case, "script", folder / "train.py")
    return list(own_code.own_code(case))


def test_agents_that_a_script_registers_are_tried(
    make_case: MakeCase, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    (finding,) = found(make_case, rows, tmp_path, SCRIPT)
    assert finding.status is Status.PROBLEM
    assert "train.py:7" in finding.text
    assert "Did you mean 'before_turn'" in finding.remedy


def test_a_script_that_trains_when_it_is_imported_is_not_run(
    make_case: MakeCase, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    (finding,) = found(make_case, rows, tmp_path, SCRIPT + "from verl.trainer.main_ppo import main\nmain()\n")
    assert finding.status is Status.SKIPPED
    assert "starts the training" in finding.text
