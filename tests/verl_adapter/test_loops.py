"""Agent loops of one's own: registration in this process, and in Ray workers that cannot import them."""

import os
import pickle
import sys
from types import ModuleType

import pytest
import verl.experimental.agent_loop.agent_loop as agent_loop
import verl.trainer.constants_ppo as constants
from hydra._internal.utils import _locate

from agent_rl import ReactAgentLoop
from agent_rl.agents import registry
from agent_rl.errors import ConfigError
from agent_rl.verl_adapter import loops
from tests.support.forks import python


class Mine(ReactAgentLoop):
    """A loop of one's own."""

    agent = "mine"


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(registry, "registered", {})
    monkeypatch.delenv(loops.VARIABLE, raising=False)
    monkeypatch.setattr(agent_loop, "_agent_loop_registry", dict(agent_loop._agent_loop_registry))
    environment = {**constants.PPO_RAY_RUNTIME_ENV, "env_vars": dict(constants.PPO_RAY_RUNTIME_ENV["env_vars"])}
    monkeypatch.setattr(constants, "PPO_RAY_RUNTIME_ENV", environment)


def registered(name):
    """The class that verl's worker would instantiate."""
    return _locate(agent_loop._agent_loop_registry[name]["_target_"])


def test_every_agent_of_the_package_is_registered_with_verl_next_to_verls_own():
    assert registered("react_agent") is ReactAgentLoop
    for name in registry.agent_names():
        cls = registered(name)
        assert issubclass(cls, agent_loop.AgentLoopBase)
        assert cls.agent == name
        assert pickle.loads(pickle.dumps(cls)) is cls
    assert {"single_turn_agent", "tool_agent"} <= set(agent_loop._agent_loop_registry)


def test_a_call_and_a_decorator_register_and_the_last_class_of_a_name_counts():
    assert registry.register_agent_loop("mine", type("Other", (Mine,), {}))
    assert registry.register_agent_loop("mine", Mine) is Mine is registered("mine")

    @registry.register_agent_loop("decorated")
    class Decorated(Mine):
        pass

    assert Decorated.__name__ == "Decorated"
    assert registered("decorated") is Decorated


def test_any_name_can_be_found_by_hydra_and_collides_with_no_other():
    names = ["with-dash", "with.dash", "with space", "größe", "1st", "class", "a_b", "a-b", "a.b"]
    for name in names:
        registry.register_agent_loop(name, Mine)
    assert [registered(name).agent for name in names] == names
    assert all(issubclass(registered(name), Mine) for name in names)


def test_class_that_is_too_large_to_send_is_refused(monkeypatch):
    module = ModuleType("users_module")
    module.__file__ = "/home/user/users_module.py"
    source = "def run(self):\n    return DATA\nLoop = type('Loop', (), {'run': run})"
    module.DATA = os.urandom(200_000)
    monkeypatch.setitem(sys.modules, "users_module", module)
    exec(source, vars(module))  # noqa: S102 - a module made here
    with pytest.raises(ConfigError, match=r"register_agent_loop\(large\).*agent_loop_config_path"):
        registry.register_agent_loop("large", module.Loop)


SCRIPT = """
import sys
from types import ModuleType
from agent_rl import Agent, ReactAgentLoop, register_agent_loop
from agent_rl.agents.react import ReactFormat
from agent_rl.verl_adapter import loops

source = "class Loop:\\n    agent = 'beside'\\n    def run(self):\\n        return SECRET\\nSECRET = 'from beside'"
beside = sys.modules["beside"] = ModuleType("beside")
beside.__file__ = "/home/user/beside.py"
exec(source, vars(beside))
GREETING = "from main"

def greeting():
    return GREETING

@register_agent_loop("in-main")
class InMain(ReactAgentLoop):
    def run(self):
        return greeting()

register_agent_loop("beside", beside.Loop)
register_agent_loop(Agent("a record", lambda settings, limits: ReactFormat(greeting())))
print(loops._payload())
"""


def test_loops_of_a_script_exist_in_a_worker_that_cannot_import_it_and_can_be_sent_on(monkeypatch):
    """Runs with real workers are in tests/e2e."""
    monkeypatch.setenv(loops.VARIABLE, python(SCRIPT))
    loops.install(agent_loop)
    found = {name: registered(name) for name in ("in-main", "beside", "a record")}
    assert [cls.agent for cls in found.values()] == list(found)
    bare = {name: cls.__new__(cls) for name, cls in found.items()}
    assert (bare["in-main"].run(), bare["beside"].run()) == ("from main", "from beside")
    bare["a record"].settings = bare["a record"].limits = None
    assert bare["a record"].format().prompt([], [])[0]["content"] == "from main"
    monkeypatch.delenv(loops.VARIABLE)
    loops.export_to_workers(constants)
    assert loops.VARIABLE in constants.get_ppo_ray_runtime_env()["env_vars"]
