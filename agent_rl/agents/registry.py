"""Registration of agent loops with verl, so that they exist in every Ray worker on every node.

Our own loops are registered by name wherever verl's registry is loaded. A loop from a user's script has no importable
home in a worker: `register_agent_loop` sends the class itself along, pickled by value in an environment variable of the
Ray job.
"""

from __future__ import annotations

import base64
import functools
import os
import sys
import sysconfig
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, overload

from agent_rl.errors import ConfigError

__all__ = ["BUILT_IN", "export_to_workers", "install", "register_agent_loop"]

BUILT_IN = {
    "code_act_agent": "agent_rl.verl_adapter.loops.code_act_agent.CodeActAgentLoop",
    "folding_agent": "agent_rl.verl_adapter.loops.folding_agent.FoldingAgentLoop",
    "plan_act_agent": "agent_rl.verl_adapter.loops.plan_act_agent.PlanActAgentLoop",
    "react_agent": "agent_rl.verl_adapter.loops.react_agent.ReactAgentLoop",
    "tool_call_agent": "agent_rl.verl_adapter.loops.tool_call_agent.ToolCallAgentLoop",
    "search_agent": "agent_rl.verl_adapter.loops.search_agent.SearchAgentLoop",
    "user_sim_agent": "agent_rl.verl_adapter.loops.user_sim_agent.UserSimAgentLoop",
}
"""Agent name to class; a name is what the column `agent_name` or `rollout.agent.default_agent_loop` says."""

VARIABLE = "AGENT_RL_LOOPS"
MAX_BYTES = 100_000
"""Linux refuses a single environment variable above 128 KiB."""

_HOME = "agent_rl.agents.registered"
_loops: dict[str, type] = {}

C = TypeVar("C", bound=type)


@overload
def register_agent_loop(name: str) -> Callable[[C], C]: ...
@overload
def register_agent_loop(name: str, cls: C) -> C: ...
def register_agent_loop(name: str, cls: type | None = None) -> Any:
    """Register an agent loop under a name, as a call or as a decorator.

    Call it in the script that starts the trainer, before the trainer starts. The class may stand in that script or in a
    module beside it: it is sent to the workers by value, on any node, together with what it refers to in that module.

    Args:
        name: what `agent_name` in a row or `rollout.agent.default_agent_loop` says.
        cls: a subclass of verl's `AgentLoopBase`, usually of `EpisodeAgentLoop` or one of our loops.

    Returns:
        The class; without `cls`, a decorator.

    Raises:
        ConfigError: for something that is not an agent loop, a name of ours, or a class too large to send.
    """
    if cls is None:
        return functools.partial(register_agent_loop, name)
    if not (isinstance(cls, type) and callable(getattr(cls, "run", None))):
        raise ConfigError(f"register_agent_loop({name!r})", f"{cls!r} is not an agent loop", "Subclass AgentLoopBase")
    if name in BUILT_IN:
        raise ConfigError(f"register_agent_loop({name!r})", "the name belongs to agent_rl", "Choose another")
    _loops[name] = cls
    _settle(name, cls)
    if registry := sys.modules.get("verl.experimental.agent_loop.agent_loop"):
        install(registry)
    if constants := sys.modules.get("verl.trainer.constants_ppo"):
        export_to_workers(constants)
    return cls


def install(module: ModuleType) -> None:
    """Enter our loops, and those that this job's driver sent, into verl's registry (its module `agent_loop`)."""
    for name, cls in _received().items():
        if name not in _loops:
            _loops[name] = cls
            _settle(name, cls)
    targets = {**BUILT_IN, **{name: f"{_HOME}.{_attribute(name)}" for name in _loops}}
    for name, target in targets.items():
        module._agent_loop_registry[name] = {"_target_": target}


def export_to_workers(module: ModuleType) -> None:
    """Add the registered classes to the environment of the Ray job (verl's module `constants_ppo`)."""
    if _loops:
        module.PPO_RAY_RUNTIME_ENV["env_vars"][VARIABLE] = _payload()


def _settle(name: str, cls: type) -> None:
    """Give the class an importable path in this process: hydra instantiates loops by path."""
    home = sys.modules.setdefault(_HOME, ModuleType(_HOME))
    setattr(home, _attribute(name), cls)


def _attribute(name: str) -> str:
    return "loop_" + "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in name)


def _payload() -> str:
    from ray import cloudpickle

    found = (sys.modules.get(cls.__module__) for cls in _loops.values())  # a class that was received may have none
    modules = {module for module in found if module and _is_users(module)}
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        text = base64.b64encode(zlib.compress(cloudpickle.dumps(_loops), 9)).decode()
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    if len(text) > MAX_BYTES:
        raise ConfigError(
            f"register_agent_loop({', '.join(_loops)})",
            f"the classes need {len(text)} bytes, more than {MAX_BYTES}",
            "Keep large data out of the script's globals, or install the module on every node and list it in "
            "actor_rollout_ref.rollout.agent.agent_loop_config_path",
        )
    return text


def _received() -> dict[str, type]:
    text = os.environ.get(VARIABLE)
    if not text:
        return {}
    from ray import cloudpickle

    loops: dict[str, type] = cloudpickle.loads(zlib.decompress(base64.b64decode(text)))
    return loops


def _is_users(module: ModuleType) -> bool:
    """Whether a module belongs to the user's own files, which the workers may not have."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or file is None:
        return False  # cloudpickle sends __main__ by value by itself
    installed = [sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib")]
    return module.__name__.split(".")[0] != "agent_rl" and not any(file.startswith(path) for path in installed)
