"""Each patch works, and is still needed: the second half of each pair fails once verl does the thing itself."""

import pytest

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter import patches
from tests.forks import python


def test_another_verl_is_refused() -> None:
    patches.check_version("0.9.1")
    with pytest.raises(ConfigError, match=r"version 0\.10\.0 is installed, agent_rl extends 0\.9\.1"):
        patches.check_version("0.10.0")


LOAD = (
    "import verl\nfrom verl.tools.tool_registry import load_all_tools\n"
    "try: print([t.name for t in load_all_tools('tool_configs/calculator.yaml', None)])\n"
    "except Exception as e: print('cannot')"
)


def test_tool_files_are_read_by_agent_rl() -> None:
    assert python(LOAD) == "['calculator']"


def test_verl_would_not_read_our_tool_files() -> None:
    assert python(LOAD, plugins="none") == "cannot"


REFERENCE = """
import verl
from types import SimpleNamespace
from verl.trainer.ppo.v1 import trainer_base as module

class Batch(SimpleNamespace):
    def __len__(self):
        return 1

class Data(dict):
    def select(self, *keys):
        return self

class Actor:
    def compute_log_prob(self, batch):
        self.without_adapter = batch.extra_info["no_lora_adapter"]
        return ["done"]

queue = {"kv_batch_get": lambda **what: Data(log_probs=0, response_mask=0), "kv_batch_put": lambda **what: None}
module.tq, module.response_from_nested = SimpleNamespace(**queue), lambda values, mask: values
actor, batch = Actor(), Batch(keys=["a"], partition_id="train", extra_info={})
config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(temperature=1.0)))
trainer = SimpleNamespace(config=config, ref_in_actor=True, actor_rollout_wg=actor)
module.PPOTrainer._compute_ref_log_prob(trainer, batch, {})
print(actor.without_adapter, sorted(batch.extra_info))
"""


def test_the_critic_is_not_told_of_the_reference_pass() -> None:
    assert python(REFERENCE) == "True ['calculate_entropy', 'compute_loss', 'temperature']"


def test_the_critic_would_get_the_flag_of_the_reference_pass() -> None:
    assert "no_lora_adapter" in python(REFERENCE, plugins="none")


def test_a_log_call_with_flush_is_accepted_and_verl_still_makes_it() -> None:
    code = (
        "import verl, inspect\nfrom verl.trainer.ppo.v1 import trainer_separate_async as module\n"
        "module.logger.info('one %s', 'word', flush=True)\n"
        "print('flush=True' in inspect.getsource(module.PPOTrainerSeparateAsync._setup))"
    )
    assert python(code) == "True"  # the second half: it is needed


def test_step_metrics_and_session_errors_are_needed() -> None:
    """What they do is seen in tests/e2e; this is when they can go."""
    code = (
        "import inspect\nfrom verl.trainer.ppo.v1 import agent_loop_tq, replay_buffer, trainer_base\n"
        "metrics = inspect.getsource(trainer_base.PPOTrainer._compute_metrics)\n"
        "settle = inspect.getsource(agent_loop_tq._settle_session_tasks)\n"
        "sample = inspect.getsource(replay_buffer.ReplayBuffer.sample)\n"
        "print('reward_extra_info' in metrics, 'kv_put' in settle, 'partition_id != \"val\" and not any' in sample)"
    )
    assert python(code, plugins="none") == "False False True"


IMPORT = (
    "try: from verl.experimental.agent_loop import register_agent_loop\n"
    "except ImportError as error: print(error)\n"
    "else: print('imported')"
)


def test_a_name_that_is_gone_says_what_to_import() -> None:
    assert python(IMPORT) == (
        "verl 0.9 has no register_agent_loop in verl.experimental.agent_loop. "
        "Write: from agent_rl import register_agent_loop"
    )


def test_verl_would_say_only_that_the_name_is_gone() -> None:
    assert "cannot import name" in python(IMPORT, plugins="none")


def test_other_names_are_absent_as_ever() -> None:
    code = "import verl.experimental.agent_loop as m; print(hasattr(m, 'no_such_name'), hasattr(m, 'AgentLoopBase'))"
    assert python(code) == "False True"
