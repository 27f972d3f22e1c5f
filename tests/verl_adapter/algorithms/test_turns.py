"""Turns of a batch: what a loop sends, and what each row's tokens get."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agent_rl.agents.policies.token_policy import TrainingSequence
from agent_rl.settings import GigpoSettings
from agent_rl.trajectory import StopReason, Trajectory, Turn
from agent_rl.verl_adapter.algorithms import gigpo, turn
from agent_rl.verl_adapter.algorithms.turns import (
    RECORDS,
    TurnTable,
    credit_fields,
    turn_level_advantages,
    turn_states,
)


def batch(masks, rewards, records=None, **more):
    """Rows of tokens, as verl pads them."""
    tensors = {"response_mask": torch.tensor(masks), "token_level_rewards": torch.tensor(rewards), **more}
    columns = {}
    if records is not None:
        columns[RECORDS] = np.fromiter(records, dtype=object, count=len(records))
    return SimpleNamespace(batch=tensors, non_tensor_batch=columns, meta_info={})


def record(*spans, states=(), rewards=None):
    found = {"turn_spans": [list(span) for span in spans], "turn_states": list(states)}
    return found if rewards is None else found | {"turn_rewards": rewards}


def advantages(data, keys, estimator=turn.ESTIMATOR, **options):
    return turn_level_advantages(data, keys, estimator, **options).batch["advantages"].tolist()


def test_every_token_of_a_turn_gets_its_advantage_and_other_tokens_get_none():
    masks = [[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]]
    rewards = [[0.0, 0, 0, 3, 0], [1.0, 0, 0, 0, 0]]
    records = [record((1, 0, 2), (2, 3, 4), states="ab", rewards=[2.0, 0.0]), record((1, 0, 1), states="a")]
    # Rewards [2, 1] and [1]; to go [3, 1] and [1].
    found = advantages(batch(masks, rewards, records), ["p_0_0", "p_1_0"])
    assert found == [[2, 2, 0, 1, 0], [-2, 0, 0, 0, 0]]


def test_turns_are_counted_by_trajectory_and_not_by_row():
    masks = [[1, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]]
    rewards = [[0.0, 0, 5], [0.0, 0, 5], [0.0, 0, 1], [9.0, 9, 9]]  # verl copies the reward to each sequence
    states = ["a", "b", "c"]
    records = [
        record((1, 0, 1), (2, 2, 3), states=states),
        record((3, 1, 3), states=states, rewards=[1.0, 0.0, 0.0]),
        record((1, 0, 1), (2, 2, 3), states="ab", rewards=[0.0, 1.0]),
        None,
    ]
    data = batch(masks, rewards, records)
    keys = ["p_0_0", "p_0_1", "p_1_0", "pad_0_0"]
    table = TurnTable.from_batch(data, keys)
    assert [own.tolist() for own in table.rewards] == [[1, 0, 4], [0, 1]]
    # To go: [5, 4, 4] and [1, 1]; alone in turn 3.
    assert advantages(data, keys) == [[4, 0, 3], [0, 4, 4], [-4, 0, -3], [0, 0, 0]]


def test_turns_that_are_not_trained_on_still_count():
    masks = [[0, 0, 1, 0], [1, 0, 0, 0]]
    records = [record((1, 0, 1), (2, 2, 3), (3, 3, 9), states="abc"), record((1, 0, 1), (2, 2, 3), states="ab")]
    data = batch(masks, [[0.0, 0, 2, 0], [1.0, 0, 0, 0]], records)
    assert [own.tolist() for own in TurnTable.from_batch(data, ["p_0_0", "p_1_0"]).rewards] == [[0, 0, 2], [0, 1]]
    assert advantages(data, ["p_0_0", "p_1_0"]) == [[0, 0, 1, 0], [-1, 0, 0, 0]]


def test_a_loop_that_sends_no_turns_has_one_for_each_run_of_sampled_tokens():
    masks = [[1, 1, 0, 1], [1, 0, 1, 0], [1, 1, 1, 1]]
    rewards = [[0.0, 2, 0, 1], [0.0, 0, 4, 0], [0.0, 0, 0, 1]]
    keys = ["p_0_0", "p_1_0", "p_1_1"]
    table = TurnTable.from_batch(batch(masks, rewards), keys)
    assert table.turns_BT.tolist() == [[1, 1, 0, 2], [1, 0, 2, 0], [3, 3, 3, 3]]
    assert [own.tolist() for own in table.rewards] == [[2, 1], [0, 0, 1]]


def test_a_kl_penalty_is_taken_from_the_turn_of_its_token():
    masks = [[1, 0, 1], [1, 1, 0]]
    scores = torch.tensor([[0.0, 0, 1], [0.0, 1, 0]])
    penalties = torch.tensor([[0.25, 0, 0.5], [0, 0.125, 0]])
    records = [record((1, 0, 1), (2, 2, 3), states="ab"), record((1, 0, 2), states="a")]
    data = batch(masks, (scores - penalties).tolist(), records, token_level_scores=scores)
    table = TurnTable.from_batch(data, ["p_0_0", "p_1_0"])
    assert [own.tolist() for own in table.rewards] == [[-0.25, 0.5], [0.875]]


def test_gigpo_reads_its_settings_and_reports_states_seen_once():
    records = [record((1, 0, 1), (2, 2, 3), states="ab"), record((1, 0, 1), (2, 2, 3), states="ac")]
    data = batch([[1, 0, 1]] * 2, [[0.0, 0, 1], [0.0, 0, 3]], records)
    data.meta_info["gigpo"] = GigpoSettings(weight=2.0, discount=1.0)
    assert advantages(data, ["p_0_0", "p_1_0"], gigpo.ESTIMATOR, norm_adv_by_std_in_grpo=False) == [
        [-3, 0, -1],
        [3, 0, 1],
    ]
    assert data.meta_info["metrics"] == {"agent/lone_states": 0.5}


def trajectory(*turns, **info):
    return Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, turns=list(turns), id="t", info=info)


def seen(observation, text="go", **notes):
    return Turn(text, observation=observation, notes=notes)


def test_equal_observations_are_equal_states_unless_their_history_counts():
    first, second = (trajectory(seen("hall", text), seen("hall"), seen(None)) for text in ("left", "right"))
    assert turn_states(first) == turn_states(second)
    assert len(set(turn_states(first))) == 2
    histories = turn_states(first, 1), turn_states(second, 1)
    assert histories[0][0] == histories[1][0]
    assert histories[0][1] != histories[1][1]
    assert len(set(histories[0])) == 3


def test_the_environments_names_of_states_come_first_and_last_until_the_next():
    named = trajectory(seen("x", state=[0, 1]), seen("error"), seen("y", state=[0, 0]), seen(None), state=[0, 0])
    start, moved, same, back = turn_states(named)
    assert (start, moved) == (back, same)
    assert start != moved


def test_a_turn_without_an_observation_has_a_state_of_its_own():
    assert len(set(turn_states(trajectory(seen(None), seen(None), seen(None))))) == 3


@pytest.mark.parametrize("fold", [True, False])
def test_notes_of_a_fold_belong_to_the_turn_before_them(fold):
    turns = [seen("x", **({"fold": {}} if fold else {})), seen(None)]
    sequence = TrainingSequence([], [], [], None, [], ((1, 0, 3), (2, 4, 6), (3, 7, 8)))
    spans = credit_fields(sequence, trajectory(*turns), 0)["turn_spans"]
    assert spans == [[1, 0, 3], [1 if fold else 2, 4, 6], [2, 7, 8]]
