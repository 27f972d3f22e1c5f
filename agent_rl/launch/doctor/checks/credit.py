"""Checks of the conditions under which the mean gradient of `algo=turn` is that of the expected reward."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks.memory import has_reference
from agent_rl.preflight.check import Finding, check, warning
from agent_rl.preflight.values import ESTIMATOR
from agent_rl.verl_adapter.algorithms.turn import ESTIMATOR as TURN
from agent_rl.verl_adapter.updates import TOKEN_SUMS

ACTOR = "actor_rollout_ref.actor"
CONSTANT = ("token-sum", *TOKEN_SUMS)


@check("reward", "turn credit")
def turn_credit(case: Case) -> Iterator[Finding]:
    """With `algo=turn`, the gradient is exact in the mean while `actor/grad_norm` stays below the clipping limit."""
    if case.get(ESTIMATOR) != TURN:
        return
    for problem, remedy in _biases(case):
        yield warning(f"algo=turn is biased: {problem}", remedy)


def _biases(case: Case) -> Iterator[tuple[str, str]]:
    """Yield each condition that does not hold, and its remedy."""
    terms = [term for source in case.reward.sources.values() for term in source.terms if term.needs_groups]
    for name in dict.fromkeys(term.name for term in terms):
        problem = f"the component {name!r} compares the samples of a prompt, which are then not independent"
        yield problem, "Remove its normalize: group, or choose a component that scores one trajectory"
    if case.get("algorithm.filter_groups.enable"):
        yield "groups are chosen by their outcome", "Set algorithm.filter_groups.enable=false"
    if case.get("trainer.v1.sampler.sync_refill_failed_groups"):
        yield "groups that failed are replaced", "Set trainer.v1.sampler.sync_refill_failed_groups=false"
    if case.get("algorithm.gamma", 1.0) != 1.0:
        yield (
            "later rewards are discounted, but the loss does not weight a turn by its discount",
            "Set algorithm.gamma=1",
        )
    if case.get("trainer.v1.trainer_mode") != "sync":
        yield "samples may come from older weights, and stale ones are left out", "Set mode=sync"
    prompts, mini = case.number("data.train_batch_size", 1), case.number(f"{ACTOR}.ppo_mini_batch_size", 1)
    updates = math.ceil(prompts / mini) * case.number(f"{ACTOR}.ppo_epochs", 1)
    if updates > 1:
        remedy = f"Set {ACTOR}.ppo_mini_batch_size={prompts} and {ACTOR}.ppo_epochs=1"
        yield f"a batch makes {updates} updates, and after the first one the policy has moved", remedy
    if (mode := case.get(f"{ACTOR}.loss_agg_mode")) not in CONSTANT:
        yield f"{mode} divides the loss by a number of tokens that was sampled", f"Remove {ACTOR}.loss_agg_mode"
    elif mode == "seq-mean-token-sum-norm" and case.get(f"{ACTOR}.loss_scale_factor") is None:
        key = f"{ACTOR}.loss_scale_factor"
        yield "the loss is divided by the longest response of each micro-batch", f"Set {key} to a number"
    for key in ("rollout_is", "rollout_rs"):
        if (value := case.get(f"algorithm.rollout_correction.{key}")) is not None:
            yield f"{key}={value} truncates weights or leaves sampled tokens out", "Set correction=none"
    if has_reference(case):
        yield "a KL term is added to the expected reward", "Set kl=none"
    for key in ("mask_void", "mask_overlong"):
        if (value := getattr(case.settings, key)) not in (False, "none"):
            yield f"agent_rl.{key}={value} leaves sampled tokens out", f"Remove agent_rl.{key}"
