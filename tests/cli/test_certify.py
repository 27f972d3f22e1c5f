"""`agent-rl certify algo`: the exit code and the data of a user's function."""

import json
from pathlib import Path

import pytest

from tests.support.cli import invoke, shown

pytestmark = pytest.mark.trainer

SQUARED = """
def advantages(token_level_rewards, response_mask, index, **_):
    values = token_level_rewards.sum(-1, keepdim=True) ** 2 * response_mask
    return values, values
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the variables that the command sets back after the test."""
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setenv("VERL_LOGGING_LEVEL", "WARNING")


def test_a_biased_function_of_the_user_is_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SQUARED)
    result = invoke("certify", "algo", "--json", "--estimator", f"{tmp_path}/mine.py:advantages")
    assert result.exit_code == 1, result.output
    (certificate,) = json.loads(result.stdout)["certificates"]
    assert certificate["verdict"] == "biased"
    assert certificate["cosine"] < 0.8


def test_a_built_in_algorithm_is_exit_code_0_whatever_its_verdict() -> None:
    assert "heuristic" in shown("certify", "algo", "grpo_passk")
