"""Composes a recipe's configuration and rejects keys that verl does not define.

hydra composes the configuration as in the trainer's process, but without importing verl, which would take seconds. verl
resolves the configuration only in a Ray worker; `resolved` and `problems` resolve it before the trainer starts.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from agent_rl.environments import load_environment
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.launch.command import hydra_arguments, rewrite
from agent_rl.launch.recipes import recipe_folder
from agent_rl.preflight import values
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import check, refuse
from agent_rl.settings.errors import Place, parts_of, yaml_errors
from agent_rl.settings.old_keys import argument_keys, change_config, is_free, is_old, tell
from agent_rl.settings.user_code import defined_at
from agent_rl.trajectory.run_files import leaves

NOT_IN_YAML = (
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
    "algorithm.gdpo_reward_keys",
    "algorithm.gdpo_reward_weights",
    "critic.ppo_infer_max_token_len_per_gpu",
)
"""Keys in verl's dataclasses that are missing from its YAML files."""
_WRONG_KEY = re.compile(r"Could not (?:override|delete from config\.) '(?!hydra\.)([^']+)'")
"""Hydra's message for an unknown key."""
_RESOLVING = re.compile(r'^\w+ raised while resolving interpolation: "(.+)"$')
"""OmegaConf's report of a resolver's exception."""


def compose(recipe: str | os.PathLike[str], overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the recipe's configuration as the trainer will, with interpolations unresolved.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
        overrides: hydra overrides, `key=value`; `+key=value` adds a key that verl does not define.

    Raises:
        ConfigError: verl does not define a key (the error suggests the nearest one), a value cannot be used, or hydra
            reports any other error.
    """
    return compose_words(recipe, rewrite(overrides))


def compose_words(recipe: str | os.PathLike[str], words: Sequence[str]) -> DictConfig:
    """Compose a configuration from words that `agent_rl.launch.command.rewrite` has already updated."""
    folder = recipe_folder(recipe)
    arguments = hydra_arguments(folder, words)
    with yaml_errors(folder / "config.yaml"), initialize_config_dir(str(folder), version_base=None):
        config = _composed(folder, arguments)
    tell(change_config(config, argument_keys(arguments), folder / "config.yaml"))
    try:
        refuse("compose", RunCase(config=config, recipe=str(recipe), overrides=list(words)))
    except ConfigError as error:
        if _is_written_in(folder / "config.yaml", error.key, config):
            place = Place(error.key, folder / "config.yaml", tuple(parts_of(error.key)))
            raise place.error(error.problem, error.remedy) from None
        raise
    return config


def groups(recipe: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return the options of the recipe's and agent_rl's groups, such as `size` and `algo`, but not of verl's groups.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
    """
    folder = recipe_folder(recipe)
    specs = [importlib.util.find_spec(path[6:]) for path in _searchpath(folder) if path.startswith("pkg://")]
    places = [str(folder), *(place for spec in specs if spec for place in spec.submodule_search_locations or ())]
    options: dict[str, dict[str, None]] = {}
    for file in (file for place in places for file in sorted(Path(place).glob("*/*.yaml"))):
        options.setdefault(file.parent.name, {})[file.stem] = None  # a recipe may redefine an option of agent_rl
    return {group: list(choices) for group, choices in options.items()}


@functools.cache
def verl_defaults() -> DictConfig:
    """Compose verl's configuration, without any recipe."""
    with initialize_config_dir(str(_verl_config_dir()), version_base=None):
        config: DictConfig = hydra_compose("ppo_trainer")
        return config


def unknown_keys(ours: Any, verls: Any, path: str = "") -> Iterator[str]:
    """Yield keys missing from verl's configuration; neither verl nor hydra reports most of them."""
    for key in ours:
        here = f"{path}.{key}".lstrip(".")
        if here in NOT_IN_YAML or is_free(here):
            continue
        if key not in set(verls.keys()):  # `key in verls` would be false for a mandatory value (`???`)
            yield here
        elif OmegaConf.is_dict(ours._get_node(key)) and OmegaConf.is_dict(verls._get_node(key)):
            yield from unknown_keys(ours[key], verls[key], here)


def nearest_key(key: str, known: DictConfig) -> str:
    """Suggest known keys with the same last part as an unknown key, or else keys with a similar spelling."""
    keys = [each for each in _flatten(known) if not is_old(each)]
    tail = [each for each in keys if each.split(".")[-1] == key.split(".")[-1]]
    near = sorted(tail, key=lambda each: -difflib.SequenceMatcher(None, key, each).ratio())
    near = near or difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    if near:
        return "Did you mean " + " or ".join(f"'{each}'" for each in near[:3]) + "?"
    return f"See every key with --dry-run, or add a key that verl does not define with +{key}=..."


def _composed(folder: Path, arguments: Sequence[str]) -> DictConfig:
    searchpath = f"hydra.searchpath=[{','.join(_searchpath(folder))}]"
    try:
        config: DictConfig = hydra_compose("config", [searchpath, *arguments])
        return config
    except MissingConfigException as error:
        if error.missing_cfg_file is None or not error.options:
            raise ConfigError("config.yaml", _short(error), "Correct the recipe's defaults") from error
        group, _, option = error.missing_cfg_file.rpartition("/")
        raise ConfigError(group, f"there is no option {option!r}", did_you_mean(option, error.options)) from error
    except OverrideParseException as error:
        remedy = "Quote values with commas, braces or spaces"
        raise ConfigError(error.override, f"this is not a hydra override: {_short(error)}", remedy) from error
    except (HydraException, OmegaConfBaseException) as error:
        if wrong := _WRONG_KEY.search(str(error)):  # adds a remedy, which hydra's message lacks
            known = hydra_compose("config", [searchpath])
            if wrong[1] not in _flatten(known):
                options = groups(folder)
                near = difflib.get_close_matches(wrong[1].lstrip("+"), options, n=1, cutoff=0.6)
                group = f"Did you mean the group '{near[0]}'? Known: {', '.join(options[near[0]])}." if near else None
                raise ConfigError(wrong[1], "unknown key", group or nearest_key(wrong[1], known)) from error
        raise ConfigError("config.yaml", _short(error), "Correct the recipe or the override") from error


def _short(error: Exception) -> str:
    """Return the error as one line, without the list of searched folders."""
    return " ".join(str(error).split("Config search path:")[0].split())


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return the configuration as plain containers, with all interpolations resolved, or with none if one fails."""
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException:
        plain = OmegaConf.to_container(config)
    return dict(plain)


def problems(config: DictConfig) -> list[ConfigError]:
    """Return an error for each missing mandatory value and each interpolation that cannot be resolved."""
    has_reward_model = OmegaConf.select(config, "reward.reward_model.enable")  # verl skips a disabled section
    return [each for each in _problems(config) if has_reward_model or not each.key.startswith("reward.reward_model.")]


def _problems(node: Any, path: str = "") -> Iterator[ConfigError]:
    for key in node if OmegaConf.is_dict(node) else range(len(node)):
        here = f"{path}.{key}".lstrip(".")
        try:
            value = node[key]
        except MissingMandatoryValue:
            yield ConfigError(here, "verl needs a value, but no value is set", f"Set {here}=...")
        except OmegaConfBaseException as error:
            problem = _RESOLVING.sub(r"\1", str(error).splitlines()[0])
            written: Any = OmegaConf.to_container(node)
            cause = re.search(r"(?:'|type )([^' ]+)", problem)
            if cause is None or cause[1] in str(written[key]):  # skips a problem that is in another key's value
                yield ConfigError(here, problem, f"Set {here}=...")
        else:
            if OmegaConf.is_config(value) and not OmegaConf.is_interpolation(node, key):
                yield from _problems(value, here)


@check("configuration", at=("compose",))
def keys(case: RunCase) -> Iterator[ConfigError]:
    """Every key is defined by verl, or was added by the user on purpose."""
    added = {key for each in case.overrides if each.startswith("+") for key in argument_keys([each])}
    for key in unknown_keys(case.config, verl_defaults()):
        if not any(key == each or each.startswith(f"{key}.") for each in added):
            yield ConfigError(key, "verl has no such key", nearest_key(key, verl_defaults()))


@check("configuration", at=("compose",))
def types(case: RunCase) -> Iterator[ConfigError]:
    """Each value has the same type as in verl's configuration."""
    return values.wrong_types(case, dict(leaves(OmegaConf.to_container(verl_defaults()))))


@check("configuration", at=("compose",))
def tool_names(case: RunCase) -> Iterator[ConfigError]:
    """No tool in the tool file has the same name as a tool of an environment."""
    key = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
    for name, target in case.settings.environments.items() if case.tool_path else ():
        kind = load_environment(name, target)
        for tool in {spec.name for spec in kind.specs} & {spec.name for spec in case.tools}:
            method = f"{kind.cls.__qualname__}.{tool} ({defined_at(getattr(kind.cls, tool))})"
            yield ConfigError(key, f"{case.tool_path} and {method} both define the tool {tool!r}", "Rename one of them")


def _is_written_in(file: Path, key: str, config: DictConfig) -> bool:
    """Whether the value comes from the recipe's file, and not from an override or a group."""
    wrong, written = (
        OmegaConf.select(each, key, throw_on_resolution_failure=False) for each in (config, OmegaConf.load(file))
    )
    return bool(wrong == written and written is not None)


def _searchpath(folder: Path) -> list[str]:
    """Return the recipe's search path, with verl's folder instead of its package, which takes seconds to import."""
    raw = OmegaConf.load(folder / "config.yaml")
    declared = OmegaConf.select(raw, "hydra.searchpath") or []
    verls = f"file://{_verl_config_dir()}"
    return [verls if path == "pkg://verl.trainer.config" else path for path in declared]


def _verl_config_dir() -> Path:
    spec = importlib.util.find_spec("verl")
    if spec is None or spec.origin is None:
        raise ConfigError("verl", "verl is not installed", "Install agent-rl[sglang], or on a CPU run make install")
    return Path(spec.origin).parent / "trainer" / "config"


def _flatten(config: DictConfig) -> dict[str, None]:
    """Return every key as the user writes it, sections included."""
    paths = (key.split(".") for key, _ in leaves(OmegaConf.to_container(config)))
    return dict.fromkeys(".".join(path[:end]) for path in paths for end in range(1, len(path) + 1))
