"""The trainer refuses a bug in a user's own files before it starts Ray, with file and line."""

from pathlib import Path
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf
from verl.utils.config import validate_config

from agent_rl.errors import FatalError
from agent_rl.launch.composition import compose
from tests.user_bugs import BUGS, Bug, write


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")


def validate(folder: Path) -> None:
    """What `agent-rl train` does, and then verl's `main` before it starts Ray."""
    config: Any = compose(folder)
    OmegaConf.resolve(config)
    validate_config(config, use_reference_policy=False, use_critic=False)


def test_the_files_without_a_bug_pass(tmp_path: Path) -> None:
    validate(write(tmp_path))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_refused_with_its_line(tmp_path: Path, bug: Bug) -> None:
    with pytest.raises(FatalError) as caught:
        validate(write(tmp_path / bug.name.replace(" ", "_"), bug))
    assert bug.place in str(caught.value)
    assert bug.says in str(caught.value)


ASKS_RAY = """
import ray

def score(solution_str, ground_truth):
    return float(bool(ray.get_runtime_context().get_node_id()))
"""


def test_code_that_asks_ray_does_not_leave_it_started_without_the_runs_environment(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (tmp_path / "asks_ray.py").write_text(ASKS_RAY)
    config: Any = compose(folder, [f"reward.custom_reward_function.path={tmp_path}/asks_ray.py",
                                   "reward.custom_reward_function.name=score"])  # fmt: skip
    OmegaConf.resolve(config)
    validate_config(config, use_reference_policy=False, use_critic=False)
    assert not ray.is_initialized()
