"""The exact gradient of an objective over a process, and the mean and variance of an estimator's gradient.

A group is a multiset of trajectories with an exact probability, so the mean over all groups is exact too. As in
a training step, `estimate` computes the advantages, verl's policy losses and `agg_loss` compute the loss, and autograd
computes the gradient, all in float64. An estimator's result must not depend on the order of a group's members.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn

from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.algorithms.advantages import estimate
from agent_rl.verl_adapter.certificates.batches import TabularRows
from agent_rl.verl_adapter.certificates.objectives import Objective
from agent_rl.verl_adapter.certificates.processes import ACTIONS, TabularProcess, enumerate_trajectories
from agent_rl.verl_adapter.trained_samples import lone
from agent_rl.verl_adapter.updates import TOKEN_SUMS

GREEDY = ("remax", remax.ESTIMATOR)
"""Estimators that need the rewards of greedy trajectories."""
Groups = list[tuple[int, ...]]
Batch = Sequence[tuple[int, tuple[int, ...]]]
"""The groups of a batch, each as a prompt and the numbers of the members' trajectories in ascending order."""


@dataclass(frozen=True)
class Method:
    """An estimator with its loss.

    Attributes:
        estimator: `algorithm.adv_estimator`, or a function with the arguments of `AgentTrainer.estimate_advantages`.
        algorithm: the `algorithm` section of verl's configuration.
        actor: verl's `ActorConfig`.
        fewest: the size of the smallest group that is trained on.
        is_coupled: whether the advantages of a group depend on the other groups of a batch.
    """

    estimator: Any
    algorithm: Any
    actor: Any
    fewest: int
    is_coupled: bool

    @property
    def replaces_equal_groups(self) -> bool:
        """Whether a group in which all rewards are equal is replaced by a group of another prompt."""
        return bool(self.algorithm.filter_groups.enable)

    def advantages(self, rows: TabularRows, kept: Mapping[str, int], samples: int, padding: int = 0) -> Any:
        """Return the advantages (rows, tokens) as the trainer computes them.

        Args:
            rows: the rows of the process.
            kept: the rows of the batch by key.
            samples: `rollout.n`.
            padding: number of padding rows.
        """
        padded = {**kept, **{f"pad0_{place}_0": -1 for place in range(padding)}}
        algorithm = self.algorithm
        compute: Any = self.estimator if callable(self.estimator) else estimate
        result = compute(
            rows.data(padded, self.estimator in GREEDY),
            list(padded),
            adv_estimator=self.estimator,
            gamma=algorithm.gamma,
            lam=algorithm.lam,
            num_repeat=samples,
            norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
            config=algorithm,
        )
        return result.batch["advantages"]

    def loss(self, log_probs_BT: Any, advantages_BT: Any, mask_BT: Any, samples: int) -> Any:
        """Return verl's per-sample loss for one update; a sum over tokens is divided by the number of samples."""
        actor, mode = self.actor, self.actor.loss_agg_mode
        actor.global_batch_info.update(
            dp_size=1,
            batch_num_tokens=mask_BT.sum(),
            global_batch_size=samples if mode in TOKEN_SUMS else len(mask_BT),
            loss_scale_factor=actor.loss_scale_factor,
        )
        loss, _ = get_policy_loss_fn(actor.policy_loss.loss_mode)(
            old_log_prob=log_probs_BT.detach(),
            log_prob=log_probs_BT,
            advantages=advantages_BT,
            response_mask=mask_BT.bool(),
            loss_agg_mode=mode,
            config=actor,
        )
        if mode == "token-sum":
            return loss / samples
        return loss * (actor.loss_scale_factor or 1) if mode == "seq-mean-token-sum-norm" else loss


class TabularWorld:
    """A process with a policy.

    Attributes:
        process: the process.
        logits_SA: the policy's parameters (states, actions).
        trajectories: all trajectories, by prompt.
        groups: all groups of each prompt.
    """

    def __init__(self, process: TabularProcess) -> None:
        self.process = process
        self.trajectories = [list(enumerate_trajectories(process.play, prompt)) for prompt in range(process.prompts)]
        every = [each for own in self.trajectories for each in own]
        names = dict.fromkeys(state for each in every for state, *_ in each.sampled())
        self._states = {name: number for number, name in enumerate(names)}
        generator = torch.Generator().manual_seed(1)
        self.logits_SA = 0.7 * torch.randn(len(names), ACTIONS, generator=generator, dtype=torch.float64)
        self.logits_SA[:, 1] += process.bias
        self._rows = TabularRows(self.trajectories, self.logits_SA.softmax(-1), self._states)
        self.logits_SA.requires_grad_()
        self.groups = [
            list(itertools.combinations_with_replacement(range(len(own)), process.members)) for own in self.trajectories
        ]

    def exact(self, objective: Objective, method: Method) -> Any:
        """Return the gradient of an objective's mean over all prompts and all groups that are large enough."""
        total = torch.zeros((), dtype=torch.float64)
        for prompt in range(self.process.prompts):
            groups = [group for group in self.groups[prompt] if len(self._rewards(prompt, group)) >= method.fewest]
            values = [objective.of_group(self._rewards(prompt, group), self.process.members) for group in groups]
            mean = (self._probabilities(prompt, groups) * torch.tensor(values, dtype=torch.float64)).sum()
            if method.replaces_equal_groups:  # groups with equal rewards have no gradient, and are not in the batch
                mean = mean / self._probabilities(prompt, self._unequal(prompt, groups)).sum().detach()
            total = total + mean
        return torch.autograd.grad(total / self.process.prompts, self.logits_SA)[0].flatten()

    def estimated(self, method: Method) -> tuple[Any, float]:
        """Return a method's mean gradient over all batches with one group per prompt, and its per-sample variance."""
        choices = [self._choices(prompt, method) for prompt in range(self.process.prompts)]
        known: dict[Any, Any] = {}
        if not method.is_coupled:
            every = [(prompt, group) for prompt, own in enumerate(choices) for group, _ in own]
            kept = self._kept(method, every)
            advantages_BT = method.advantages(self._rows, kept, self.process.members)
            for place, choice in enumerate(every):
                known[choice] = advantages_BT[[row for row, key in enumerate(kept) if key.startswith(f"g{place}_")]]
        mean, square = torch.zeros(self.logits_SA.numel(), dtype=torch.float64), 0.0
        for batch in itertools.product(*choices):
            weight = math.prod(weight for _, weight in batch)
            gradient = self.gradient(method, [(prompt, group) for prompt, (group, _) in enumerate(batch)], known)
            mean, square = mean + weight * gradient, square + weight * float(gradient @ gradient)
        return mean, (square - float(mean @ mean)) * self.process.members * self.process.prompts

    def large_batch(self, method: Method, groups: int) -> Any:
        """Return a method's gradient on one batch with the given number of groups per prompt.

        The groups are taken at evenly spaced quantiles of their distribution, starting at a random quantile.
        """
        offset = np.random.default_rng(0).random()
        batch: list[tuple[int, tuple[int, ...]]] = []
        for prompt in range(self.process.prompts):
            choices = self._choices(prompt, method)
            edges = np.cumsum([weight for _, weight in choices])
            places = np.searchsorted(edges, (np.arange(groups) + offset) / groups * edges[-1])
            batch += [(prompt, choices[place][0]) for place in places]
        return self.gradient(method, batch)

    def gradient(self, method: Method, batch: Batch, known: Mapping[Any, Any] | None = None) -> Any:
        """Return a method's per-sample gradient on a batch; `known` may contain the advantages of its groups."""
        kept = self._kept(method, batch)
        if not (rows := list(kept.values())):
            return torch.zeros_like(self.logits_SA).flatten()
        if known:
            advantages_BT = torch.cat([known[group] for group in batch])
        else:
            advantages_BT = method.advantages(self._rows, kept, self.process.members)
        mask_BT = self._rows.tensors["response_mask"][rows]
        table_SA = self.logits_SA.log_softmax(-1)
        log_probs_BT = table_SA[self._rows.state_BT[rows], self._rows.action_BT[rows]] * mask_BT
        loss = method.loss(log_probs_BT, advantages_BT, mask_BT, self.process.members * len(batch))
        return -torch.autograd.grad(loss, self.logits_SA)[0].flatten()

    def _kept(self, method: Method, batch: Batch) -> dict[str, int]:
        """Return the rows of a batch by key, without those of groups that are too small."""
        rows = self._rows.of_batch(batch)
        gone = lone(list(rows), method.fewest)
        return {key: row for key, row in rows.items() if key not in gone}

    def depends_on_padding(self, method: Method) -> bool:
        """Whether padding rows change the advantages of other rows."""
        scored = [number for number, each in enumerate(self.trajectories[0]) if each.is_scored]
        batch = [(0, tuple(scored[: self.process.members])), (0, tuple(scored[-self.process.members :]))]
        kept = self._rows.of_batch(batch)
        alone = method.advantages(self._rows, kept, self.process.members)
        padded = method.advantages(self._rows, kept, self.process.members, padding=2)[: len(alone)]
        return not torch.allclose(padded, alone, rtol=1e-9, atol=1e-9, equal_nan=True)

    def _choices(self, prompt: int, method: Method) -> list[tuple[tuple[int, ...], float]]:
        """Return the groups that a batch can contain, with their probabilities."""
        groups = self.groups[prompt]
        if method.replaces_equal_groups:
            groups = self._unequal(prompt, groups)
        probabilities = self._probabilities(prompt, groups).detach()
        return list(zip(groups, (probabilities / probabilities.sum()).tolist(), strict=True))

    def _unequal(self, prompt: int, groups: Groups) -> Groups:
        """Return the groups whose members have different rewards."""
        return [group for group in groups if len(set(self._rewards(prompt, group))) > 1]

    def _rewards(self, prompt: int, group: tuple[int, ...]) -> list[float]:
        """Return the rewards of a group's scored members."""
        members = [self.trajectories[prompt][number] for number in group]
        return [member.total for member in members if member.is_scored]

    def _probabilities(self, prompt: int, groups: Sequence[tuple[int, ...]]) -> Any:
        """Return the probability of each group, summed over all orders of its members."""
        orders = [
            math.lgamma(len(group) + 1) - sum(math.lgamma(n + 1) for n in Counter(group).values()) for group in groups
        ]
        log_probs = self._log_probs(prompt)[torch.tensor(groups)].sum(-1)
        return (log_probs + torch.tensor(orders, dtype=torch.float64)).exp()

    def _log_probs(self, prompt: int) -> Any:
        """Return the log-probability of each trajectory of a prompt."""
        table_SA = self.logits_SA.log_softmax(-1)
        own = self.trajectories[prompt]
        chances = torch.tensor([math.log(each.chance) for each in own], dtype=torch.float64)
        tokens = [torch.stack([table_SA[self._states[s], action] for s, action, _ in each.sampled()]) for each in own]
        return torch.stack([each.sum() for each in tokens]) + chances
