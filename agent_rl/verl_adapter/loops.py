"""Creates an agent loop class for each agent, and registers the class in every Ray worker.

A class is created from its `Agent` at first use; for example, `ReactAgentLoop` is an attribute of this module, where
hydra finds it. A worker cannot import an agent that a user's script defines, so the agent is pickled by value and sent
in an environment variable of the Ray job; its class is an attribute of this module, named after the agent.
"""

from __future__ import annotations

import base64
import os
import sys
import sysconfig
import zlib
from types import ModuleType
from typing import Any

from agent_rl.agents import registry
from agent_rl.agents.episode.agent import Agent
from agent_rl.errors import ConfigError

VARIABLE = "AGENT_RL_LOOPS"
MAX_BYTES = 100_000
"""Maximum size of the encoded agents; Linux rejects an environment variable larger than 128 KiB."""


def __getattr__(attribute: str) -> type[Any]:
    """Return the class of an agent, for hydra, pickle and imports."""
    for name in (*registry.agent_names(), *registry.registered):
        if _attribute(name) == attribute:
            return _class(name, attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def install(module: ModuleType) -> None:
    """Add all loops to verl's registry (module `agent_loop`), including the loops that the job's driver sent."""
    for name, agent in _received().items():
        registry.registered.setdefault(name, agent)
    for name in (*registry.agent_names(), *registry.registered):
        module._agent_loop_registry[name] = {"_target_": f"{__name__}.{_attribute(name)}"}


def export_to_workers(module: ModuleType) -> None:
    """Add the registered agents to the environment of the Ray job (verl's module `constants_ppo`)."""
    if registry.registered:
        module.PPO_RAY_RUNTIME_ENV["env_vars"][VARIABLE] = _payload()


def announce() -> None:
    """Register the agents with the verl modules that are already loaded."""
    if agent_loop := sys.modules.get("verl.experimental.agent_loop.agent_loop"):
        install(agent_loop)
    if constants := sys.modules.get("verl.trainer.constants_ppo"):
        export_to_workers(constants)


registry.listeners[__name__] = announce


def _attribute(name: str) -> str:
    """Return the attribute's name for an agent, such as `ReactAgentLoop`; a user's agent also gets a unique name."""
    if name in registry.agent_names():
        return "".join(part.capitalize() for part in name.split("_")) + "Loop"
    return "loop_" + "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in name)


def _class(name: str, attribute: str) -> type[Any]:
    from agent_rl.agents.episode.loop import loop_class
    from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop

    agent = registry.find_agent(name)
    if isinstance(agent, Agent):
        cls = loop_class(agent, EpisodeAgentLoop)
    elif getattr(agent, "agent", name) == name:
        return agent
    else:  # the class has two names, or the worker imported it instead of receiving it
        cls = type(agent.__name__, (agent,), {"agent": name})
    cls.__module__, cls.__qualname__ = __name__, attribute  # where pickle finds it
    return cls


def _payload() -> str:
    from ray import cloudpickle

    modules = {module for agent in registry.registered.values() for module in _users_modules(agent)}
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        text = base64.b64encode(zlib.compress(cloudpickle.dumps(registry.registered), 9)).decode()
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    if len(text) > MAX_BYTES:
        raise ConfigError(
            f"register_agent_loop({', '.join(registry.registered)})",
            f"the classes need {len(text)} bytes, more than {MAX_BYTES}",
            "Keep large data out of the script's globals, or install the module on every node and list it in "
            "actor_rollout_ref.rollout.agent.agent_loop_config_path",
        )
    return text


def _received() -> dict[str, Agent | type[Any]]:
    text = os.environ.get(VARIABLE)
    if not text:
        return {}
    from ray import cloudpickle

    agents: dict[str, Agent | type[Any]] = cloudpickle.loads(zlib.decompress(base64.b64decode(text)))
    return agents


def _users_modules(agent: Agent | type[Any]) -> set[ModuleType]:
    """Return the user's modules that define an agent, and that the workers may lack."""
    parts = vars(agent).values() if isinstance(agent, Agent) else [agent]
    modules = {sys.modules.get(getattr(part, "__module__", None) or "") for part in parts}
    installed = [sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib")]
    return {
        module
        for module in modules
        if module is not None  # a received agent may have no module
        and module.__name__ != "__main__"  # cloudpickle always pickles this module by value
        and module.__name__.split(".")[0] != "agent_rl"
        and (file := getattr(module, "__file__", None)) is not None
        and not any(file.startswith(path) for path in installed)
    }
