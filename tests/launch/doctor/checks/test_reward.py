from pathlib import Path

import pytest

from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_tokenizer
from agent_rl.launch.doctor.checks import reward
from agent_rl.preflight.check import Status
from agent_rl.rewards.user_function import CUSTOM_FUNCTION
from agent_rl.verl_adapter import early_checks
from tests.launch.doctor.conftest import MakeCase, only, refused

PATH, NAME = f"{CUSTOM_FUNCTION}.path", f"{CUSTOM_FUNCTION}.name"
MANAGER = "reward.reward_manager.name"

pytestmark = pytest.mark.trainer


def test_a_users_reward_function_passes(make_case: MakeCase, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("async def score(solution_str, ground_truth, **rest): return 1\n")
    for keys in ({}, {PATH: str(tmp_path / "mine.py"), NAME: "score"}):
        assert only(early_checks.reward_function(make_case(keys))).status is Status.OK


@pytest.mark.parametrize(
    ("source", "manager", "problem"),
    [
        ("def other(): ...", "trajectory", "'score' cannot be loaded from "),
        ("def score(solution_strs): ...", "naive", "cannot be called by the 'naive' manager"),
        ("def score(solution_str): return solution_str.no", "trajectory", "mine.py:1: AttributeError"),
    ],
)
def test_a_users_reward_function_that_fails_is_refused(
    make_case: MakeCase, tmp_path: Path, source: str, manager: str, problem: str
) -> None:
    (tmp_path / "mine.py").write_text(f"{source}\n")
    keys = {PATH: str(tmp_path / "mine.py"), NAME: "score", MANAGER: manager}
    assert problem in refused(early_checks.reward_function(make_case(keys)))


def test_a_classifier_that_is_here(make_case: MakeCase, tmp_path: Path) -> None:
    make_classifier(tmp_path, make_tokenizer(CORPUS, tmp_path, 512), hidden=48, layers=2)
    verls = {"reward.reward_model.enable": True, "reward.reward_model.model_path": str(tmp_path)}
    for keys in (verls, {"agent_rl.reward.models.nice.path": str(tmp_path)}):
        assert only(reward.models(make_case(keys))).status is Status.OK
