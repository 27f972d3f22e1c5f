"""A run in tests/e2e/test_stops.py is stopped, saved and goes on; here is that verl does not save by itself."""

from tests.forks import python

SAVES = """
import verl, inspect
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.constants_ppo import PPO_RAY_RUNTIME_ENV as env
fit = inspect.unwrap(PPOTrainer.fit)
source = inspect.getsource(fit)
print("except" in source, fit is not PPOTrainer.fit, "AGENT_RL_COMMAND" in env["env_vars"], all(
    each in source for each in ("<= self.total_training_steps:", "% self.config.trainer.save_freq == 0",
                                "self.config.trainer.test_freq > 0")))
"""


def test_a_stopped_run_is_saved_by_agent_rl_and_would_not_be_by_verl() -> None:
    assert python(SAVES) == "False True True True"  # what makes a step the last one, and nothing else does
    assert python(SAVES, plugins="none") == "False False False True"
