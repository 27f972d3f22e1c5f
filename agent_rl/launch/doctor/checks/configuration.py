"""Checks that values are valid, batches divide evenly, the model is complete, and the run's folder can be used."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.launch.composition import problems
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.model_files import ModelFiles
from agent_rl.launch.run_folder import RunFolder
from agent_rl.launch.training import TINY_CLASSIFIER, TINY_MODEL
from agent_rl.preflight.check import Finding, Needs, check, problem, reason, skipped, warning
from agent_rl.verl_adapter import inspection
from agent_rl.verl_adapter.checkpoints import names_a_folder, settings_folder

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
ENGINE_RESERVE = 6
"""Number of positions in the model's context that SGLang does not let a request use."""
AGAIN = "Copy or download the model again"
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"


@check("configuration")
def values(case: Case) -> list[ConfigError]:
    """No mandatory value is missing, and every interpolation can be resolved."""
    return problems(case.config)


@check("configuration", needs=Needs.VERL)
def validation(case: Case) -> Iterator[Finding]:
    """The configuration passes verl's checks, both those before Ray starts and those of its dataclasses."""
    config: Any = case.config.copy()
    OmegaConf.resolve(config)
    if case.checkpoint is not None:  # verl will load the model that is merged from this checkpoint
        config.actor_rollout_ref.model.path = str(settings_folder(case.checkpoint))
    complaints: dict[str, str] = {}
    for section, run in inspection.verls_checks(config).items():
        try:
            run()
        except Exception as error:  # noqa: BLE001 - verl may raise any error, which is reported
            complaints.setdefault(reason(error), section)
    for complaint, section in complaints.items():
        yield problem(f"{section}: {complaint}".removeprefix(": "), "Change the values that the message mentions")


@check("configuration", "batches")
def mini_batches(case: Case) -> Iterator[Finding]:
    """Trajectories divide evenly among the trainer's processes and into micro-batches; verl's workers assert this."""
    own = "actor_rollout_ref"
    mini, batch = case.number(MINI, 1), case.number("data.train_batch_size", 1)
    n = case.number(f"{own}.rollout.n", 1)
    shards = max(1, case.world_size // case.number(f"{own}.actor.ulysses_sequence_parallel_size", 1))
    if mini * n % shards:
        sizes = f"{mini} prompts x rollout.n={n} are {mini * n} trajectories"
        remedy = f"Choose {MINI} so that {MINI} x {n} is a multiple of {shards}"
        yield problem(f"{sizes}, which {shards} trainer processes cannot share equally", remedy, "mini-batch")
        return
    asynchronous = case.get("trainer.v1.trainer_mode") == "separate_async"
    if asynchronous and batch != mini * (each := case.number("trainer.v1.separate_async.parameter_sync_step", 1)):
        text = f"separate_async needs data.train_batch_size={batch} to be parameter_sync_step={each} x {mini}"
        yield problem(text, f"Set data.train_batch_size={each * mini}, or change {MINI}", "mini-batch")
    updates = math.ceil(batch / mini)
    if updates * mini != batch:
        text = f"{mini} does not divide data.train_batch_size={batch}: verl fills each step up to {updates * mini}"
        yield warning(text, f"Set {MINI} to a divisor of {batch}", "mini-batch")
    yield from _micro_batches(case, f"{own}.actor", "ppo_{}_per_gpu", "use_dynamic_bsz", mini * n // shards)
    dynamic, trajectories = "log_prob_use_dynamic_bsz", updates * mini * n // shards
    yield from _micro_batches(case, f"{own}.rollout", "log_prob_{}_per_gpu", dynamic, trajectories)


def _micro_batches(case: Case, section: str, name: str, dynamic: str, trajectories: int) -> Iterator[Finding]:
    """Yield a problem if trajectories do not divide evenly into micro-batches, or the longest does not fit into one."""
    if not case.get(f"{section}.{dynamic}"):
        key = f"{section}.{name.format('micro_batch_size')}"
        if (micro := case.get(key)) and trajectories % int(micro):
            text = f"{trajectories} trajectories per process are not a multiple of {micro}"
            yield problem(text, f"Set {key} to a divisor of {trajectories}", "micro-batch")
    elif case.longest > case.number(key := f"{section}.{name.format('max_token_len')}", case.longest):
        text = f"{key} is less than the longest prompt and response together, {case.longest}"
        yield problem(text, f"Raise the limit to {case.longest} or more", "micro-batch")


@check("configuration")
def model(case: Case) -> Finding | None:
    """The model is on this machine, with all its files complete."""
    return complete(case, case.model) if case.checkpoint is None else None


def complete(case: Case, found: ModelFiles) -> Finding | None:
    """Return a problem with a model's files; the launcher's check reports a missing folder."""
    if found.folder is None:
        return _absent(case, found.name)
    path, missing = case.shown(found.folder), [] if found.config else ["config.json"]
    if not any((found.folder / name).is_file() for name in TOKENIZER_FILES):
        missing.append("a tokenizer")
    if not any(found.folder.glob("*.safetensors")) and not any(found.folder.glob("*.bin")):
        missing.append("weights")
    if missing:
        return problem(f"{path} lacks {', '.join(missing)}", AGAIN)
    if found.broken:
        return problem(f"{path}: {', '.join(found.broken[:3])} (incomplete or absent)", AGAIN)
    return None


def _absent(case: Case, name: str) -> Finding | None:
    if case.on_cpu and name in (TINY_MODEL, TINY_CLASSIFIER):
        return skipped(f"{name} is made when the run starts")
    if names_a_folder(name):
        return None
    if (case.folder / name.partition("/")[0]).is_dir():
        text = f"there is no folder {name} in {case.folder}, although the first part of the path exists"
        return problem(text, "Correct the path, or use a model on the Hub")
    for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if not re.fullmatch("(0|false|no|off|n)?", case.environ.get(key, ""), re.IGNORECASE):
            text = f"{name} is not on this machine, and {key} forbids its download"
            return problem(text, f"Unset {key}, or use a folder")
    if not case.is_elsewhere and not case.machine.hub_answers:
        remedy = f"Run hf download {name} on a machine that reaches the Hub, with HF_HOME on a shared disk"
        return problem(f"{name} is not on this machine, and the Hub does not answer", remedy)
    text = f"{name} is not on this machine; it will be downloaded from the Hub on each node"
    return skipped(text, f"To check the model, run hf download {name}")


@check("configuration")
def context(case: Case) -> Finding | None:
    """A whole trajectory fits into the model's context."""
    prompt, response = case.number("data.max_prompt_length", 0), case.number("data.max_response_length", 0)
    longest = case.model.config.get("max_position_embeddings")
    lengths = f"data.max_prompt_length={prompt} + data.max_response_length={response}"
    if not longest:
        return skipped(f"{lengths}; the model's limit is unknown on this machine")
    if prompt + response > longest:
        remedy = "Lower one of the two lengths, or use a model with a longer context"
        return problem(f"{lengths} is more than the model's {longest} positions", remedy)
    if prompt + response > longest - ENGINE_RESERVE:
        text = f"{lengths}: the engine does not use the last {ENGINE_RESERVE} of the model's {longest} positions"
        return warning(text, f"Set data.max_response_length={longest - ENGINE_RESERVE - prompt} or less")
    return None


@check("configuration", "run folder")
def run_folder(case: Case) -> Finding | None:
    """The run's folder is writable, and does not contain a run with a different configuration."""
    run = RunFolder(case.config, script=None if case.script is None else str(case.script))
    parent = next(path for path in (run.path, *run.path.parents) if path.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        text = f"{run.path} cannot be written ({parent} is in the way)"
        return problem(text, "Set agent_rl.run.folder to a folder you can write to")
    run.require_same()
    return None
