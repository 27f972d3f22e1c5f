"""Our buffer ends waits that verl's does not: of each pair, the second half is verl's own class."""

from types import SimpleNamespace
from typing import Any

import pytest
import transfer_queue
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from agent_rl.errors import FatalError, UnscoredError
from agent_rl.verl_adapter.failures import FailedSessions
from agent_rl.verl_adapter.replay_buffer import AgentReplayBuffer, watched
from agent_rl.verl_adapter.trained_samples import StepSamples


@pytest.fixture(autouse=True)
def _no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_queue, "kv_clear", lambda **_: None)


class Polled(ReplayBufferAsync):
    """Each poll finds two groups that failed, or in the poll `good` two that finished."""

    polls, good = 0, 0

    def _sync_metadata_from_transfer_queue(self) -> None:
        self.polls += 1
        if self.polls > 20:
            raise StopIteration
        self.failure_keys.clear(), self.finished_keys.clear()
        ended = self.finished_keys if self.polls == self.good else self.failure_keys
        ended["train"].update({"a", "b"})


def make(kind: type[ReplayBuffer]) -> Any:
    return kind("colocate_async", OmegaConf.create(), 8, "drop", OmegaConf.create(), refill_fn=print)


def ours(kind: type[ReplayBuffer]) -> Any:
    groups = {"enable": True, "max_num_gen_batches": 2}
    config = OmegaConf.create({"algorithm": {"filter_groups": groups}, "data": {"train_batch_size": 3}})
    parts = {"config": config, "samples": StepSamples(), "failures": FailedSessions(1), "row_order": None}
    trainer: Any = SimpleNamespace(**parts, reward_loop_manager=SimpleNamespace(reward_loop_worker_handles=None))
    return watched(make(kind), trainer)


def replace(buffer: Any, *steps: tuple[int, int]) -> None:
    """In each step replace a number of groups without a difference in reward."""
    for step, groups in steps:
        buffer._evict_terminal_groups(step, "train", (set(), set(map(str, range(groups))), set(), {}))


def test_filter_limit_stops_a_step_that_only_replaces_groups() -> None:
    buffer = ours(ReplayBuffer)
    replace(buffer, (1, 4), (2, 6))
    with pytest.raises(FatalError, match="step 2 has replaced 7 groups whose samples all got the same reward"):
        replace(buffer, (2, 1))
    replace(make(ReplayBuffer), (1, 70))  # verl's has no limit


def ends(buffer: Any, good: int) -> object:
    buffer.good = good
    try:
        return sorted(buffer.wait_for_sampleable(1, "train", 2)[0])
    except StopIteration:
        return "forever"


@pytest.mark.parametrize("good", [1, 2])
def test_the_asynchronous_buffer_waits_for_what_finishes(good: int) -> None:
    assert ends(ours(Polled), good) == ends(make(Polled), good) == ["a", "b"]


def test_the_asynchronous_buffer_gives_up_when_all_fails() -> None:
    with pytest.raises(UnscoredError, match="no trajectory in this step is usable: 4 groups failed in a row"):
        ends(ours(Polled), 0)
    assert ends(make(Polled), 0) == "forever"


def test_a_buffer_that_is_not_verls_stays_as_it_is() -> None:
    own, trainer = SimpleNamespace(), SimpleNamespace()
    assert watched(own, trainer) is own
    assert not isinstance(own, AgentReplayBuffer)
