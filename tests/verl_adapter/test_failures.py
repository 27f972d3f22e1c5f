"""Each works, and is still needed: the second half of each pair fails once verl does the thing itself."""

from contextlib import nullcontext

import pytest

from agent_rl.errors import FatalError, UnscoredError
from agent_rl.user_code import RepeatedBugs
from agent_rl.verl_adapter import failures
from agent_rl.verl_adapter.failures import require_scored
from tests.forks import python

FILTER = (
    "import verl, hydra\nfrom types import SimpleNamespace\nfrom verl.trainer.ppo.v1.trainer_base import PPOTrainer\n"
    "with hydra.initialize_config_module('verl.trainer.config', version_base=None):\n"
    "    c = hydra.compose('ppo_trainer', ['data.train_batch_size=3', 'algorithm.filter_groups.enable=true',"
    " 'algorithm.filter_groups.max_num_gen_batches=2'])\n"
    "t = SimpleNamespace(config=c, trainer_mode='sync', _add_prompts_to_generate=print,"
    " _resolve_filter_groups_metric=lambda: 'reward')\n"
    "b = PPOTrainer._build_replay_buffer(t)\n"
    "b._clear_groups = lambda *args: None\n"  # the TransferQueue's part
    "def replace(step, count): b._evict_terminal_groups(step, 'train', (set(), set(range(count)), set(), {}))\n"
    "replace(1, 4); replace(2, 6)\n"
    "try: replace(1, 3); print('goes on')\n"
    "except Exception as e: print(e)"
)


def test_filter_limit_stops_a_step_that_only_replaces_groups() -> None:
    assert "step 1 has replaced 7 groups whose samples all got the same reward" in python(FILTER)


def test_filter_limit_is_needed() -> None:
    assert python(FILTER, plugins="none") == "goes on"


ASYNC = """
import verl
from verl.trainer.ppo.v1 import replay_buffer as module
from agent_rl.errors import FatalError, UnscoredError
from agent_rl.user_code import RepeatedBugs
from agent_rl.verl_adapter import failures

class Polled(module.ReplayBufferAsync):
    # Each poll finds two groups that failed, or in the poll `good` two that finished.
    def _sync_metadata_from_transfer_queue(self):
        self.polls += 1
        if self.polls > 20:
            raise StopIteration
        self.failure_keys.clear(), self.finished_keys.clear()
        ended = self.finished_keys if self.polls == self.good else self.failure_keys
        ended["train"].update({"a", "b"})

def ends(good):
    buffer = Polled("colocate_async", {}, 8, "drop", {}, refill_fn=print)
    buffer.polls, buffer.good = 0, good
    try:
        return sorted(buffer.wait_for_sampleable(1, "train", 2)[0])
    except UnscoredError as error:
        return str(error)
    except StopIteration:
        return "for ever"

module.tq.kv_clear = lambda **what: None  # there is no queue to clear
print([ends(good) for good in (0, 1, 2)])
"""


def test_the_asynchronous_buffer_gives_up_when_all_fails() -> None:
    gave_up = "no trajectory of the step is usable: 4 groups failed in a row"
    assert python(ASYNC) == str([gave_up, ["a", "b"], ["a", "b"]])


def test_the_asynchronous_buffer_would_go_on_for_ever() -> None:
    assert python(ASYNC, plugins="none") == str(["for ever", ["a", "b"], ["a", "b"]])


def test_errors_of_every_owner_are_told_apart() -> None:
    code = (
        "import verl\nfrom agent_rl.verl_adapter.failures import _is_fatal, _reason\n"
        "from agent_rl.errors import *\nfrom ray.exceptions import RayTaskError\n"
        "import verl.experimental.agent_loop\n"
        "remote = RayTaskError('compute_score', 'traceback', ConfigError('key', 'wrong', 'Fix it'))\n"
        'lost = AssertionError("Agent loop react_agnt not registered, registered agent loops: dict_keys([])")\n'
        "cases = [remote, remote.as_instanceof_cause(), FatalError('x'), lost, UnscoredError('x'), ValueError('x')]\n"
        "assert \"Did you mean 'react_agent'\" in _reason(lost), _reason(lost)\n"
        "assert _reason(remote.as_instanceof_cause()) == 'key: wrong. Fix it'\n"
        "print([_is_fatal(e) for e in cases])"
    )
    assert python(code) == "[True, True, True, True, False, False]"


@pytest.mark.parametrize(("share", "failed", "stops"), [(0.5, 4, False), (0.5, 5, True), (0, 1, True), (1, 4, False)])
def test_too_large_a_share_without_a_score_stops_the_run(share: float, failed: int, stops: bool) -> None:
    config = {"agent_rl": {"reward": {"max_unscored_share": share}}}
    errors = ["the judge is away"] * (failed - 1) + ["half a body"]
    with pytest.raises(UnscoredError) if stops else nullcontext() as caught:
        require_scored(config, 4, errors)
    if stops:
        assert f"{failed} of {4 + failed} trajectories" in str(caught.value)
        assert f"{failed - 1} times: the judge is away" in str(caught.value) or failed == 1


def test_what_workers_report_is_counted_once_over_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_bugs", RepeatedBugs())
    monkeypatch.setattr(failures, "_counted", set())
    tags = {f"key {n}": {"error": "tool x failed", "fatal": False, "bug": "KeyError at x.py:3 (ab)"} for n in range(8)}
    first = dict(list(tags.items())[:4])
    for failed in ({}, first, first, {**first, "other": {"error": "the judge is away", "fatal": False, "bug": ""}}):
        failures.require_working(failed)
    with pytest.raises(FatalError, match=r"tool x failed\. This has happened 8 times"):
        failures.require_working(dict(list(tags.items())[4:]))
    with pytest.raises(FatalError, match=r"^wrong key$"):
        failures.require_working({"key": {"error": "wrong key", "fatal": True}})


def test_verl_still_says_by_an_argument_whether_a_session_is_of_a_validation() -> None:
    code = (
        "import inspect, verl.experimental.agent_loop.agent_loop as m\n"
        "arguments = inspect.signature(m.AgentLoopWorker._run_agent_loop).parameters\n"
        "print('trajectory' in arguments, arguments['kwargs'].kind.name)"
    )
    assert python(code, plugins="none") == "True VAR_KEYWORD"
