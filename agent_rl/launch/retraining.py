"""Compares a run that has `policy=trace` to the run on whose trajectories it trains, before anything is started.

The recorded trajectories and rewards are used unchanged, so a different value of a key on which they depend would have
no effect, and is rejected. Keys on which only the updates depend may differ; `differences` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.launch.run_folder import FREE_TO_CHANGE, MODEL, RunFolder, compared
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import check
from agent_rl.trajectory.run_files import read_record
from agent_rl.verl_adapter.recorded import KEY, RecordedRun

SAMPLING = ("data.", "reward.", "agent_rl.", "actor_rollout_ref.rollout.", "algorithm.filter_groups.", "trainer.v1.")
"""Prefixes of the keys on which the trajectories and their rewards depend, except the keys in the next two lists."""
UPDATES = ("agent_rl.gigpo", "agent_rl.mask_", "agent_rl.trainer_class", "actor_rollout_ref.rollout.log_prob_")
UNUSED = (
    *(*FREE_TO_CHANGE, "agent_rl.cold_start", "agent_rl.policy", "data.dataloader_num_workers", "data.val_"),
    *("reward.num_workers", "actor_rollout_ref.rollout.agent.num_workers", "actor_rollout_ref.rollout.nnodes"),
    *("actor_rollout_ref.rollout.prometheus", "actor_rollout_ref.rollout.val_kwargs"),
)
TOKENS = (MODEL, "config.json", "tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
"""Names of the model files that determine the tokens; the first stands for the name of a model that is not a folder."""
WEIGHTS = (".safetensors", ".bin")
REFUSED = {
    **dict.fromkeys(("trainer.val_before_train", "trainer.test_freq"), "a validation needs an engine"),
    **dict.fromkeys(("reward.reward_model.enable", "agent_rl.reward.models"), "a served model needs an engine"),
    **dict.fromkeys(
        ("algorithm.filter_groups.enable", "trainer.v1.sampler.sync_refill_failed_groups"),
        "it replaces groups, depending on when their episodes end",
    ),
}
"""Keys that must be false, negative, null or empty, with the reason for each."""


@check("configuration", "recorded run", at=("launch", "doctor"))
def recorded_run(case: RunCase) -> Iterator[ConfigError]:
    """The run in `agent_rl.policy.trace` exists, and can be trained on with this configuration."""
    if (place := case.get(KEY)) is None:
        return
    if (mode := case.get("trainer.v1.trainer_mode")) not in (None, "sync"):
        yield ConfigError("trainer.v1.trainer_mode", f"policy=trace does not work with mode={mode}", "Set mode=sync")
    for key, why in REFUSED.items():
        if (value := case.get(key)) and not (isinstance(value, int) and value < 0):
            yield ConfigError(key, f"policy=trace cannot be used with {value!r}: {why}", "Switch it off")
    run, folder = RunFolder(case.config), case.folder / Path(place).expanduser()
    if run.path == folder:
        yield ConfigError("agent_rl.run.folder", f"{KEY} names the same folder", "Set another folder")
    before = read_record(folder, KEY, "Set the key to the folder of a run")
    for key, text in compared(before, run.record, UNUSED)[0].items():
        if key.startswith(SAMPLING) and not key.startswith((*UPDATES, *UNUSED)):
            problem = f"policy=trace uses trajectories and rewards as they were recorded, but {text}"
            yield ConfigError(key, problem, f"Use the value of {place}")
    if differ := [name for name in _differ(_model(before), _model(run.record)) if name in TOKENS]:
        problem = f"{place} was trained from another model, with a different {', '.join(differ)}"
        yield ConfigError(MODEL, problem, "Use a model with the same configuration and tokenizer")
    RecordedRun(folder).require(case.get("trainer.total_training_steps", 1))


def differences(place: str, record: Mapping[str, Any]) -> list[str]:
    """Return notes for the user about what makes the weights differ from those of the recorded run.

    Args:
        place: the folder of the recorded run.
        record: the record (`RunFolder.record`) of the run that trains on the recorded run.
    """
    before = read_record(Path(place).expanduser(), KEY, "Set the key to the folder of a run")
    notes = [f"this run trains on the trajectories of {place}, without an engine"]
    if keys := [key for key in compared(before, record, UNUSED)[0] if key != MODEL]:
        text = "after the first update, the weights differ from those that sampled the trajectories (off-policy)"
        notes.append(f"{', '.join(keys)} differ from {place}: {text}")
    weights = [name for name in _differ(_model(before), _model(record)) if name.endswith(WEIGHTS)]
    other = {name: _differ(before.get(name, {}), record[name]) for name in ("versions", "machine")}
    if texts := [f"{what} ({', '.join(each)})" for what, each in {"first weights": weights, **other}.items() if each]:
        notes.append(f"the weights may not be bit-equal to those of {place}, because of different {', '.join(texts)}")
    return notes


def _model(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hashes of the files of a run's initial model, or the model's name if it is not a folder."""
    return dict(record.get("model") or {MODEL: record["configuration"]["actor_rollout_ref"]["model"]["path"]})


def _differ(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
