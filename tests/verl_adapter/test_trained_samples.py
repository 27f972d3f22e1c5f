"""A failure costs one sample in every mode, a trajectory counts once: verl's worker, buffers and trainer."""

import json
import statistics
from collections import Counter
from types import SimpleNamespace

import pytest

from agent_rl.trajectory import trace
from agent_rl.trajectory.trace.batches import append_batch, mean_advantage
from agent_rl.verl_adapter import trained_samples
from agent_rl.verl_adapter.algorithms import remax
from tests.support.forks import python

PROMPTS, BATCH = 48, 8
SESSIONS = "import json\nfrom tests.verl_adapter import sessions\n"
RUN = (
    SESSIONS + "print(json.dumps(sessions.steps({mode!r}, {prompts}, {batch}, 'algorithm.adv_estimator={estimator}')))"
)
OUTCOME = SESSIONS + "print(json.dumps([[sessions.survives(p, s) and sessions.reward(p, s) for s in range(sessions.N)]"
OUTCOME += " for p in range({prompts})]))"


def rewards(prompts):
    """Of each prompt those of the samples that survive, by session."""
    found = json.loads(python(OUTCOME.format(prompts=prompts)))
    return [{session: float(each) for session, each in enumerate(its) if each is not False} for its in found]


def run(mode, estimator="grpo", prompts=PROMPTS, plugins="auto"):
    code = RUN.format(mode=mode, prompts=prompts, batch=BATCH, estimator=estimator)
    return json.loads(python(code, plugins=plugins))


def grpo(own, value):
    return (value - statistics.fmean(own)) / (statistics.stdev(own) + 1e-6)


def rloo(own, value):
    return value - (sum(own) - value) / (len(own) - 1)


def check(steps, survivors, expected):
    """What was trained on: whole groups of survivors, once, with the estimator's advantages."""
    names = Counter(key for step in steps for key in step["advantages"])
    assert set(names.values()) == {1}
    trained = {}
    for step in steps:
        for key, values in step["advantages"].items():
            prompt, session, _ = key[1:].split("_")
            trained.setdefault(int(prompt), {}).setdefault(int(session), []).append(values)
    for prompt, sessions in trained.items():
        own = survivors[prompt]
        assert set(sessions) == set(own), prompt
        for session, rows in sessions.items():
            assert len(rows) == 2 - prompt % 2  # its sequences
            for values in rows:
                assert values == pytest.approx([expected(list(own.values()), own[session])] * len(values), abs=1e-4)
    return set(trained)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_every_group_of_two_survivors_is_trained_on_once(mode):
    steps = run(mode)
    survivors = rewards(2 * PROMPTS)
    trained = check(steps, survivors, grpo)
    usable = [prompt for prompt in range(2 * PROMPTS) if len(survivors[prompt]) >= 2]
    assert trained == {prompt for prompt in usable if prompt < PROMPTS} if mode == "sync" else set(usable[:PROMPTS])
    lone = sum(len(its) == 1 for its in survivors[:PROMPTS])
    total = Counter()
    for step in steps:
        metrics = step["metrics"]
        kept = len({key.rpartition("_")[0] for key in step["advantages"]})
        samples = round(kept / metrics["agent/kept_share"])
        total.update({fate: round(samples * metrics[f"agent/{fate}_share"]) for fate in ("kept", "lost", "evicted")})
    submitted = range(max(trained) + 1)
    assert total["lost"] == sum(8 - len(survivors[prompt]) for prompt in submitted)
    assert (lone, total["evicted"]) == (2, 2)
    first = steps[0]["metrics"]
    assert (first["agent/lost_tokens"], first["agent/lost_turns"], first["agent/kept_turns"]) == (9, 2, 1)
    assert first["agent/evicted_turns"] == 1


@pytest.mark.parametrize("estimator", ["rloo", "rloo_vectorized", "agent_rl_turn"])
def test_a_trajectory_of_several_sequences_is_one_member_of_its_group(estimator):
    check(run("sync", estimator, prompts=BATCH), rewards(BATCH), rloo)


IDLE = SESSIONS + (
    "sessions.Scripted.mask = 0\n"
    "made = sessions.trainer('sync', 'data.train_batch_size=2', 'algorithm.adv_estimator={estimator}')\n"
    "sessions.submit(made, 2)\n"
    "rows, _ = made.replay_buffer.sample(1, 'train', 2)\nrows = made._balance_batch(rows, {{}})\n"
    "for key in rows.keys:\n"
    "    row = sessions.QUEUE.fields['train', key]\n"
    "    row |= {{name: row['rm_scores'] * 0 for name in ('values', 'old_log_probs', 'rollout_log_probs')}}\n"
    "made.config.algorithm.rollout_correction.rollout_is = 'token'\n"
    "try:\n    made._compute_advantage(rows, {{}})\nexcept Exception as error:\n    print(error)\nelse:\n"
    "    same = made._update_actor(rows, {{}}) is made._update_critic(rows, {{}}) is rows\n"
    "    print(same, sessions.measured(made, rows)['agent/skipped_updates'])"
)


@pytest.mark.parametrize("estimator", ["gae", "reinforce_plus_plus", "grpo"])
def test_a_batch_without_a_trained_token_makes_no_update(estimator):
    assert python(IDLE.format(estimator=estimator)) == "True 1"


STOPPED = (
    SESSIONS
    + """
from types import SimpleNamespace
from agent_rl.verl_adapter.failures import FailedSessions
made = sessions.trainer("sync", "data.train_batch_size=4")
made.failures = FailedSessions(0.01)
logged = []
made.logger = SimpleNamespace(log=lambda data, step: logged.append([step, data["agent/unscored"]]))
sessions.submit(made, 4)
made.global_steps = 1
rows, _ = made.replay_buffer.sample(1, "train", 4)
rows = made._balance_batch(rows, {})
try: sessions.measured(made, rows)
except Exception as error: print(type(error).__name__, logged)
"""
)


def test_a_step_with_too_many_failures_is_logged_before_the_run_stops():
    assert python(STOPPED) == "UnscoredError [[1, 9]]"


VALIDATION = (
    SESSIONS
    + """
import numpy as np
from types import SimpleNamespace
made = sessions.trainer("sync", "actor_rollout_ref.rollout.val_kwargs.n=8", "trainer.log_val_generations=0")
rows = iter(({lost}, 5, 2))

def generate(batch):
    # Row 3 has no survivor, row 5 one, row 2 those of a good row; verl has given it a uid.
    made.submitted = next(rows)
    uids = batch["uid"]
    sessions.submit(made, 1, validate=True, uids=[str(uid) for uid in uids])

made.agent_loop_manager = SimpleNamespace(generate_sequences=generate)
row = {{"raw_prompt": np.array([["hi"]], dtype=object), "data_source": np.array(["math"], dtype=object)}}
made.val_dataloader = [dict(row) for _ in {batches}]
made.total_training_steps = 1
try:
    print(json.dumps({{key: float(value) for key, value in made._validate().items()}}))
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""
)


def test_a_validation_is_that_of_its_survivors_also_after_a_batch_without_one():
    metrics = json.loads(python(VALIDATION.format(lost=3, batches=[1, 2, 3])))
    survivors = rewards(6)
    rates = [statistics.fmean(survivors[prompt].values()) for prompt in (5, 2)]
    assert metrics["val-core/math/acc/mean@8"] == pytest.approx(statistics.fmean(rates))
    assert metrics["val-core/math/missing"] == 8 + 7 + 8 - len(survivors[2])


def test_a_validation_of_which_nothing_has_a_score_stops_the_run():
    ended = python(VALIDATION.format(lost=3, batches=[1]))
    assert ended.startswith(
        "UnscoredError: no trajectory in this validation is usable: every trajectory failed; 8 failed"
    )


def test_verl_would_end_at_a_batch_without_a_row():
    assert (
        python(VALIDATION.format(lost=3, batches=[1]), plugins="none")
        == "ValueError: keys or partition were not found!"
    )


MEASURED = (
    SESSIONS
    + """
from agent_rl.trajectory.selection import SampleFate
from agent_rl.verl_adapter.trained_samples import finals
made = sessions.trainer("sync", "data.train_batch_size=2", "algorithm.adv_estimator=grpo")
sessions.submit(made, 2)
rows, _ = made.replay_buffer.sample(1, "train", 2)
info = sessions.QUEUE.fields["train", rows.keys[-1]]["extra_fields"]["reward_extra_info"]
info["rare"] = 3.0
kept = len(finals(rows.keys))
tag = {"fatal": False, "validate": False, "bug": "", "fate": "lost", "error": "UnscoredError: away"}
tag |= {"tokens": None, "turns": None}
failed = [f"failed{number}" for number in range(kept + 1)]
tags = [*[tag] * len(failed), tag | {"validate": True}]
sessions.QUEUE.kv_batch_put([*failed, "of a validation"], "agent_rl_errors", tags=tags)
made.samples.left_out += [SampleFate("evicted")] * 2
metrics = sessions.measured(made, rows)
print(metrics["agent/unscored"] - kept, metrics["agent/rare"], sessions.QUEUE.kv_list("agent_rl_errors"))
"""
)


def test_failures_of_a_validation_are_not_the_steps_and_samples_that_are_left_out_count_as_scored():
    assert python(MEASURED) == "1 3.0 {'agent_rl_errors': {}}"


KEYS = ["a_0_0", "a_0_1", "b_1_0", "a_3_0", "c_2_0", "c_2_1"]


def test_a_trajectory_stands_by_its_last_sequence():
    keys = ["u1_0_0", "u1_0_10", "u1_0_9", "u1_1_0", "u2_0_1", "u2_0_0"]
    assert sorted(trained_samples.finals(keys)) == ["u1_0_10", "u1_1_0", "u2_0_1"]


def test_sequences_of_one_trajectory_are_one_sample():
    assert trained_samples.lone(KEYS, 2) == {"b_1_0", "c_2_0", "c_2_1"}
    assert trained_samples.lone(KEYS, 1) == set()
    assert trained_samples.lone(KEYS, 1, {"a": 0.5, "b": 0.0}) == {"c_2_0", "c_2_1"}


@pytest.mark.parametrize(
    ("estimator", "n", "sessions", "failed", "usable"),
    [
        ("grpo", 8, 8, range(6), True),
        ("grpo", 8, 8, range(7), False),
        ("reinforce_plus_plus_baseline", 2, 2, [0], False),
        ("my_estimator", 2, 2, [0], False),
        ("grpo", 1, 1, [], True),
        ("grpo", 1, 1, [0], False),
        ("gae", 4, 4, [0, 1, 2], True),
        ("reinforce_plus_plus", 4, 4, [0, 1, 2, 3], False),
        (remax.ESTIMATOR, 2, 3, [1], True),
        (remax.ESTIMATOR, 2, 3, [1, 2], False),  # the greedy session is not a sample
        (remax.ESTIMATOR, 2, 3, [0], False),  # and there is no baseline without it
    ],
)
def test_a_group_is_kept_while_its_estimator_can_use_it(estimator, n, sessions, failed, usable):
    rollout = SimpleNamespace(rollout=SimpleNamespace(n=n))
    config = SimpleNamespace(algorithm=SimpleNamespace(adv_estimator=estimator), actor_rollout_ref=rollout)
    assert trained_samples.is_usable(failed, sessions, config) is usable


def test_sequences_of_one_trajectory_are_one_fate():
    tags = {key: {"response_len": 10 * (row + 1)} for row, key in enumerate(KEYS)}
    reports = [{"turns": 2}, {"left_out": 1.0}, {"turns": 4}, {}]
    made = trained_samples.samples("kept", tags, reports, [0.0, 1.0, 0.5, 0.25])
    names = list(trained_samples.final_rows(list(tags)))
    assert [(each.group, each.tokens) for each in made] == [
        (name[0], {"a_0": 30, "b_1": 30, "a_3": 40, "c_2": 110}[name]) for name in names
    ]
    assert [each.fate for each in made] == ["kept", "masked", "kept", "kept"]
    assert [each.reward for each in made] == [0.0, 1.0, 0.5, 0.25]
    assert all(each.reward is None for each in trained_samples.samples("stale", tags, reports))


def test_the_mean_of_a_validation_is_that_of_the_survivors():
    uids, expected = ["a", "b", "a", "b", "b"], {("s", "a"): 3, ("s", "b"): 4, ("s", "c"): 2}
    columns = {"acc": [1.0, 0.0, 0.5, 0.0, None], "answer": list("xyxyy")}
    filled, missing = trained_samples.fill_missing_samples(uids, columns, expected)
    assert filled["acc"] == [1.0, 0.0, 0.5, 0.0, None, 0.75, 0.0]
    assert filled["answer"][5:] == ["x", "y"]
    assert filled["uid"] == [*uids, "a", "b"]
    assert missing == {"val-core/s/missing": 4}


def test_the_mean_advantage_of_a_stored_row_is_that_of_its_trained_tokens(tmp_path):
    import torch

    batch = SimpleNamespace(keys=["a_0_0", "b_0_0"], tags=[{}, {}])
    mask = torch.tensor([[1, 0, 0, 1, 1, 0], [1, 1, 0, 0, 1, 0]])
    advantages = torch.tensor([[2.0, 0.7, -0.7, 0.0, -0.5, 3.0], [0.25, 0.25, 9.0, 9.0, 0.25, 9.0]])
    data = SimpleNamespace(batch={"advantages": advantages, "response_mask": mask})
    stored = trace.TrainedBatch(1, 0, *trained_samples._trained_rows(batch, data))
    append_batch(tmp_path / "trace.jsonl", stored)
    rows = trace.read_trained_rows(tmp_path / "trace.jsonl")
    assert rows["a_0"][0].advantage == [2.0, 0.0, 0.0, 0.0, -0.5]
    assert [mean_advantage(rows[id]) for id in ("a_0", "b_0")] == [0.5, 0.25]
    assert mean_advantage([*rows["a_0"], *rows["b_0"]]) == 0.375
    assert mean_advantage([]) is None
