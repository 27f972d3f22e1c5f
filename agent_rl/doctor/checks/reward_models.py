"""Checks of the reward models that a run serves itself: their files, and their shares of the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from agent_rl.doctor.case import Case
from agent_rl.doctor.check import check
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning
from agent_rl.doctor.model_files import find_model, incomplete_files, names_a_folder
from agent_rl.launch.training import TINY_CLASSIFIER, TINY_MODEL
from agent_rl.settings import SECTION

MODELS = f"{SECTION}.reward.models"
CLASSIFIERS = ("SequenceClassification", "Reward")
"""Parts of the names of architectures that give a score."""
TIGHT = 0.9


@check("reward", "reward models")
def models(case: Case) -> Iterator[Finding]:
    """Every reward model is on this machine, complete, and of the configured kind."""
    for name, served in case.settings.reward.models.items():
        yield _model(case, name, served.path, served.kind)
    if case.get("reward.reward_model.enable"):
        kind = "generative" if case.get("reward.custom_reward_function.path") else "discriminative"
        yield _model(case, "", str(case.get("reward.reward_model.model_path", "")), kind)


@check("reward", "reward models' memory")
def shares(case: Case) -> Finding | None:
    """The reward models that share the trainer's GPUs fit there together."""
    served = case.settings.reward.models
    shared = {name: model.gpu_memory_utilization for name, model in served.items() if model.placement == "shared"}
    if case.get("reward.reward_model.enable") and not case.get("reward.reward_model.enable_resource_pool"):
        shared["reward.reward_model"] = float(case.get("reward.reward_model.rollout.gpu_memory_utilization", 0.5))
    if not shared or case.on_cpu:
        return None
    total = sum(shared.values())
    text = f"{', '.join(f'{name} {share:g}' for name, share in shared.items())} of each of the trainer's GPUs"
    remedy = f"Lower gpu_memory_utilization below {MODELS}, or give a model GPUs of its own (placement: own)"
    if total >= 1:
        return problem(f"{text}: together {total:g}", remedy)
    if total > TIGHT:
        return warning(f"{text}: that leaves little for the trainer", remedy)
    return ok(f"{text}, while they score")


def _model(case: Case, name: str, path: str, kind: str) -> Finding:
    subject = f"reward model {name}".rstrip()
    if case.on_cpu and path in (TINY_MODEL, TINY_CLASSIFIER):
        return skipped(f"{path} is made when the run starts", subject=subject)
    found = find_model(case.path(path))
    if found.folder is None and names_a_folder(path):
        key = f"{MODELS}.{name}.path" if name else "reward.reward_model.model_path"
        remedy = "Correct the path, or name a model of the hub"
        return problem(f"{key}={path}: there is no such folder", remedy, subject)
    if found.folder is None:
        text = f"{path} is not on this machine; it will be downloaded from the hub on each node"
        return skipped(text, subject=subject)
    shown, lacks = case.shown(found.folder), incomplete_files(found.folder)[:3] if found.config else ["config.json"]
    if lacks:
        return problem(f"{shown}: {', '.join(lacks)} incomplete or absent", "Copy the model again", subject)
    architecture = str((found.config.get("architectures") or ["an unnamed architecture"])[0])
    if kind == "discriminative" and not any(word in architecture for word in CLASSIFIERS):
        text = f"{path} is a {architecture}, which gives no score but a hidden state"
        return warning(text, f"Name a classifier, or set {MODELS}.{name}.kind=generative", subject)
    return ok(f"{shown}: {architecture}, {found.parameters or 0:,} parameters", subject)
