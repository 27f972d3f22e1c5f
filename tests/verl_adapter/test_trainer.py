"""The classes under verl's names, a trainer and a sampler of the user."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import transfer_queue
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1 import trainer_base

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter.failures import ERRORS_PARTITION
from agent_rl.verl_adapter.replay_buffer import AgentReplayBuffer
from agent_rl.verl_adapter.trainer import LOOP_MANAGER, MODES, AgentTrainer, with_users_class
from tests.support.forks import python

VERLS = dict(zip(("sync", "colocate_async", "separate_async"), MODES, strict=True))
SMALL = (
    *("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2"),
    *("actor_rollout_ref.rollout.nnodes=1", "actor_rollout_ref.rollout.n_gpus_per_node=1"),
    *("actor_rollout_ref.rollout.checkpoint_engine.backend=nccl", "trainer.v1.separate_async.parameter_sync_step=1"),
)
USERS = """
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from agent_rl.verl_adapter.trainer import AgentTrainer

class Ours(AgentTrainer):
    def estimate_advantages(self, data, *args, **kwargs):
        return f"those of {data}"

class Verls(PPOTrainer):
    def on_step_end(self):
        super().on_step_end()

class Sync(PPOTrainerSync): ...

class NoTrainer: ...

class Sampler(ReplayBuffer):
    def _select_prompt_uids(self, *args): ...

class Own:
    def __init__(self, trainer_mode, **kwargs):
        self.kwargs = sorted(kwargs)
"""


@pytest.fixture(autouse=True)
def _verls_estimation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that is constructed replaces this function of verl."""
    name = "compute_advantage_for_multi_trajectories"
    monkeypatch.setattr(trainer_base, name, getattr(trainer_base, name))


@pytest.fixture
def config(compose, tmp_path):  # type: ignore[no-untyped-def]
    """Makes the configuration of a mode, with a class of the user if one is named."""
    (tmp_path / "mine.py").write_text(USERS)

    def make(mode: str = "sync", trainer: str = "", sampler: str = "") -> DictConfig:
        sampling = f"trainer.v1.sampler.custom_sampler={{path: {tmp_path}/mine.py, name: {sampler}}}"
        made = compose(*SMALL, f"trainer.v1.trainer_mode={mode}", *([sampling] if sampler else []))
        if trainer:
            OmegaConf.update(made, "agent_rl.trainer_class", f"{tmp_path}/mine.py:{trainer}", force_add=True)
        return made

    return make


def construct(config: DictConfig) -> Any:
    return trainer_base.get_trainer_cls(config.trainer.v1.trainer_mode)(config)


def before_the_run(config: DictConfig) -> None:
    with_users_class(trainer_base.get_trainer_cls(config.trainer.v1.trainer_mode), config)


def names(instance: object) -> list[str]:
    return [cls.__name__ for cls in type(instance).__mro__[:-3]]  # without PPOTrainer, ABC and object


@pytest.mark.parametrize("mode", VERLS)
def test_ours_stands_before_verls_under_each_of_its_names(config: Any, mode: str) -> None:
    trainer, manager = construct(config(mode)), "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
    verls = VERLS[mode]
    assert type(trainer).__mro__[1:3] == (AgentTrainer, verls)
    assert names(trainer) == [verls.__name__, "AgentTrainer", verls.__name__]
    assert OmegaConf.select(trainer.config, manager) == LOOP_MANAGER
    made = config(mode)
    OmegaConf.update(made, manager, "mine.Manager", force_add=True)  # the user's stays
    assert OmegaConf.select(construct(made).config, manager) == "mine.Manager"


@pytest.mark.parametrize("mode", VERLS)
def test_a_users_trainer_of_ours_stands_before_the_modes_class_and_one_of_verls_behind_ours(
    config: Any, mode: str
) -> None:
    trainer, verls = construct(config(mode, "Ours")), VERLS[mode].__name__
    assert names(trainer) == ["Ours", "Ours", verls, "AgentTrainer", verls]
    compute: Any = trainer_base.compute_advantage_for_multi_trajectories
    assert compute("a batch") == trainer.advantages == "those of a batch"
    for name in ("Verls", *(["Sync"] if mode == "sync" else [])):
        trainer = construct(config(mode, name))
        assert names(trainer) == [name, verls, "AgentTrainer", name, name, verls]
        assert isinstance(trainer.replay_buffer, AgentReplayBuffer)


@pytest.mark.parametrize(
    ("mode", "name", "message"),
    [
        ("colocate_async", "Sync", r"'.*mine.py:Sync' is a PPOTrainerSync, but trainer\.v1\.trainer_mode=colocate"),
        ("sync", "NoTrainer", r"'.*mine.py:NoTrainer' is not a trainer\. Derive it from agent_rl\..*AgentTrainer"),
        ("sync", "Missing", "Missing"),
    ],
)
def test_a_class_of_another_mode_and_what_is_not_a_trainer_are_refused(
    config: Any, mode: str, name: str, message: str
) -> None:
    for refuse in (before_the_run, construct):
        with pytest.raises(ConfigError, match=message) as caught:
            refuse(config(mode, name))
        assert "agent_rl.trainer_class" in str(caught.value)
    if name == "Sync":
        assert re.search("Derive it from agent_rl's AgentTrainer.* or change the mode", str(caught.value))


@pytest.mark.filterwarnings("ignore:.*load_extern_type:FutureWarning")  # verl's own call
def test_a_sampler_of_the_user_is_watched_if_it_is_verls(config: Any) -> None:
    buffer = construct(config(sampler="Sampler")).replay_buffer
    assert [cls.__name__ for cls in type(buffer).__mro__] == [
        *("Sampler", "AgentReplayBuffer", "Sampler", "ReplayBuffer", "object"),
    ]
    assert buffer.trainer_mode == "sync"
    own = construct(config(sampler="Own")).replay_buffer
    assert [cls.__name__ for cls in type(own).__mro__] == ["Own", "object"]
    assert "refill_fn" in own.kwargs


GARBAGE = """
import gc, verl
from tests.verl_adapter.trainers import make
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

made = make()
PPOTrainer.init = lambda self: None
gc.collect()  # as during the import of many libraries
made.init()
class Cycle: pass
for _ in range(30):
    old = [Cycle() for _ in range(1000)]
    for each in old: each.itself = each
    gc.collect(1)  # from now on, only a full collection finds them
    del old, each
    for _ in range(30_000):
        new = []; new.append(new)
living = sum(isinstance(each, Cycle) for each in gc.get_objects())
print(gc.get_freeze_count() > 100_000, living < 15_000)
"""


def test_a_resumed_run_does_not_count_the_failures_that_it_counted_before(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored = {name: {"u_0": {"validate": False}} for name in (ERRORS_PARTITION, "val", "train")}
    monkeypatch.setattr(trainer_base.PPOTrainer, "_load_checkpoint", lambda self: None)
    monkeypatch.setattr(transfer_queue, "kv_list", lambda name: {name: dict(restored[name])})
    monkeypatch.setattr(transfer_queue, "kv_clear", lambda keys, partition_id: restored.pop(partition_id))
    trainer = construct(config("colocate_async"))
    trainer.train_dataloader = SimpleNamespace(next_iter_state=None)
    trainer._load_checkpoint()
    assert list(restored) == ["train"]


def test_a_dump_has_the_numbers_that_any_trajectory_reports(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dumped: dict[str, Any] = {}
    monkeypatch.setattr(trainer_base.PPOTrainer, "_dump_generations", lambda self, **columns: dumped.update(columns))
    trainer = construct(config())
    trainer._reports = {"a_0": {"acc": 1.0}, "a_1": {"acc": 0.0, "parsed": 1.0}}
    trainer._dump_generations(reward_extra_infos_dict={"uid": ["a_0_0", "a_1_0"]})
    columns = dumped["reward_extra_infos_dict"]
    assert columns == {"uid": ["a_0_0", "a_1_0"], "acc": [1.0, 0.0], "parsed": [None, 1.0]}


def test_the_trainer_rarely_looks_for_garbage() -> None:
    """And never at what it has loaded; yet the cycles of a long run do not pile up."""
    assert python(GARBAGE).splitlines()[-1] == "True True"
