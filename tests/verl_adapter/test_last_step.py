"""A run in tests/e2e/test_stops.py is stopped, saved and goes on; here is that verl does not save by itself."""

from tests.forks import python

SAVES = """
import verl, inspect
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.constants_ppo import PPO_RAY_RUNTIME_ENV as env
fit = inspect.unwrap(PPOTrainer.fit)
print("except" in inspect.getsource(fit), fit is not PPOTrainer.fit, "AGENT_RL_COMMAND" in env["env_vars"])
"""


def test_a_stopped_run_is_saved_by_agent_rl_and_would_not_be_by_verl() -> None:
    assert python(SAVES) == "False True True"
    assert python(SAVES, plugins="none") == "False False False"
