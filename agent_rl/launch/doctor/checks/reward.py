"""Checks that the reward's settings, services and models work, giving up does not pay, and `algo=turn` is unbiased."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace

from agent_rl.errors import ConfigError
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks.configuration import complete
from agent_rl.launch.doctor.checks.memory import has_reference
from agent_rl.launch.doctor.model_files import find_model
from agent_rl.preflight.check import Finding, check, problem, skipped, warning
from agent_rl.preflight.values import ESTIMATOR
from agent_rl.rewards.component import Component, GroupComponent
from agent_rl.rewards.formula import GIVING_UP, HONEST_WORK, payments
from agent_rl.rewards.user_function import CUSTOM_FUNCTION
from agent_rl.settings import SECTION, TERMS
from agent_rl.verl_adapter import early_checks  # noqa: F401 - importing it registers its checks
from agent_rl.verl_adapter.algorithms.turn import ESTIMATOR as TURN
from agent_rl.verl_adapter.updates import TOKEN_SUMS
from agent_rl.work.concurrency import together

MODELS = f"{SECTION}.reward.models"
CLASSIFIERS = ("SequenceClassification", "Reward")
"""Parts of the names of architectures that return a score."""
TIGHT = 0.9
ACTOR = "actor_rollout_ref.actor"
CONSTANT = ("token-sum", *TOKEN_SUMS)
"""Values of `loss_agg_mode` that divide the loss by a constant."""
REACH_S = 10.0
"""Seconds within which a judge or a service must answer the first request."""


@check("reward", "reward weights")
def weights(case: Case) -> Finding | None:
    """The reward's settings are valid, its components can be constructed, and at least one weight is not 0."""
    settings = case.settings.reward
    terms = {name: getattr(settings, name) for name in TERMS} | settings.components
    # `case.reward` raises if a component cannot be constructed
    if case.scored_by_ours and case.reward and not any(term.weight_at(None) for term in terms.values()):
        return problem("every weight is 0, so the policy can learn nothing", "Set agent_rl.reward.correctness.weight")
    return None


@check("reward", "giving up")
def giving_up(case: Case) -> Finding | None:
    """Giving up immediately pays no more than a wrong answer after honest work (calls in all turns except the last)."""
    if not case.scored_by_ours or case.settings.reward.correctness.scorer == "none":
        return None
    pays = payments(case.reward, case.max_turns, case.settings.budget)
    for pattern, by_behaviour in pays.items():
        given_up, worked = by_behaviour[GIVING_UP][0], by_behaviour[HONEST_WORK][0]
        if given_up > worked + 1e-9:
            where = "" if pattern == "*" else f" (data sources {pattern})"
            text = f"giving up pays {given_up:.4g}, but a wrong answer after honest work pays {worked:.4g}{where}"
            return warning(text, f"Set {SECTION}.reward.efficiency: {{gate: correctness >= 1}}")
    return None


@check("reward", "endpoints")
def endpoints(case: Case) -> list[Finding]:
    """All judges and services used by the reward's components answer."""
    if case.given is not None:
        return [skipped("the facts about another machine do not describe its network")]
    if not case.scored_by_ours:
        return []
    remote = [each for each in case.reward.components if type(each).reach is not Component.reach]
    return [finding for finding in asyncio.run(together([_reach(each) for each in remote])) if finding is not None]


@check("reward", "reward models")
def models(case: Case) -> list[Finding]:
    """The files of every reward model are complete, and each model is of the configured kind."""
    findings = [_model(case, name, model.path, model.kind) for name, model in case.settings.reward.models.items()]
    if case.get("reward.reward_model.enable"):
        kind = "generative" if case.get(f"{CUSTOM_FUNCTION}.path") else "discriminative"
        findings.append(_model(case, "", str(case.get("reward.reward_model.model_path", "")), kind))
    return [finding for finding in findings if finding is not None]


@check("reward", "reward models' memory")
def shares(case: Case) -> Finding | None:
    """Together, the reward models that share the trainer's GPUs fit into the memory of these GPUs."""
    served = case.settings.reward.models
    shared = {name: model.gpu_memory_utilization for name, model in served.items() if model.visits}
    if case.get("reward.reward_model.enable") and not case.get("reward.reward_model.enable_resource_pool"):
        shared["reward.reward_model"] = float(case.get("reward.reward_model.rollout.gpu_memory_utilization", 0.5))
    if not shared or case.on_cpu:
        return None
    total = sum(shared.values())
    text = f"{', '.join(f'{name} {share:g}' for name, share in shared.items())} of the memory of every GPU"
    remedy = f"Lower gpu_memory_utilization below {MODELS}, or give a model its own GPUs (placement: own)"
    if total >= 1:
        return problem(f"{text}, which is {total:g} in total", remedy)
    if total > TIGHT:
        return warning(f"{text}, which leaves little memory for the trainer", remedy)
    return None


async def _reach(component: Component | GroupComponent) -> Finding | None:
    subject = f"endpoint of {component.name}"
    try:
        await asyncio.wait_for(component.reach(), REACH_S)
    except asyncio.TimeoutError:
        text = f"the server did not answer within {REACH_S:g} s"
        return problem(text, "Start the server, or correct the url", subject)
    except ConfigError as error:
        return problem(f"{error.key}: {error.problem}", error.remedy, subject)
    finally:
        await component.close()
    return None


def _model(case: Case, name: str, path: str, kind: str) -> Finding | None:
    files = find_model(case.path(path))
    architecture = str((files.config.get("architectures") or ["an unnamed architecture"])[0])
    finding = complete(case, files)
    scores = kind != "discriminative" or any(word in architecture for word in CLASSIFIERS)
    if not scores and finding is None and files.folder is not None:
        text = f"{path} is a {architecture}, which returns a hidden state instead of a score"
        finding = warning(text, f"Use a classifier, or set {MODELS}.{name}.kind=generative")
    return finding and replace(finding, subject=f"reward model {name}".rstrip())


@check("reward", "turn credit")
def turn_credit(case: Case) -> Iterator[Finding]:
    """With `algo=turn`, the gradient is unbiased while `actor/grad_norm` stays below the clipping limit."""
    if case.get(ESTIMATOR) != TURN:
        return
    for bias, remedy in _biases(case):
        yield warning(f"algo=turn is biased: {bias}", remedy)


def _biases(case: Case) -> Iterator[tuple[str, str]]:
    """Yield a description and a remedy for each source of bias."""
    terms = [term for source in case.reward.sources.values() for term in source.terms if term.needs_groups]
    for name in dict.fromkeys(term.name for term in terms):
        bias = f"the component {name!r} compares a prompt's samples, so their rewards are not independent"
        yield bias, "Remove its normalize: group, or choose a component that scores one trajectory"
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
        yield "samples may come from older weights, and stale samples are left out", "Set mode=sync"
    prompts, mini = case.number("data.train_batch_size", 1), case.number(f"{ACTOR}.ppo_mini_batch_size", 1)
    updates = math.ceil(prompts / mini) * case.number(f"{ACTOR}.ppo_epochs", 1)
    if updates > 1:
        remedy = f"Set {ACTOR}.ppo_mini_batch_size={prompts} and {ACTOR}.ppo_epochs=1"
        yield f"each batch is used for {updates} updates, and the first update already changes the policy", remedy
    if (mode := case.get(f"{ACTOR}.loss_agg_mode")) not in CONSTANT:
        yield f"{mode} divides the loss by the number of sampled tokens", f"Remove {ACTOR}.loss_agg_mode"
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
