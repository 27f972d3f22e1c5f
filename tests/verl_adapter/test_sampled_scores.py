"""Scoring after sampling; the whole way, with a real engine and TransferQueue, runs in tests/e2e."""

from tests.forks import python

SAMPLED = """
from types import SimpleNamespace
from tests.verl_adapter import sessions
sessions.Scripted.scores = False
made = sessions.trainer("colocate_async", "algorithm.adv_estimator=grpo", "reward.reward_manager.name=trajectory")
sessions.submit(made, 3)
batch, _ = made.replay_buffer.sample(1, "train", 2)
manager, seen = made.reward_loop_manager, {}

def score(data):
    seen.update(data.non_tensor_batch)
    return [answer] * len(data)

manager.score_each = manager.compute_rm_score = score
"""

WRITTEN = """
answer = {"reward_score": 0.5, "reward_extra_info": {}}
rows = [sessions.QUEUE.fields["train", key] for key in batch.keys]
for row in rows:
    row["response_mask"] = row["response_mask"].clone()
    row["response_mask"][-1] = 0
made._compute_reward_colocate(batch)
print({(float(row["rm_scores"][-2]), float(row["rm_scores"].sum())) for row in rows})
"""


def test_a_late_reward_stands_on_the_last_token_that_is_trained_on() -> None:
    assert python(SAMPLED + WRITTEN) == "{(0.5, 0.5)}"


HANDED = """
answer = {"reward_score": 0.5, "reward_extra_info": {}}
try:
    made._compute_reward_colocate(batch)
except AttributeError:  # verl expects a batch of scores
    pass
columns = seen.keys() & {"raw_prompt", "uid", "tool_extra_fields", "reward_model", "extra_info"}
"""
TRAJECTORY = "of = seen['tool_extra_fields'][0]['trajectory']\nprint(sorted(columns), of.ground_truth, of.info['step'])"


def test_the_manager_gets_the_trajectory_where_verl_would_hand_over_no_ground_truth() -> None:
    assert python(SAMPLED + HANDED + TRAJECTORY) == "['tool_extra_fields', 'uid'] 42 1"
    assert python(SAMPLED + HANDED + "print(sorted(columns))", plugins="none") == "['raw_prompt']"
