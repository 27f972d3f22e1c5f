"""Finds agents by name: the agents in this folder, and the agents that a user's script has registered.

The `x_agent` agent is the `AGENT` record in `x.py`, which is imported when the agent is used. Each registration is
reported to the `agent_rl.verl_adapter.loops` module, which sends registered agents to Ray's workers.
"""

from __future__ import annotations

import ast
import functools
import pkgutil
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, overload

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.loop import EpisodeLoop, EpisodeSetup, loop_class
from agent_rl.errors import ConfigError, did_you_mean, reason_of
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object

_SUFFIX = "_agent"

registered: dict[str, Agent | type[Any]] = {}
"""The user's agents by name: records, and classes that verl's worker can run."""
listeners: dict[str, Callable[[], None]] = {}
"""Functions that are called after every registration."""

C = TypeVar("C", bound=type)


@functools.cache
def agent_names() -> tuple[str, ...]:
    """Return the names of the package's agents, without importing them."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return tuple(f"{each.name}{_SUFFIX}" for each in modules if not each.ispkg and each.name != "registry")


def find_agent(name: str, *, key: str = "loop", known: Iterable[str] = ()) -> Agent | type[Any]:
    """Return the agent with this name: a record, or the class that a user has registered.

    Args:
        name: the name in a row or in the configuration.
        key: the configuration key to name in error messages.
        known: the allowed names; if empty, all names are allowed.

    Raises:
        ConfigError: no agent has this name.
    """
    names = tuple(known) or (*agent_names(), *registered)
    if name not in names:
        remedy = f"{did_you_mean(name, names)} For your own agent, pass its script with --script"
        raise ConfigError(key, f"there is no agent {name!r}", remedy)
    if name in registered:
        return registered[name]
    agent: Agent = import_module(f"agent_rl.agents.{name.removesuffix(_SUFFIX)}").AGENT
    return agent


class StartsTrainingError(ConfigError):
    """A script would start training as soon as it is imported, so its agents cannot be loaded."""


def load_script(path: str) -> None:
    """Run a user's training script up to its main block, so that it registers its agents.

    Raises:
        StartsTrainingError: the script calls the trainer outside its main block.
        ConfigError: the script cannot be run.
    """
    remedy = "Call the trainer under `if __name__ == '__main__':`"
    try:
        tree = ast.parse(Path(path).read_bytes())  # bytes may start with a mark or name their encoding
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError("--script", f"{path} cannot be read ({reason_of(error)})", "Pass a Python file") from error
    calls = [node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    if starts := [call for call in calls if ast.unparse(call.func).split(".")[-1] == "main"]:
        raise StartsTrainingError("--script", f"{path}, line {starts[0].lineno}, starts the training", remedy)
    sys.path.insert(0, str(Path(path).resolve().parent))  # as Python does when it runs a script
    find_object(f"{path}:__name__", Place("--script"))


def make_loop(name: str, setup: EpisodeSetup) -> EpisodeLoop:
    """Create the agent's loop for one episode, outside verl.

    Raises:
        ConfigError: no agent has this name, or only verl's worker can run the agent.
    """
    agent = find_agent(name)
    cls = loop_class(agent) if isinstance(agent, Agent) else agent
    if not issubclass(cls, EpisodeLoop):
        remedy = "Derive the class from EpisodeAgentLoop, or from one of agent_rl's loops"
        raise ConfigError("loop", f"only verl's worker can run {cls.__name__}, the class of agent {name!r}", remedy)
    loop: EpisodeLoop = cls(setup=setup)
    return loop


@overload
def register_agent_loop(name: Agent) -> Agent: ...
@overload
def register_agent_loop(name: str) -> Callable[[C], C]: ...
@overload
def register_agent_loop(name: str, cls: C) -> C: ...
def register_agent_loop(name: str | Agent, cls: type | None = None) -> Any:
    """Register your own agent: a record, or a class with a name. The function also works as a decorator.

    Call this function in the script that starts the trainer, before the trainer starts. The record or class may be
    defined in that script or in a module next to it. The workers on every node receive a copy, including the objects in
    its module that the agent uses. `agent-rl eval`, `reward score` and `doctor` run the script to find agents.

    Args:
        name: an `Agent` record, or a name for a row's `agent_name` or for `rollout.agent.default_agent_loop`.
        cls: a subclass of verl's `AgentLoopBase`, usually of `EpisodeAgentLoop` or a loop of this package.

    Returns:
        The record or the class, or a decorator if only a name was given.

    Raises:
        ConfigError: `cls` is not an agent loop or is too large to send, or agent_rl has an agent with the same name.
    """
    if isinstance(name, Agent):
        return _register(name.name, name)
    if cls is None:
        return functools.partial(register_agent_loop, name)
    if not (isinstance(cls, type) and callable(getattr(cls, "run", None))):
        raise ConfigError(f"register_agent_loop({name!r})", f"{cls!r} is not an agent loop", "Subclass AgentLoopBase")
    return _register(name, cls)


def _register(name: str, agent: Agent | type[Any]) -> Agent | type[Any]:
    if name in agent_names():
        raise ConfigError(f"register_agent_loop({name!r})", "the name belongs to agent_rl", "Choose another name")
    if isinstance(agent, type) and issubclass(agent, EpisodeLoop) and "agent" not in vars(agent):
        agent.agent = name  # replaces the name inherited from the base class
    registered[name] = agent
    for listener in listeners.values():
        listener()
    return agent
