"""Base classes of reward components, which compute one number for a trajectory, or for each trajectory of a group.

A component is created once per process, from the `config` under its name in `agent_rl.reward.components`, and measures
many trajectories concurrently. A component does not weight, clip or gate its value; `compose` does that.

    class Politeness(Component, kind="politeness"):
        async def measure(self, trajectory):
            return Value(float("please" in (trajectory.answer or "")))

If this class is in a file in `agent_rl/rewards/components/`, a configuration selects it with `kind: politeness`. In
your own file, omit `kind` from the class; a configuration selects the class with `kind: my_file.py:Politeness`.
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, SupportsFloat

from pydantic import BaseModel

from agent_rl.errors import AgentRLError, UnscoredError
from agent_rl.settings.errors import Place, Section, validated
from agent_rl.settings.importing import find_class, import_all
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import Trajectory


class ComponentConfig(Section):
    """Base class of a component's `config`; an unknown key is an error."""


@dataclass(frozen=True, slots=True)
class Value:
    """The result of measuring one trajectory."""

    value: float
    logged: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Additional numbers to log as `<component>_<key>` metrics; `Component.logs` lists the keys."""
    notes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """JSON data for the trace, such as a judge's reasons, in `Trajectory.info["reward"]["notes"][<component>]`."""
    per_turn: Sequence[float] | None = None
    """The part of the value that each turn earned, one number per turn, for `algo=turn` and `algo=gigpo`. A turn's part
    must not depend on later turns. If None, the last turn earned the whole value."""


def as_value(result: Any) -> Value:
    """Return a component's result as a `Value` with Python floats; a plain number is accepted too.

    Raises:
        TypeError: the result, or a number to log, is not a number.
        UnscoredError: the number, or a number in `per_turn`, is not finite.
        BaseException: a group component returned this exception as the result.
    """
    if isinstance(result, BaseException):
        raise result
    value = result if isinstance(result, Value) else Value(result)
    if not isinstance(value.value, SupportsFloat):
        raise TypeError(f"the component returned {reprlib.repr(result)}, neither a Value nor a number")
    if not math.isfinite(value.value):
        raise UnscoredError(f"the component's value is {value.value}, which is not a finite number")
    if value.per_turn is not None and not all(map(math.isfinite, value.per_turn)):
        raise UnscoredError(f"the value's per_turn has a number that is not finite: {reprlib.repr(value.per_turn)}")
    if wrong := {key: number for key, number in value.logged.items() if not isinstance(number, SupportsFloat)}:
        raise TypeError(f"the component logged {reprlib.repr(wrong)}, which is not a number")
    logged = {key: float(number) for key, number in value.logged.items()}
    return replace(value, value=float(value.value), logged=logged, notes=dict(value.notes))


class _BaseComponent(ABC):  # noqa: B024 - the subclasses declare the abstract methods
    """Base class of `Component` and `GroupComponent`.

    Args:
        name: the component's key under `agent_rl.reward.components`, used in error messages.
        config: an instance of `Config`.
    """

    Config: ClassVar[type[BaseModel]] = ComponentConfig
    logs: tuple[str, ...] = ()
    """The keys of `Value.logged`, which are the same for every trajectory; `__init__` may set them."""

    def __init_subclass__(cls, kind: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if kind is not None:
            DECLARED[kind] = cls

    def __init__(self, name: str, config: Any) -> None:
        self.name = name
        self.config = config

    async def reach(self) -> None:  # noqa: B027 - optional, because most components use no service
        """Send a test request, without a trajectory, to each service that the component uses; the doctor calls this.

        Raises:
            ConfigError: a service does not answer, or rejects the key or the model.
        """

    async def close(self) -> None:  # noqa: B027 - optional, because most components hold no resources
        """Release resources; called once, after the last measurement."""


DECLARED: dict[str, type[Any]] = {}
"""Component classes by declared kind; the first call to `agent_rl.rewards.component.kinds` completes the mapping."""


class Component(_BaseComponent):
    """Base class of components that measure trajectories one by one."""

    @abstractmethod
    async def measure(self, trajectory: Trajectory) -> Value:
        """Return the trajectory's value.

        Raises:
            UnscoredError: the trajectory cannot be measured, so it gets no score rather than a score of 0.
            ConfigError: the component cannot measure any trajectory.
        """


class GroupComponent(_BaseComponent):
    """Base class of components that compare the trajectories of one prompt with each other."""

    @abstractmethod
    async def measure_group(self, group: Sequence[Trajectory]) -> list[Value | Exception]:
        """Return each trajectory's value, in order, or an exception if the trajectory cannot be measured.

        Raises:
            UnscoredError: the whole group cannot be measured.
            ConfigError: the component cannot measure any trajectory.
        """


@cache
def kinds() -> dict[str, type[Component | GroupComponent]]:
    """Import the modules that define component kinds, and return the declared classes by kind."""
    for folder in ("components", "judge", "models"):
        import_all(f"agent_rl.rewards.{folder}")
    return dict(sorted(DECLARED.items()))


def make_component(name: str, kind: str, config: Mapping[str, Any], key: str) -> Component | GroupComponent:
    """Create a component from its entry in the configuration.

    Args:
        name: the user's name for the component.
        kind: a name in `kinds()`, or a class as `package.module.Class` or `file.py:Class`.
        config: the values of the class's `Config`.
        key: the configuration key of the entry, used in error messages.

    Raises:
        ConfigError: the kind does not exist, or `config` is not valid for it.
        UserCodeError: the class's `__init__` raised an exception.
    """
    place = Place(key)
    component_class = kinds().get(kind) or find_class(kind, (Component, GroupComponent), place / "kind", known=kinds())
    settings = validated(component_class.Config, dict(config), place / "config")
    try:
        return component_class(name, settings)
    except AgentRLError:
        raise
    except Exception as error:  # the user's class has a bug
        raise UserCodeError.of(f"{place}: __init__", error, code=component_class) from error
