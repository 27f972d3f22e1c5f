"""Each patch works, and is still needed: the second half of each pair fails once verl does the thing itself."""

import pytest

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter import patches
from tests.forks import python


def test_another_verl_is_refused() -> None:
    patches.check_version("0.9.1")
    with pytest.raises(ConfigError, match=r"version 0\.10\.0 is installed, agent_rl extends 0\.9\.1"):
        patches.check_version("0.10.0")


GROUP = (
    "import os, socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); port = s.getsockname()[1]; s.close()\n"
    "os.environ.update(RANK='0', WORLD_SIZE='1', DIST_INIT_METHOD=f'tcp://127.0.0.1:{port}')\n"
    "import verl, torch.distributed as dist\n"
    "from verl.utils.distributed import initialize_global_process_group_ray as init\n"
)


def test_gloo_process_group() -> None:
    assert python(GROUP + "init(); print(dist.get_backend())") == "gloo"


def test_gloo_process_group_is_needed() -> None:
    code = GROUP + "try:\n    init.__wrapped__(); print('started')\nexcept Exception as e: print('refused')"
    assert python(code) == "refused"


LOAD = (
    "import verl\nfrom verl.tools.tool_registry import load_all_tools\n"
    "try: print([t.name for t in load_all_tools('tool_configs/calculator.yaml', None)])\n"
    "except Exception as e: print('cannot')"
)


def test_tool_loading() -> None:
    assert python(LOAD) == "['calculator']"


def test_tool_loading_is_needed() -> None:
    assert python(LOAD, plugins="none") == "cannot"


CHECK = (
    "import verl, hydra\nfrom verl.utils.config import validate_config\n"
    "with hydra.initialize_config_module('verl.trainer.config', version_base=None):\n"
    "    c = hydra.compose('ppo_trainer', ['+agent_rl.budget.max_second=3'])\n"
    "try: validate_config(c, use_reference_policy=False, use_critic=False)\n"
    "except Exception as e: print(e)"
)


def test_early_checks_name_the_key_before_ray_starts() -> None:
    assert "agent_rl.budget.max_second: unknown key (value 3). Did you mean 'max_seconds'?" in python(CHECK)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.adv_estimator=remax", "Use algo=remax"),
        (
            "+agent_rl.reward.overlong={penalty: 1, buffer_tokens: 1000}",
            "1000 is more than data.max_response_length=512",
        ),
        ("+agent_rl.user_sim={user: llm, config: {url: x}}", "agent_rl.user_sim.config: "),
    ],
)
def test_early_checks_know_what_goes_together(override: str, message: str) -> None:
    overrides = f"{override}', 'actor_rollout_ref.rollout.name=sglang"
    assert message in python(CHECK.replace("+agent_rl.budget.max_second=3", overrides))


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


def test_the_critic_would_be_told() -> None:
    assert "no_lora_adapter" in python(REFERENCE, plugins="none")


def test_separate_logging() -> None:
    code = (
        "import verl, inspect\nfrom verl.trainer.ppo.v1 import trainer_separate_async as module\n"
        "module.logger.info('one %s', 'word', flush=True)\n"
        "print('flush=True' in inspect.getsource(module.PPOTrainerSeparateAsync._setup))"
    )
    assert python(code) == "True"  # the second half: it is needed


VALUE_HEAD = (
    "import tempfile, verl, torch\nfrom transformers import AutoConfig\nfrom agent_rl.cpu.tiny_model import *\n"
    "folder = tempfile.mkdtemp()\n"
    "make_model(folder, make_tokenizer(['a'], folder, 260), hidden=16, layers=1, heads=2)\n"
    "from verl.utils import model\n"
    "config = AutoConfig.from_pretrained(folder, num_labels=1)\n"
    "try: print(tuple(model.load_valuehead_model(folder, torch.float32, config, False).score.weight.shape))\n"
    "except RuntimeError as e: print('refused')"
)


def test_value_head_attention() -> None:
    assert python(VALUE_HEAD) == "(1, 16)"


def test_value_head_attention_is_needed() -> None:
    assert python(VALUE_HEAD, plugins="none") == "refused"


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
