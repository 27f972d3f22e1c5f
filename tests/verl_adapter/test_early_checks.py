import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf
from verl.utils.config import validate_config

from agent_rl.errors import FatalError
from agent_rl.launch.composition import compose
from agent_rl.preflight.case import RunCase
from agent_rl.verl_adapter import early_checks
from agent_rl.verl_adapter.algorithms import remax
from tests.support.forks import python
from tests.support.user_bugs import BUGS, write

REWARD = ("served_reward_models", "late_scores", "reward_workers")
SHARED = {"path": "rm", "placement": "shared"}
JUDGE = {"reward__custom_reward_function__path": "judge.py"}


def refused(checks: tuple[str, ...] = REWARD, models: dict[str, Any] | None = None, **keys: Any) -> list[str]:
    """The errors of checks, as the user reads them; `__` in a key is a dot, `verls` is `reward.reward_model`."""
    config = OmegaConf.create(
        {
            "reward": {
                "num_workers": 1,
                "reward_model": {"enable": False, "enable_resource_pool": False, "model_path": "judge"},
                "reward_manager": {"name": "trajectory"},
            },
            "trainer": {"n_gpus_per_node": 4, "nnodes": 1, "v1": {"trainer_mode": "sync"}},
            "agent_rl": {"reward": {"models": models or {}}},
        }
    )
    for key, value in keys.items():
        OmegaConf.update(config, key.replace("__", ".").replace("verls.", "reward.reward_model."), value)
    run: list[Callable[[RunCase], Any]] = [getattr(early_checks, name) for name in checks]
    findings = [finding for check in run for finding in check(RunCase(config=config)) if finding.status.value != "ok"]
    assert all(finding.remedy for finding in findings)
    return [f"{finding.text}. {finding.remedy}" for finding in findings]


def manager(name: str) -> dict[str, str]:
    return {"reward__reward_manager__name": name}


def components(named: dict[str, Any]) -> dict[str, Any]:
    return {"agent_rl__reward__components": named}


GOOD = {"good": {"kind": "reward_model", "config": {"models": {"nice": {}}}}}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        *(
            manager(name) | judge | {"verls__enable": True, "verls__enable_resource_pool": pool}
            for name in ("naive", "trajectory", "mine")
            for pool in (False, True)
            for judge in ({}, JUDGE)
            if (name, pool, judge) != ("naive", False, JUDGE)
        ),
        *(
            {"models": {"a": model}} | judge
            for judge in ({}, JUDGE)
            for model in ({"path": "rm"}, SHARED, {"path": "rm", "n_gpus_per_node": 4, "tensor_parallel_size": 2})
        ),
        {"models": {"nice": {"path": "rm"}}} | components(GOOD),
        manager("naive") | {"reward__num_workers": 0},
        {"verls__enable": True, "reward__num_workers": 0},  # a component asks it
    ],
)
def test_reward_models_that_can_be_used_pass(keys: dict[str, Any]) -> None:
    assert refused(**keys) == []


MODELS = "agent_rl.reward.models"
NO_WORKERS = {"models": {}, "verls__enable": True, "reward__num_workers": 0}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"models": {}, "verls__enable": True, "verls__model_path": None},
            "reward.reward_model.model_path: no reward model is set. Set it to the model's folder or repository",
        ),
        (
            manager("naive") | JUDGE | {"models": {}, "verls__enable": True},
            "reward.reward_model.enable_resource_pool: a model that shares the trainer's GPUs scores after sampling",
        ),
        (manager("naive"), f"{MODELS}: the 'naive' reward manager cannot use these models"),
        ({"models": {"a": SHARED | {"tensor_parallel_size": 3}}}, f"{MODELS}.a.tensor_parallel_size: 3 does not di"),
        ({"models": {"a": {"path": "rm", "tensor_parallel_size": 2}}}, f"{MODELS}.a.tensor_parallel_size: 2 does n"),
        ({"models": {"reward_model": SHARED}, "verls__enable": True}, f"{MODELS}.reward_model: verl's own"),
        ({"algorithm__adv_estimator": remax.ESTIMATOR}, "algorithm.adv_estimator: "),
        ({"algorithm__filter_groups__enable": True}, "algorithm.filter_groups.enable: "),
        ({"trainer__v1__trainer_mode": "separate_async"}, "trainer.v1.trainer_mode: "),
        (
            {"models": {"nicer": {"path": "rm"}}} | components(GOOD),
            "agent_rl.reward.components.good.config.models.nice: this run serves no model 'nice'. "
            f"Set the model's url, or serve the model by {MODELS}.nice.path. Did you mean 'nicer'?",
        ),
        (NO_WORKERS | manager("naive"), "reward.num_workers: 0 reward workers cannot call the reward model"),
        (NO_WORKERS | JUDGE, "reward.num_workers: 0 reward workers cannot call the reward model"),
        (
            {"models": {}, "verls__enable": True, "algorithm__adv_estimator": remax.ESTIMATOR},
            "algorithm.adv_estimator: this setting needs the reward during sampling, but with reward.reward_model",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(keys: dict[str, Any], message: str) -> None:
    (error,) = refused(**({"models": {"a": SHARED}} | keys))
    assert error.startswith(message)


CHECK = """
import hydra, json, verl
from verl.utils.config import validate_config
GIVEN = ["actor_rollout_ref.rollout.name=sglang", "actor_rollout_ref.rollout.tensor_model_parallel_size=1"]
said = []
for overrides in {overrides!r}:
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", [*GIVEN, *overrides])
    try: validate_config(config, use_reference_policy=False, use_critic=False)
    except Exception as error: said.append(str(error))
print(json.dumps(said))
"""
REFUSED = {
    "+agent_rl.budget.max_second=3": "agent_rl.budget.max_second: unknown key (value 3). Did you mean 'max_seconds'?",
    "algorithm.adv_estimator=remax": "Use algo=remax",
    "+agent_rl.reward.overlong={penalty: 1, buffer_tokens: 1000}": "1000 is more than data.max_response_length=512",
    "trainer.nnodes=0": "trainer.nnodes: expected a whole number of 1 or more, got 0",
    "algorithm.adv_estimator=grpoo": "there is no estimator 'grpoo'. Did you mean 'grpo'",
    "reward.reward_manager.name=naiv": "ValueError: Unknown reward manager: naiv. Did you mean 'naive'",
    "+agent_rl.reward.combine=mine.py:total": "agent_rl.reward.combine: 'gdpo' adds the normalized components itself",
    "+agent_rl.user_sim={user: llm, config: {url: x}}": "agent_rl.user_sim.config.url: ",
}
"""An override, and what is said before Ray starts."""


def test_the_trainer_refuses_where_verl_validates() -> None:
    estimator = "algorithm.adv_estimator"
    overrides = [[*([] if estimator in each else [f"{estimator}=gdpo"]), each] for each in REFUSED]
    for said, message in zip(json.loads(python(CHECK.format(overrides=overrides))), REFUSED.values(), strict=True):
        assert message in said


MANAGERS = """
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

class Today(RewardManagerBase):
    async def run_single(self, data):
        return {"reward_score": 0.0, "reward_extra_info": {}}

class Batch:
    def __call__(self, data, return_dict=False):
        return []
"""


def test_a_reward_manager_of_the_user_is_one_of_todays(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MANAGERS)

    def errors(name: str, path: str | None = str(file)) -> list[str]:
        keys = {"reward__reward_manager__source": "importlib", "reward__reward_manager__module__path": path}
        return refused(("reward_manager",), **manager(name), **keys)

    assert errors("Today") == []
    assert "reward.reward_manager.name: 'Batch' is not a subclass of " in errors("Batch")[0]
    assert "reward.reward_manager.name: 'Todai' cannot be loaded: AttributeError" in errors("Todai")[0]
    assert "Module path is required" in errors("Today", None)[0]


def validate(folder: Path, *overrides: str) -> None:
    """What `agent-rl train` does, and then verl's `main` before it starts Ray."""
    config: Any = compose(folder, list(overrides))
    OmegaConf.resolve(config)
    validate_config(config, use_reference_policy=False, use_critic=False)


def test_a_bug_in_the_users_files_is_refused_with_its_line(tmp_path: Path) -> None:
    """tests/launch/doctor/test_user_bugs.py has all kinds of bugs."""
    validate(write(tmp_path / "fine"))
    bug = BUGS[0]
    with pytest.raises(FatalError) as caught:
        validate(write(tmp_path / "bug", bug))
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
    function = "reward.custom_reward_function"
    validate(folder, f"{function}.path={tmp_path}/asks_ray.py", f"{function}.name=score")
    assert not ray.is_initialized()


SHARE, SECONDS = "actor_rollout_ref__rollout__over_sample_rate", "agent_rl__run__max_sampling_s"


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({SHARE: 0.02, SECONDS: 60}, ""),
        ({"trainer__v1__trainer_mode": "colocate_async", SHARE: 0}, ""),
        ({SHARE: 1.0}, "1.0 is not a share of a step's trajectories"),
        ({SHARE: 0.02, "trainer__v1__trainer_mode": "colocate_async"}, "mode=colocate_async does not wait"),
        ({SECONDS: 60, "trainer__v1__trainer_mode": "separate_async"}, "does not wait"),
        ({SHARE: 0.02, "trainer__v1__sampler__sync_refill_failed_groups": True}, "replaces a prompt"),
    ],
)
def test_only_a_mode_that_waits_ends_the_last_sessions(keys: dict[str, Any], error: str) -> None:
    errors = refused(("early_end",), **keys)
    assert len(errors) == bool(error)
    assert error in "".join(errors)
