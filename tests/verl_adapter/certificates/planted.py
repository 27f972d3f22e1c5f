"""Errors that published code has had, each in an estimator; `PLANTED` names the process that each one harms."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.ray_trainer import compute_advantage

from agent_rl.verl_adapter.algorithms.advantages import estimate
from agent_rl.verl_adapter.algorithms.turn import to_go
from agent_rl.verl_adapter.algorithms.turns import TurnTable
from agent_rl.verl_adapter.certificates.gradients import Method
from agent_rl.verl_adapter.certificates.processes import PROCESSES, TabularProcess, TabularTrajectory
from agent_rl.verl_adapter.trained_samples import final_rows


def rloo(data: Any, batch_keys: list[str], **options: Any) -> Any:
    return estimate(data, batch_keys, **{**options, "adv_estimator": "rloo"})


def turn(data: Any, batch_keys: list[str], **options: Any) -> Any:
    return estimate(data, batch_keys, **{**options, "adv_estimator": "agent_rl_turn"})


def to_go_of_tokens(data: Any, batch_keys: list[str], discount: float = 1.0, **_: Any) -> Any:
    """REINFORCE without a baseline: the rewards of the tokens that are sampled from here on."""
    rewards_BT, mask_BT = data.batch["token_level_rewards"], data.batch["response_mask"]
    returns_BT, running_B = torch.zeros_like(rewards_BT), torch.zeros_like(rewards_BT[:, 0])
    for token in reversed(range(rewards_BT.shape[1])):
        is_sampled = mask_BT[:, token].bool()
        running_B = torch.where(is_sampled, rewards_BT[:, token] + discount * running_B, running_B)
        returns_BT[:, token] = running_B * is_sampled
    data.batch["advantages"] = returns_BT
    return data


def mask_shifted(data: Any, batch_keys: list[str], **options: Any) -> Any:
    data = rloo(data, batch_keys, **options)
    data.batch["advantages"] = data.batch["advantages"].roll(1, dims=1)
    return data


def reward_on_an_observation(data: Any, batch_keys: list[str], **options: Any) -> Any:
    data.batch["token_level_rewards"] = data.batch["token_level_rewards"].roll(1, dims=1)
    return to_go_of_tokens(data, batch_keys, **options)


def baseline_with_the_sample(data: Any, batch_keys: list[str], **options: Any) -> Any:
    return estimate(data, batch_keys, **{**options, "adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False})


def padding_in_the_mean(data: Any, batch_keys: list[str], **_: Any) -> Any:
    scores_B = data.batch["token_level_rewards"].sum(-1)
    others_B = (scores_B.sum() - scores_B) / (len(scores_B) - 1)
    data.batch["advantages"] = (scores_B - others_B).unsqueeze(-1) * data.batch["response_mask"]
    return data


def by_turn(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """An estimator that makes advantages from the table (members, turns) of a group's rewards; NaN after the end."""

    def advantages(data: Any, batch_keys: list[str], **_: Any) -> Any:
        table = TurnTable.from_batch(data, batch_keys)
        values: list[Any] = [None] * len(table.rewards)
        for group in set(table.groups):
            places = [place for place, own in enumerate(table.groups) if own == group]
            width = max(len(table.rewards[place]) for place in places)
            rewards = np.stack(
                [np.pad(table.rewards[p], (0, width - len(table.rewards[p])), constant_values=np.nan) for p in places]
            )
            with np.errstate(all="ignore"):
                changed = change(rewards)
            for place, row in zip(places, changed, strict=True):
                values[place] = row[: len(table.rewards[place])]
        data.batch["advantages"] = table.spread(values, data.batch["token_level_rewards"]) * data.batch["response_mask"]
        return data

    return advantages


def _to_go(rewards: Any) -> Any:
    returns = np.full(rewards.shape, np.nan)
    for row, own in enumerate(rewards):
        length = int(np.isfinite(own).sum())
        returns[row, :length] = to_go(own[:length], 1.0)
    return returns


def _deviation_of_one(rewards: Any) -> Any:
    returns = _to_go(rewards)
    alive = np.isfinite(returns).sum(0)
    centered = np.where(np.isfinite(returns), returns - np.nansum(returns, 0) / alive, 0.0)
    return centered / np.sqrt((centered**2).sum(0) / (alive - 1))


def _per_turn_index(rewards: Any) -> Any:
    spread = np.nan_to_num(np.nanstd(rewards, 0)) + 1e-6
    normalized = np.where(np.isfinite(rewards), (rewards - np.nanmean(rewards, 0)) / spread, np.nan)
    return _to_go(normalized)


def _zero_if_alone(rewards: Any) -> Any:
    returns = _to_go(rewards)
    others = np.isfinite(returns).sum(0) - 1
    return np.where(others > 0, returns - (np.nansum(returns, 0) - returns) / np.maximum(others, 1), 0.0)


def unscored_as_zero(data: Any, batch_keys: list[str], num_repeat: int, **_: Any) -> Any:
    scores_B, uids = data.batch["token_level_rewards"].sum(-1), data.non_tensor_batch["uid"]
    same_BB = torch.from_numpy(uids[:, None] == uids[None, :]).to(scores_B)
    others_B = (same_BB @ scores_B - scores_B) / (num_repeat - 1)
    data.batch["advantages"] = (scores_B - others_B).unsqueeze(-1) * data.batch["response_mask"]
    return data


def copied(earlier: float) -> Callable[..., Any]:
    """The last sequence's advantage times this factor on the other sequences."""

    def advantages(data: Any, batch_keys: list[str], **options: Any) -> Any:
        data = rloo(data, batch_keys, **options)
        last = set(final_rows(batch_keys).values())
        factors_B = torch.tensor([1.0 if row in last else earlier for row in range(len(batch_keys))])
        data.batch["advantages"] = data.batch["advantages"] * factors_B.unsqueeze(-1)
        return data

    return advantages


def discounted(data: Any, batch_keys: list[str], **options: Any) -> Any:
    return to_go_of_tokens(data, batch_keys, discount=0.7, **options)


def rows_for_sessions(data: Any, batch_keys: list[str], **options: Any) -> Any:
    return compute_advantage(data, **{**options, "adv_estimator": "rloo"})


def with_token_mean(method: Method) -> Method:
    return dataclasses.replace(method, actor=dataclasses.replace(method.actor, loss_agg_mode="token-mean"))


def ends_with_an_observation(play: TabularTrajectory) -> None:
    for turn, outcome in enumerate((0.2, 0.6, 0.9)):
        is_over = not play.sample(f"turn {turn}") or turn == 2
        if is_over:
            play.reward(outcome)
        play.observe()
        if is_over:
            return


def good_but_unscored(play: TabularTrajectory) -> None:
    if play.happens(0.3):
        play.fail()
    while play.sample(f"turn {len(play.events)}") and len(play.events) < 4:
        play.observe()
    play.reward(2.0 + len(play.events) % 2)


NAMED = {process.name: process for process in PROCESSES} | {
    play.__name__: TabularProcess(play, members=3) for play in (ends_with_an_observation, good_but_unscored)
}
PLANTED: dict[str, tuple[Callable[..., Any], Callable[..., Any], str, str]] = {
    "mask shifted by one": (mask_shifted, rloo, "lengths", "direction"),
    "reward on an observation": (reward_on_an_observation, to_go_of_tokens, "ends_with_an_observation", "direction"),
    "baseline with the sample itself": (baseline_with_the_sample, rloo, "lengths", "length"),
    "std of a group of one": (by_turn(_deviation_of_one), turn, "lengths", "direction"),
    "padding in the mean": (padding_in_the_mean, rloo, "lengths", "padding"),
    "normalized per turn index": (by_turn(_per_turn_index), turn, "turn_rewards", "direction"),
    "0 where only one is alive": (by_turn(_zero_if_alone), turn, "lengths", "direction"),
    "unscored as zero": (unscored_as_zero, rloo, "good_but_unscored", "variance"),
    "advantage copied to none": (copied(0.0), rloo, "folded", "direction"),
    "advantage copied twice": (copied(2.0), rloo, "folded", "direction"),
    "token-mean for a sum": (rloo, rloo, "lengths", "direction"),
    "discount without weights": (discounted, to_go_of_tokens, "lengths", "direction"),
    "rows for sessions": (rows_for_sessions, rloo, "folded", "direction"),
}
"""By error: the estimator with it and the one without, the process, and what reveals it."""
