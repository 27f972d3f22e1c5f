"""Checks of the configuration by verl itself: its own validation, and the divisions that it makes later, in workers."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator
from typing import Any

from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding, ok, problem, reason, warning
from agent_rl.errors import ConfigError

__all__ = ["mini_batches", "validation"]

PARTS = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model", "algorithm", "critic")
"""Sections that verl turns into dataclasses, which check themselves."""
MODEL = "actor_rollout_ref.model"


def validation(case: Case) -> Iterator[Finding]:
    """What verl asserts of the whole configuration, before Ray starts and in its dataclasses."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    assert case.config is not None
    config: Any = case.config.copy()
    OmegaConf.resolve(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl's, that there is no critic
        critic = need_critic(config)
    arguments = config, need_reference_policy(config), critic
    wrong = _complaint(lambda: inspect.unwrap(validate_config)(*arguments))
    if wrong:
        yield problem("validation", wrong, "Change the values that it names")
    try:
        validate_config(*arguments)  # with our own checks around it
    except ConfigError as error:
        wrong = wrong or error.problem
        yield problem("validation", f"{error.key}: {error.problem}", error.remedy)
    except Exception as error:  # noqa: BLE001 - verl's complaint again
        wrong = wrong or reason(error)
    failed = False
    for part in PARTS:
        section = OmegaConf.select(config, part)
        if part == MODEL or (part == "critic" and not critic) or "_target_" not in section:
            continue  # the model's dataclass loads the model's config: `paths.model` looks at it
        if found := _complaint(lambda section=section: omega_conf_to_dataclass(section)):
            failed = True
            if found != wrong:
                yield problem("validation", f"{part}: {found}", "Change the values that it names")
    if not wrong and not failed:
        yield ok("validation", "verl's own has passed")


def mini_batches(case: Case) -> Iterator[Finding]:
    """Trajectories divide among the trainer's processes, and there into micro-batches; verl asserts it in workers."""
    own, key = "actor_rollout_ref", "actor_rollout_ref.actor.ppo_mini_batch_size"
    mini, batch = int(case.get(key, 1)), int(case.get("data.train_batch_size", 1))
    n = int(case.get(f"{own}.rollout.n", 1))
    shards = max(1, case.world_size // int(case.get(f"{own}.actor.ulysses_sequence_parallel_size", 1)))
    if mini * n % shards:
        text = (
            f"{mini} prompts x rollout.n={n} are {mini * n} trajectories, which {shards} trainer processes cannot share"
        )
        yield problem("mini-batch", text, f"Choose {key} so that it times {n} is a multiple of {shards}")
        return
    asynchronous = case.get("trainer.v1.trainer_mode") == "separate_async"
    if asynchronous and batch != mini * (each := int(case.get("trainer.v1.separate_async.parameter_sync_step", 1))):
        text = f"separate_async wants data.train_batch_size={batch} to be parameter_sync_step={each} x {mini}"
        yield problem("mini-batch", text, f"Set data.train_batch_size={each * mini}, or change {key}")
    updates = math.ceil(batch / mini)
    if updates * mini != batch:
        text = f"{mini} does not divide data.train_batch_size={batch}: verl fills each step up to {updates * mini}"
        yield warning("mini-batch", text, f"Set {key} to a divisor of {batch}")
    longest = int(case.get("data.max_prompt_length", 0)) + int(case.get("data.max_response_length", 0))
    wrong = False
    for section, name, whole, dynamic in (
        ("actor", "ppo_{}_per_gpu", mini, "use_dynamic_bsz"),
        ("rollout", "log_prob_{}_per_gpu", updates * mini, "log_prob_use_dynamic_bsz"),
    ):
        if case.get(f"{own}.{section}.{dynamic}"):
            tokens_key = f"{own}.{section}.{name.format('max_token_len')}"
            if longest > int(case.get(tokens_key, longest)):
                wrong = True
                text = f"{tokens_key} is less than the longest prompt and response together, {longest}"
                yield problem("micro-batch", text, f"Set it to {longest} or more")
            continue
        micro_key = f"{own}.{section}.{name.format('micro_batch_size')}"
        micro, each = case.get(micro_key), whole * n // shards
        if micro and each % int(micro):
            wrong = True
            text = f"{each} trajectories of a process are no multiple of {micro}"
            yield problem("micro-batch", text, f"Set {micro_key} to a divisor of {each}")
    if not wrong:
        text = f"{batch} prompts x {n} trajectories, {updates} update(s) of {mini * n} on {shards} process(es)"
        yield ok("batches", text)


def _complaint(call: Any) -> str:
    """What it raised, as one line; empty when it did not."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - verl raises what it likes: it goes into the table
        return reason(error)
    return ""
