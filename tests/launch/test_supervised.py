"""What the SFT trainer is started with are keys that verl has."""

import pytest
from hydra import compose, initialize_config_module

from agent_rl.launch.supervised import CPU, FIXED

pytestmark = pytest.mark.trainer


def test_every_key_is_one_of_verls():
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("sft_trainer_engine", [*FIXED, *CPU])
    assert config.engine.strategy == "fsdp2"
    assert config.trainer.device == "cpu"
    assert config.data.custom_cls.name == "EpisodeDataSet"
