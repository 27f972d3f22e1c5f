"""Base classes of reward components: a component gives a trajectory, or each of a group, one number.

A component is created once per process, from the `config` below its name in `agent_rl.reward.components`, and measures
many trajectories concurrently. It does not weight, clip or gate its value: `compose` does.

    class Politeness(Component, kind="politeness"):
        async def measure(self, trajectory):
            return Value(float("please" in (trajectory.answer or "")))

In a file of `agent_rl/rewards/components/`, that is all: a configuration names it as `kind: politeness`. In your own
file it needs no `kind`; a configuration names it as `kind: my_file.py:Politeness`.
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, SupportsFloat

from pydantic import BaseModel

from agent_rl.errors import AgentRLError, UnscoredError
from agent_rl.settings.errors import Place, validated
from agent_rl.settings.importing import find_class, import_all
from agent_rl.settings.section import Section
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import Trajectory

__all__ = ["Component", "ComponentConfig", "GroupComponent", "Value", "as_value", "kinds", "make_component"]


class ComponentConfig(Section):
    """Base of a component's `config`; an unknown key is an error."""


@dataclass(frozen=True, slots=True)
class Value:
    """The result of measuring one trajectory."""

    value: float
    logged: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Further numbers for the metrics, named `<component>_<key>`; `Component.logs` lists the keys."""
    notes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """JSON data for the trace, for example a judge's words; kept in `Trajectory.info["reward"][<component>]`."""


def as_value(found: Any) -> Value:
    """What a component returned as a `Value`; a number counts as one.

    Raises:
        TypeError: it is no number.
        UnscoredError: it is not finite.
        BaseException: it is this exception, as a group's component may return it.
    """
    if isinstance(found, BaseException):
        raise found
    value = found if isinstance(found, Value) else Value(found)
    if not isinstance(value.value, SupportsFloat):
        raise TypeError(f"it returned {reprlib.repr(found)}, which is neither a Value nor a number")
    if not math.isfinite(value.value):
        raise UnscoredError(f"its value is {value.value}")
    return value


class _Measuring(ABC):  # noqa: B024 - each kind has its own abstract method
    """Base of both kinds of components.

    Args:
        name: its key below `agent_rl.reward.components`, for messages.
        config: an instance of `Config`.
    """

    Config: ClassVar[type[BaseModel]] = ComponentConfig
    logs: tuple[str, ...] = ()
    """The keys of `Value.logged`, the same for every trajectory; may be set in `__init__`."""

    def __init_subclass__(cls, kind: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if kind is not None:
            DECLARED[kind] = cls

    def __init__(self, name: str, config: Any) -> None:
        self.name = name
        self.config = config

    async def reach(self) -> None:  # noqa: B027 - most ask nobody
        """Send a first request to each service that the component uses, without a trajectory; the doctor does.

        Raises:
            ConfigError: one of them does not answer, or refuses the key or the model.
        """

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release resources; called once, after the last measurement."""


DECLARED: dict[str, type[Any]] = {}
"""Classes by their declared kind; complete once `agent_rl.rewards.component.kinds` has been called."""


class Component(_Measuring):
    """Measures trajectories one by one."""

    @abstractmethod
    async def measure(self, trajectory: Trajectory) -> Value:
        """The trajectory's value.

        Raises:
            UnscoredError: this trajectory cannot be measured; it is then unscored, never 0.
            ConfigError: no trajectory can be measured.
        """


class GroupComponent(_Measuring):
    """Measures the trajectories of one prompt against one another."""

    @abstractmethod
    async def measure_group(self, group: Sequence[Trajectory]) -> list[Value | Exception]:
        """One value for each, in order; an exception instead of a value for one that cannot be measured.

        Raises:
            UnscoredError: the whole group cannot be measured.
            ConfigError: as `Component.measure`.
        """


FOLDERS = ("components", "judge", "models")
"""Folders whose modules define kinds."""


@cache
def kinds() -> dict[str, type[Component | GroupComponent]]:
    """The built-in kinds by name, from the classes in `FOLDERS`."""
    for folder in FOLDERS:
        import_all(f"agent_rl.rewards.{folder}")
    return dict(sorted(DECLARED.items()))


def make_component(name: str, kind: str, config: Mapping[str, Any], key: str) -> Component | GroupComponent:
    """Create a component of a kind.

    Args:
        name: the user's name for it.
        kind: one of `kinds()`, or a class, `package.module.Class` or `file.py:Class`.
        config: the keys of the class's `Config`.
        key: the configuration key above `kind` and `config`, for errors.

    Raises:
        ConfigError: there is no such kind, or the config does not fit it.
        UserCodeError: its `__init__` raises.
    """
    place = Place(key)
    found = kinds().get(kind) or find_class(kind, (Component, GroupComponent), place / "kind", known=kinds())
    settings = validated(found.Config, dict(config), place / "config")
    try:
        made: Component | GroupComponent = found(name, settings)
    except AgentRLError:
        raise
    except Exception as error:  # a bug in the user's class
        raise UserCodeError.of(f"{place}: __init__", error, code=found) from error
    return made
