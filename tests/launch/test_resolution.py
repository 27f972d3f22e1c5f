from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agent_rl.launch.composition import compose, problems, resolved

pytestmark = pytest.mark.slow

GSM8K = Path(__file__).parents[2] / "recipes/gsm8k_calculator"


def test_a_recipe_resolves() -> None:
    config = compose(GSM8K, ["trainer.project_name=mine"])
    assert problems(config) == []
    plain = resolved(config)
    assert plain["trainer"]["default_local_dir"] == "outputs/gsm8k_calculator/checkpoints"
    assert "${" not in str(plain)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.train_files=${oc.env:AGENT_RL_UNSET}", "data.train_files: Environment variable 'AGENT_RL_UNSET'"),
        ("data.train_files=[a,'${oc.env:AGENT_RL_UNSET}']", "data.train_files.1: Environment variable"),
        ("trainer.project_name=${nothing.here}", "trainer.project_name: Interpolation key 'nothing.here' not found"),
        ("trainer.project_name=${oc.foo:a}", "trainer.project_name: Unsupported interpolation type oc.foo"),
        ("actor_rollout_ref.rollout.name=???", "actor_rollout_ref.rollout.name: verl needs a value"),
        ("reward.reward_model.enable=true", "reward.reward_model.rollout.name: verl needs a value"),
    ],
)
def test_what_is_missing_is_named_once_and_where_it_is_written(
    override: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERL_PLATFORM")  # on a CPU the reward model has an engine
    config = compose(GSM8K, [override])
    (problem,) = problems(config)  # trainer.default_local_dir refers to project_name, and is not to blame
    assert str(problem).startswith(message)
    assert resolved(config)["trainer"]["total_epochs"]


def test_what_cannot_be_resolved_stays_as_it_is_written() -> None:
    config = OmegaConf.create({"a": {"b": "${c}-${d}", "e": "???"}, "c": 1})
    assert resolved(config) == {"a": {"b": "${c}-${d}", "e": "???"}, "c": 1}
