"""Lays out the trajectories of a process as the rows of a batch, with every column that an estimator may read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from verl import DataProto

from agent_rl.trajectory.trace.tokens import sampled_runs
from agent_rl.verl_adapter.certificates.processes import COMPONENTS, OBSERVATION, TabularTrajectory


class TabularRows:
    """The training sequences of all trajectories as padded tensors (rows, tokens); the last row is padding.

    verl stores a trajectory's whole reward on the last sampled token of each of its sequences. The turns' rewards are
    in `turn_records`, in the form that `agent_rl.verl_adapter.algorithms.turns` reads.

    Attributes:
        of_trajectory: the rows of each scored trajectory, by prompt number and trajectory number.
        state_BT: the state of each token.
        action_BT: each token, 0 or 1.
        tensors: the columns of a batch by name.
        baselines_B: the reward of each prompt's greedy trajectory.
    """

    def __init__(
        self, trajectories: Sequence[Sequence[TabularTrajectory]], policy: Any, states: Mapping[str, int]
    ) -> None:
        """Lay out the rows.

        Args:
            trajectories: all trajectories, by prompt.
            policy: the probabilities (states, actions).
            states: the row of `policy` for each state.
        """
        self.of_trajectory: dict[tuple[int, int], list[int]] = {}
        sequences: list[tuple[TabularTrajectory, int]] = []
        for prompt, own in enumerate(trajectories):
            for number, trajectory in enumerate(own):
                if trajectory.is_scored:
                    places = range(len(trajectory.sequences))
                    self.of_trajectory[prompt, number] = [len(sequences) + place for place in places]
                    sequences += [(trajectory, place) for place in places]
        lengths = [len(each.sequences[place]) for each, place in sequences]
        shape = (len(sequences) + 1, max(lengths))
        self.state_BT, self.action_BT, mask_BT, prompts_B1 = (
            torch.zeros(size, dtype=torch.long) for size in (shape, shape, shape, (shape[0], 1))
        )
        rewards_BT, values_BT = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))
        expected = _values(trajectories, policy, states)
        for row, (trajectory, place) in enumerate(sequences):
            for token, (state, action, before) in enumerate(trajectory.sequences[place]):
                if (state, action, before) != OBSERVATION:
                    mask_BT[row, token] = 1
                    self.state_BT[row, token], self.action_BT[row, token] = states[state], action
                    values_BT[row, token] = expected[trajectory.prompt, tuple(trajectory.events[:before])]
            rewards_BT[row, mask_BT[row].nonzero()[-1]] = trajectory.total
        attention_BT = torch.arange(shape[1]) < torch.tensor([*lengths, 1]).unsqueeze(1)
        greedy = [_greedy(own, policy, states) for own in trajectories]
        self.baselines_B = torch.tensor([*(greedy[each.prompt] for each, _ in sequences), 0.0]).to(rewards_BT)
        self.tensors = {
            "response_mask": mask_BT,
            "token_level_rewards": rewards_BT,
            "values": values_BT,
            "old_log_probs": policy[self.state_BT, self.action_BT].log() * mask_BT,
            "sum_pi_squared": policy.square().sum(-1)[self.state_BT] * mask_BT,
            "prompts": prompts_B1,
            "attention_mask": torch.cat([prompts_B1 + 1, attention_BT], dim=1),
        }
        self.columns: dict[str, list[Any]] = {
            name: [*(each.component(name) for each, _ in sequences), 0.0] for name in COMPONENTS
        }
        self.columns["turn_records"] = [*(_record(each, place) for each, place in sequences), None]

    def of_batch(self, batch: Sequence[tuple[int, Sequence[int]]]) -> dict[str, int]:
        """Return the rows of a batch by key; `batch` contains each group's prompt and trajectories."""
        return {
            f"g{group}_{session}_{index}": row
            for group, (prompt, members) in enumerate(batch)
            for session, number in enumerate(members)
            for index, row in enumerate(self.of_trajectory.get((prompt, number), ()))
        }

    def data(self, rows: Mapping[str, int], greedy: bool) -> DataProto:
        """Return rows as verl passes them to an estimator; row -1 is padding, and `greedy` adds baselines."""
        chosen = list(rows.values())
        tensors = {name: tensor[chosen] for name, tensor in self.tensors.items()}
        if greedy:
            tensors["reward_baselines"] = self.baselines_B[chosen]
        columns = {name: np.fromiter((own[row] for row in chosen), dtype=object) for name, own in self.columns.items()}
        columns["uid"] = np.array([key.split("_")[0] for key in rows], dtype=object)
        data: DataProto = DataProto.from_dict(tensors, columns)
        return data


def _values(
    trajectories: Sequence[Sequence[TabularTrajectory]], policy: Any, states: Mapping[str, int]
) -> dict[tuple[int, tuple[int, ...]], float]:
    """Return the expected reward after each prompt and prefix of events, as an exact critic would predict it."""
    sums: dict[tuple[int, tuple[int, ...]], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for trajectory in (each for own in trajectories for each in own if each.is_scored):
        probability = trajectory.chance
        for state, action, _ in trajectory.sampled():
            probability *= float(policy[states[state], action])
        for length in range(len(trajectory.events)):
            total = sums[trajectory.prompt, tuple(trajectory.events[:length])]
            total[0], total[1] = total[0] + probability * trajectory.total, total[1] + probability
    return {prefix: total / probability for prefix, (total, probability) in sums.items()}


def _greedy(trajectories: Sequence[TabularTrajectory], policy: Any, states: Mapping[str, int]) -> float:
    """Return the reward of the trajectory in which each token and event is the most likely one."""
    best = policy.argmax(-1)
    return next(
        each.total
        for each in trajectories
        if each.is_likely and all(action == best[states[state]] for state, action, _ in each.sampled())
    )


def _record(trajectory: TabularTrajectory, place: int) -> dict[str, Any]:
    """Return the record of a training sequence's turns, where each run of sampled tokens is a turn."""
    spans: list[tuple[int, int, int]] = []  # sequence, start, end
    for number, tokens in enumerate(trajectory.sequences):
        spans += [(number, *run) for run in sampled_runs([token != OBSERVATION for token in tokens])]
    rewards = [
        sum(value for number, token, _, value in trajectory.rewards if number == sequence and start <= token < end)
        for sequence, start, end in spans
    ]
    return {
        "turn_spans": [[turn, *span] for turn, (sequence, *span) in enumerate(spans, 1) if sequence == place],
        "turn_rewards": rewards,
        "turn_states": [trajectory.sequences[sequence][start][0] for sequence, start, _ in spans],
    }
