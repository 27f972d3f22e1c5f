"""ReMax's trainer side; the greedy episodes themselves run in tests/recipes/test_algorithms.py."""

from pathlib import Path
from typing import Any

import pytest
import torch
import verl
from verl.trainer.ppo.core_algos import compute_remax_outcome_advantage, get_adv_estimator_fn

from agent_rl.preflight.case import RunCase
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.early_checks import remax_baselines
from tests.support.forks import EXTENDED, FORKS

REWARDS = torch.tensor([[0.0, -0.1, 1.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.25]])
MASK = torch.tensor([[1, 0, 1], [1, 1, 0], [1, 1, 1]])
UIDS = ["a", "b", "a"]


def test_the_formula_is_verls_with_each_prompts_own_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remax, "published", lambda: {"b": 0.5, "a": 0.25, "other": 9.0})
    advantages, returns = get_adv_estimator_fn(remax.ESTIMATOR)(
        token_level_rewards=REWARDS, response_mask=MASK, index=UIDS, config=None
    )
    expected = compute_remax_outcome_advantage(REWARDS, torch.tensor([0.25, 0.5, 0.25]), MASK)
    assert torch.equal(advantages, expected[0])
    assert torch.equal(returns, expected[1])
    assert torch.allclose(advantages[0], torch.tensor([0.75, 0.0, 0.75]) * MASK[0] + torch.tensor([0.0, 1.0, 0.0]))


def test_verls_own_estimator_is_still_without_baselines_in_v1() -> None:
    """When this fails, `algo=remax` can use verl's."""
    v1 = Path(verl.__file__).parent / "trainer/ppo/v1"
    assert not [path.name for path in v1.glob("*.py") if "reward_baselines" in path.read_text()]


OURS = f"algorithm.adv_estimator={remax.ESTIMATOR}"
MANAGER = f"+actor_rollout_ref.rollout.agent.agent_loop_manager_class={remax.MANAGER}"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm.adv_estimator=remax"], "Use algo=remax"),
        ([OURS], "Use algo=remax"),
        ([OURS, MANAGER, "reward.reward_model.enable=true"], "enable_resource_pool"),
        ([], ""),
        (["algorithm.adv_estimator=rloo"], ""),
        ([OURS, MANAGER], ""),
    ],
)
def test_missing_baselines_are_noticed_before_the_run(compose: Any, overrides: list[str], message: str) -> None:
    case = RunCase(config=compose(*overrides))
    found = [f"{finding.text}. {finding.remedy}" for finding in remax_baselines(case) if finding.remedy]
    assert message in found[0] if message else not found


PICKLED = """
import sys, warnings
warnings.simplefilter("ignore")
import ray
from ray import cloudpickle
if sys.argv[1] == "dump":
    from agent_rl.verl_adapter.rollout import ReMaxAgentLoopManager
    worker = ray.remote(ReMaxAgentLoopManager.worker)  # as the manager sends it
    cloudpickle.dump(worker.__ray_metadata__.modified_class, open(sys.argv[2], "wb"))
else:
    worker = cloudpickle.load(open(sys.argv[2], "rb"))
    from agent_rl.verl_adapter.rollout import ReMaxAgentLoopWorker
    from agent_rl.verl_adapter.rollout import AgentLoopWorker
    assert {ReMaxAgentLoopWorker, AgentLoopWorker} < set(worker.__mro__)  # what super() refers to
    print([each.__name__ for each in worker.__mro__])
"""


def test_the_worker_reaches_another_process_as_one_family(tmp_path: Path) -> None:
    for task in ("dump", "load"):
        done = FORKS.run(PICKLED, task, str(tmp_path / "worker.pickle"), mode=EXTENDED)
        assert done.returncode == 0, done.stderr
    assert "AgentLoopWorkerTQ" in done.stdout
