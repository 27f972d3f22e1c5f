"""Base classes of reward components: a component gives one number to a trajectory, or to each one of a group.

A component is created once per process, from the `config` below its name in `agent_rl.reward.components`, and measures
many trajectories concurrently. It does not weight, clip or gate its value: `compose` does.

    class Politeness(Component, kind="politeness"):
        async def measure(self, trajectory):
            return Value(float("please" in (trajectory.answer or "")))

In a file of `agent_rl/rewards/components/`, nothing else is needed: a configuration selects it with `kind: politeness`.
In your own file, omit `kind`; a configuration selects it with `kind: my_file.py:Politeness`.
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


def as_value(result: Any) -> Value:
    """Return a component's result as a `Value`; a plain number is accepted too.

    Raises:
        TypeError: the result is not a number.
        UnscoredError: the number is not finite.
        BaseException: the result is itself an exception, which a group component may return.
    """
    if isinstance(result, BaseException):
        raise result
    value = result if isinstance(result, Value) else Value(result)
    if not isinstance(value.value, SupportsFloat):
        raise TypeError(f"it returned {reprlib.repr(result)}, which is neither a Value nor a number")
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

    def __init_subclass__(cls, kind: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if kind is not None:
            DECLARED[kind] = cls

    def __init__(self, name: str, config: Any) -> None:
        self.name = name
        self.config = config

    async def reach(self) -> None:  # noqa: B027 - most use no service
        """Send a test request, without a trajectory, to each service that the component uses; the doctor calls this.

        Raises:
            ConfigError: a service does not answer, or refuses the key or the model.
        """

    async def close(self) -> None:  # noqa: B027 - most hold no resources
        """Release resources; called once, after the last measurement."""


DECLARED: dict[str, type[Any]] = {}
"""Classes by their declared kind; complete once `agent_rl.rewards.component.kinds` has been called."""


class Component(_Measuring):
    """Measures trajectories one by one."""

    @abstractmethod
    async def measure(self, trajectory: Trajectory) -> Value:
        """Return the trajectory's value.

        Raises:
            UnscoredError: this trajectory cannot be measured; it is then unscored, never 0.
            ConfigError: no trajectory can be measured.
        """


class GroupComponent(_Measuring):
    """Measures the trajectories of one prompt against one another."""

    @abstractmethod
    async def measure_group(self, group: Sequence[Trajectory]) -> list[Value | Exception]:
        """Return one value per trajectory, in order; an exception stands for a trajectory that cannot be measured.

        Raises:
            UnscoredError: the whole group cannot be measured.
            ConfigError: no trajectory can be measured.
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
        ConfigError: the kind does not exist, or the config does not fit it.
        UserCodeError: its `__init__` raises.
    """
    place = Place(key)
    component_class = kinds().get(kind) or find_class(kind, (Component, GroupComponent), place / "kind", known=kinds())
    settings = validated(component_class.Config, dict(config), place / "config")
    try:
        component: Component | GroupComponent = component_class(name, settings)
    except AgentRLError:
        raise
    except Exception as error:  # a bug in the user's class
        raise UserCodeError.of(f"{place}: __init__", error, code=component_class) from error
    return component
