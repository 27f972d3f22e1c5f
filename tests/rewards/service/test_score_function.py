"""A user's file of rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.service.score_function import ScoreFunction
from agent_rl.trajectory import Message, StopReason, Trajectory

TRAJECTORY = Trajectory(
    [Message("user", "2+2?")], StopReason.ANSWERED, answer="4", ground_truth="5", data_source="mine"
)


def judge(folder: Path, body: str, prefix: str = "") -> Any:
    text = f"{prefix}def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    {body}\n"
    (folder / "rules.py").write_text(text)
    return asyncio.run(ScoreFunction(str(folder / "rules.py")).judge(TRAJECTORY, {"index": 7}))


@pytest.mark.parametrize("prefix", ["", "async "])
def test_it_gets_verls_arguments_and_the_trajectory(prefix: str, tmp_path: Path) -> None:
    body = "return {'score': 1, 'n': int(solution_str + ground_truth), 'said': data_source, **extra_info['extra']}"
    body = body.replace("extra_info['extra']", "{'i': extra_info['index'], 't': len(extra_info['trajectory'])}")
    assert judge(tmp_path, body, prefix) == (1.0, {"n": 45.0, "i": 7.0, "t": len(TRAJECTORY.to_dict())})


@pytest.mark.parametrize(("returned", "score"), [("0.5", 0.5), ("True", 1.0), ("__import__('numpy').float32(2)", 2.0)])
def test_it_may_return_a_number_of_any_kind(returned: str, score: float, tmp_path: Path) -> None:
    assert judge(tmp_path, f"return {returned}") == (score, {})


@pytest.mark.parametrize("returned", ["None", "'1'", "{}", "{'score': '1'}", "{'points': 1}"])
def test_a_score_that_is_no_number_is_an_error(returned: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no number"):
        judge(tmp_path, f"return {returned}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rules_file: there is no file"):
        ScoreFunction(str(tmp_path / "rules.py"))
