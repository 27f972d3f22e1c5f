"""TRL environments: files that define the arguments of a `GRPOTrainer`, according to TRL's contract.

A TRL file has `environment_factory` (a callable without arguments, or a dict of callables by the values of the rows'
`environment` column), or else one class with `reset` and no subclass of `agent_rl.Environment`. The file may also have
`tools`, `reward_funcs`, `train_dataset` and `eval_dataset`. To add reward functions and a file of rows, append them to
the target with ` + `: `my_trl.py + rewards.py:brevity + rows.parquet`.

Unlike in TRL, a call that exceeds `agent_rl.budget.tool_timeout_s` leaves its trajectory unscored. Reward functions get
completions one by one, without `completion_ids`. If a call cannot be read, the policy gets an error message.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_rl.data.sources import read_raw
from agent_rl.environments.environment import Environment
from agent_rl.environments.kind import SPLITS, MethodTool, blocking_calls, split_of
from agent_rl.environments.trl_session import Factory, TrlType
from agent_rl.settings import TERMS
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object, load_file
from agent_rl.settings.user_code import defined_at
from agent_rl.tools import ToolSpec

ADDED = " + "
"""Separator in a target between the environment, reward functions and a file of rows."""
MOST_ROWS = 100_000


@dataclass(frozen=True)
class _Spec(ToolSpec):
    """A tool whose schema also describes the result."""

    returns: Any = None

    def schema(self) -> dict[str, Any]:
        schema = super().schema()
        if self.returns is not None:
            schema["function"]["return"] = self.returns
        return schema


def trl_environment(name: str, target: str, place: Place) -> TrlType | None:
    """Load a TRL file; return None for any other file.

    Args:
        name: the environment's name in `agent_rl.environments`.
        target: `file.py` or `file.py:NAME`, where NAME is a class, a factory or a dict of factories, optionally
            followed by reward functions (`file.py:function`) and a file of rows, each after ` + `.
        place: the place in the configuration where the target is set.

    Raises:
        ConfigError: a class, a tool or a reward function cannot be used.
    """
    own, *added = target.split(ADDED)
    file, _, attribute = (own, "", "") if own.endswith(".py") else own.rpartition(":")
    module = load_file(file, Path.cwd(), place)
    made = find_object(own, place) if attribute else getattr(module, "environment_factory", None)
    made = _only_class(module, own, place) if made is None else made
    if isinstance(made, type) and (issubclass(made, Environment) or not _has(made, "reset")):
        return None
    if not callable(made) and not isinstance(made, dict):
        return None
    functions, rewards = _listed(module, "tools"), _listed(module, "reward_funcs")
    rewards += [find_object(each, place) for each in added if ".py:" in each]
    named = _named(rewards, place)
    makers = made if isinstance(made, dict) else {None: made}
    factories = {key: _factory(make, functions, named, place) for key, make in makers.items()}
    files = [each for each in added if ".py:" not in each]
    whole = [f"{module.__file__}:{attribute}" if attribute else str(module.__file__), *map(absolute, added)]
    data = _data(module, files, isinstance(made, dict), place)
    return TrlType(name, ADDED.join(whole), next(iter(factories.values())).cls, factories, functions, data)


def absolute(part: str) -> str:
    """Return one part of a target, with an absolute path."""
    file, colon, attribute = part.partition(":")
    return f"{Path(file).expanduser().resolve()}{colon}{attribute}"


def _only_class(module: ModuleType, file: str, place: Place) -> type | None:
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    classes = [cls for cls in own if _has(cls, "reset")]
    if any(issubclass(cls, Environment) for cls in own) or not classes:
        return None
    if len(classes) > 1:
        names = ", ".join(cls.__name__ for cls in classes)
        remedy = f"Name one, {file}:{classes[-1].__name__}, or define environment_factory in the file"
        raise place.error(f"{file} has several classes that define reset: {names}", remedy)
    return classes[0]


def _factory(make: Any, functions: list[Any], named: Mapping[str, Any], place: Place) -> Factory:
    cls: Any = make if isinstance(make, type) else type(make())
    where = f"{cls.__qualname__} ({defined_at(cls)})"
    if not _has(cls, "reset"):
        raise place.error(f"{where} has no reset", "Define reset(self, **row)")
    if inspect.iscoroutinefunction(cls.reset):
        raise place.error(f"{where} has an async reset, which TRL does not await", "Write a plain def reset")
    public = [name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")]
    methods = [name for name in public if name not in ("reset", "get_reward")]  # TRL has the same tools in this order
    blank = cls.__new__(cls)
    tools = {each.__name__: each for each in (*functions, *(getattr(blank, name) for name in methods))}
    for function in (*tools.values(), *(getattr(cls, name) for name in public if name not in methods)):
        for problem, remedy in blocking_calls(inspect.unwrap(function)):
            raise place.error(problem, remedy)
    owned = {f"{cls.__name__}_reward" if cls.__name__ in TERMS else cls.__name__: None}
    rewards = {**named, **(owned if "get_reward" in public else {})}
    return Factory(make, cls, [_spec(tool, place) for tool in tools.values()], methods, rewards)


def _spec(tool: Callable[..., Any], place: Place) -> ToolSpec:
    from transformers.utils import get_json_schema

    try:
        schema = get_json_schema(tool)["function"]
    except Exception as error:  # the cause is in the author's docstring or type hints
        problem = f"TRL cannot describe the tool {tool.__name__} ({defined_at(tool)}): {error}"
        remedy = "Give each argument a type hint and a line under Args:, or derive the class from agent_rl.Environment"
        raise place.error(problem, remedy) from error
    described = schema["name"], schema["description"], schema["parameters"]
    return _Spec(*described, MethodTool, {"method": tool.__name__}, returns=schema.get("return"))


def _named(functions: Iterable[Any], place: Place) -> dict[str, Callable[..., Any]]:
    """Return a dict of the reward functions by name."""
    named: dict[str, Callable[..., Any]] = {}
    for function in functions:
        code = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
        name = getattr(code, "__name__", type(code).__name__)
        if not callable(function) or hasattr(function, "state_dict"):
            remedy = "Pass a function, or set the model in agent_rl.reward.components"
            raise place.error(f"the reward {function!r:.60} is a model", remedy)
        if "completion_ids" in inspect.signature(function).parameters:
            problem = f"the reward function {name} ({defined_at(code)}) takes completion_ids, which are not stored"
            raise place.error(problem, "Read the text in completions")
        named[f"{name}_reward" if name in TERMS else name] = function
    return named


def _data(module: ModuleType, files: Sequence[str], several: bool, place: Place) -> dict[str, Any]:
    train, test = getattr(module, "train_dataset", None), getattr(module, "eval_dataset", None)
    if files:
        train, test = [raw.value for raw in read_raw(absolute(files[0]))], None
    if train is None and several:
        problem = f"{module.__file__} has several factories, but no rows whose environment column selects one"
        raise place.error(problem, f"Define train_dataset in the file, or add a file of rows: '{ADDED}rows.parquet'")
    if train is None:
        return {}
    rows = _rows(train)
    if test is not None:
        return {"train": rows, "test": _rows(test)}
    train, test = ([row for number, row in enumerate(rows) if split_of(number) == split] for split in SPLITS)
    return {"train": train, "test": test or rows}


def _rows(data: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the rows of a data set; if it has no length, and may thus be endless, only the first `MOST_ROWS`."""
    return [dict(row) for row in itertools.islice(data, None if hasattr(data, "__len__") else MOST_ROWS)]


def _listed(module: ModuleType, name: str) -> list[Any]:
    value = getattr(module, name, None)
    if isinstance(value, list | tuple):
        return list(value)
    return [] if value is None or isinstance(value, ModuleType) else [value]


def _has(cls: type, method: str) -> bool:
    return inspect.isfunction(getattr(cls, method, None))
