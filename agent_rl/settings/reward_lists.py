"""Lists of reward models and functions, as earlier guides wrote them: refused with the YAML that says it today.

    reward_model.model.path=[a,b] reward_function=[helpful,polite] reward_weight=[0.3,0.5]

becomes `agent_rl.reward.models` with a component of the kind `reward_model`, or, where no model is named, one component
for each function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import yaml

from agent_rl.errors import ConfigError

__all__ = ["refuse_lists"]

_SECTIONS = ("", "reward_model.", "reward_model.model.", "reward.", "custom_reward_function.", "algorithm.")
_PATHS = ("reward_model.model.path", "reward_model.path", "reward_model.model_path", "reward.reward_model.model_path")
_LISTS = ("reward_function", "reward_weight", "reward_combine_func", "reward_names")
_COMBINED = {"sum": "add", "multiply": "mul", "product": "mul", "avg": "mean", "average": "mean"}
_OF_A_MODEL = {
    "tensor_model_parallel_size": "tensor_parallel_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "temperature": "temperature",
}
_PARENTS = ("reward_model.model.", "reward_model.rollout.", "reward_model.reward_vllm_rollout.")


def refuse_lists(given: Mapping[str, Any]) -> None:
    """Refuse several reward models or functions in lists.

    Args:
        given: values by keys, as text of a command line or as plain data.

    Raises:
        ConfigError: with the YAML to write, which has the user's values.
    """
    paths = {key: value for key in _PATHS if isinstance(value := _read(given.get(key)), list)}
    lists = {name: (f"{section}{name}", given[f"{section}{name}"]) for name in _LISTS for section in _SECTIONS
             if given.get(f"{section}{name}") is not None}  # fmt: skip
    if not paths and not lists:
        return
    key = next(iter(paths), None) or next(iter(lists.values()))[0]
    models = next(iter(paths.values()), None) or next(
        ([path] for each in _PATHS if isinstance(path := _read(given.get(each)), str)), []
    )
    found = {name: _listed(value) for name, (_, value) in lists.items()}
    counts = {"models": len(models), **{name: len(values) for name, values in found.items()}}
    if len({count for count in counts.values() if count}) > 1:
        said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        raise ConfigError(key, f"there must be one of each for a model, and there are {said}", "Give as many of each")
    remedy = yaml.safe_dump({"agent_rl": {"reward": _section(models, found, _settings(given))}}, sort_keys=False)
    shown = " ".join(f"{each}={_shown(given[each])}" for each in (*paths, *(old for old, _ in lists.values())))
    problem = f"lists of rewards are agent_rl.reward.models and agent_rl.reward.components now (given: {shown})"
    raise ConfigError(key, problem, f"Write in the recipe's config.yaml:\n{remedy}{_notes(models, found)}")


def _section(models: list[Any], found: Mapping[str, list[Any]], more: Mapping[str, Any]) -> dict[str, Any]:
    functions = found.get("reward_function", [])
    names = found.get("reward_names") or functions or _distinct(PurePath(str(path)).name for path in models)
    names = [str(name) for name in names] or [f"reward_{i + 1}" for i in range(len(next(iter(found.values()))))]
    weights = found.get("reward_weight") or [1.0] * len(names)
    if not models:
        functions = functions or names
        return {"components": {_identifier(name): {"kind": f"{function}.py:CLASS", "weight": weight}
                for name, function, weight in zip(names, functions, weights, strict=True)}}  # fmt: skip
    kind = "generative" if functions else "discriminative"
    served = {name: {"path": path, "kind": kind, **more} for name, path in zip(names, models, strict=True)}
    asked: dict[str, Any] = {name: {"weight": weight} for name, weight in zip(names, weights, strict=True)}
    for name, function in zip(names, functions, strict=False):
        asked[name]["template"] = f"{function}.txt"
    how = _combine(found)
    config = {**({"combine": how} if how else {}), "models": asked}
    return {"models": served, "components": {"quality": {"kind": "reward_model", "config": config}}}


def _notes(models: list[Any], found: Mapping[str, list[Any]]) -> str:
    notes = []
    if models and found.get("reward_function"):
        notes.append("A template has the prompt that the module built; see docs/guides/reward_models.md.")
    elif found.get("reward_function"):
        notes.append("CLASS is a Component of yours in that file; see docs/guides/rewards.md.")
    if len(set(found.get("reward_combine_func", []))) > 1 or (found.get("reward_combine_func") and not _combine(found)):
        notes.append("One component has one way to combine; agent_rl.reward.combine takes a function of yours.")
    return " ".join(notes)


def _combine(found: Mapping[str, list[Any]]) -> str | None:
    """The one way in which all scores are combined, if there is one that we have."""
    ways = {_COMBINED.get(str(each), str(each)) for each in found.get("reward_combine_func", [])}
    way = ways.pop() if len(ways) == 1 else None
    return way if way in ("add", "mul", "min", "max", "mean") else None


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the engine that hold for every one of the models."""
    return {
        new: _read(given[f"{parent}{old}"])
        for old, new in _OF_A_MODEL.items()
        for parent in _PARENTS
        if given.get(f"{parent}{old}") is not None
    }


def _read(value: Any) -> Any:
    """The value that a text of the command line stands for."""
    try:
        return yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        return value


def _listed(value: Any) -> list[Any]:
    read = _read(value)
    return list(read) if isinstance(read, list) else [read]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "[" + ",".join(map(str, value)) + "]"


def _distinct(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        found.append(name if name not in found else f"{name}_{len(found) + 1}")
    return found


def _identifier(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name)
