"""Checks of the model's folder and of the places that the run writes to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from agent_rl.doctor.case import Case
from agent_rl.doctor.data import total_steps
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning
from agent_rl.doctor.weights import Model, incomplete_files
from agent_rl.launch import resolution
from agent_rl.launch.training import TINY_MODEL

__all__ = ["context", "model", "outputs", "resume", "values"]

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
OUTPUTS = (
    "trainer.default_local_dir",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
    "agent_rl.trace.path",
)


def values(case: Case) -> Iterator[Finding]:
    """Every value that verl needs is there, and every reference leads somewhere."""
    assert case.config is not None
    for wrong in resolution.problems(case.config):
        yield problem("values", f"{wrong.key}: {wrong.problem}", wrong.remedy)


def model(case: Case) -> Iterator[Finding]:
    """The model is on this machine, and whole."""
    found = case.model
    if found.folder is None:
        yield _absent(case, found)
        return
    missing = [] if found.config else ["config.json"]
    if not any((found.folder / name).is_file() for name in TOKENIZER_FILES):
        missing.append("a tokenizer")
    if not any(found.folder.glob("*.safetensors")) and not any(found.folder.glob("*.bin")):
        missing.append("weights")
    if missing:
        yield problem(
            "model", f"{case.shown(found.folder)} lacks {', '.join(missing)}", "Copy or download the model again"
        )
    elif broken := incomplete_files(found.folder):
        text = f"{case.shown(found.folder)}: {', '.join(broken[:3])} incomplete or absent"
        yield problem("model", text, "Copy or download the model again")
    else:
        kind = found.config.get("model_type", "of unknown type")
        yield ok("model", f"{case.shown(found.folder)}: {kind}, {found.parameters or 0:,} parameters")


def context(case: Case) -> Iterator[Finding]:
    """A whole trajectory fits into the model's context."""
    prompt, response = int(case.get("data.max_prompt_length", 0)), int(case.get("data.max_response_length", 0))
    longest = case.model.config.get("max_position_embeddings")
    wanted = f"data.max_prompt_length={prompt} + data.max_response_length={response}"
    if not longest:
        yield skipped("context", f"{wanted}; the model's limit is not known here")
    elif prompt + response > longest:
        text = f"{wanted} is more than the model's {longest} positions"
        yield problem("context", text, "Lower one of them, or take a model with a longer context")
    else:
        yield ok("context", f"{prompt} + {response} of {longest} tokens")


def outputs(case: Case) -> Iterator[Finding]:
    """What the run writes can be written."""
    wanted = {key: str(value) for key in OUTPUTS if (value := case.get(key))}
    if int(case.get("trainer.save_freq", -1)) <= 0:
        wanted.pop("trainer.default_local_dir", None)
    wanted["working directory (hydra writes outputs/ there)"] = "."
    refused = False
    for key, value in wanted.items():
        target = case.folder / Path(value).expanduser()
        there = next(path for path in (target, *target.parents) if path.exists())
        if not os.access(there, os.W_OK) or (there != target and not there.is_dir()):
            refused = True
            yield problem(
                key, f"{target} cannot be written ({there} is in the way)", "Name a place that you may write to"
            )
    if not refused:
        yield ok("outputs", f"relative paths begin in {case.folder.resolve()}, which can be written")


def resume(case: Case) -> Iterator[Finding]:
    """A checkpoint that is there already is one that is meant: verl resumes from it by itself."""
    if case.get("trainer.resume_mode") != "auto":
        return
    folder = case.folder / Path(str(case.get("trainer.default_local_dir", "checkpoints"))).expanduser()
    mark = folder / "latest_checkpointed_iteration.txt"
    step = mark.read_text(errors="replace").strip() if mark.is_file() else ""
    if not step.isdigit():
        return
    steps = total_steps(case)
    remedy = "Set trainer.resume_mode=disable to begin anew, or another trainer.experiment_name"
    if steps and int(step) >= steps:
        yield problem("resume", f"{folder} is at step {step} of {steps}: nothing is left to train", remedy)
    else:
        yield warning("resume", f"the run goes on from step {step} in {folder}", remedy)


def _absent(case: Case, found: Model) -> Finding:
    name = found.name
    if case.on_cpu and name == TINY_MODEL:
        return skipped("model", f"{name} is made when the run starts")
    first = name.partition("/")[0]
    if name.startswith(("/", ".", "~", "outputs/")) or name.count("/") != 1 or (case.folder / first).is_dir():
        tiny = "On a CPU: python -m agent_rl.cpu.tiny_model --out"
        remedy = f"{tiny} {name}; or mend the path" if case.on_cpu else "Mend the path, or name a model of the hub"
        return problem(
            "model", f"actor_rollout_ref.model.path={name}: there is no such folder (from {case.folder})", remedy
        )
    offline = [key for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if _is_set(case.environ.get(key))]
    if offline:
        text = f"{name} is not on this machine, and {offline[0]} forbids its download"
        return problem("model", text, f"Unset {offline[0]}, or give a folder")
    text = f"{name} is not on this machine; verl will download it from the hub on each node"
    return skipped("model", text, f"To have it checked: hf download {name}")


def _is_set(value: str | None) -> bool:
    return bool(value) and re.fullmatch("(0|false|no|off|n)", str(value), re.IGNORECASE) is None
